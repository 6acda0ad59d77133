"""Shows the run to a person: sentences that scroll, and on a terminal a table that stays below them.

Sentences are plain lines on stdout wherever it is no terminal. Nothing is printed by anybody else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from gitlab_sync.sandbox.demo.progress import PartitionRow

_HEADINGS: Final = ("partition", "waiting", "at work", "merge requests", "landed")


class Screen:
    """Where the demo speaks; a context manager."""

    def __init__(self) -> None:
        from rich.console import Console

        self.started_at = time.monotonic()
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._live: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_table()

    def tell(self, sentence: str) -> None:
        """One sentence, with the seconds since the start."""
        self._console.print(f"{time.monotonic() - self.started_at:6.1f} s  {sentence}")
        sys.stdout.flush()

    def say(self, text: str = "") -> None:
        """Lines without a time."""
        self._console.print(text)
        sys.stdout.flush()

    def show(self, rows: Sequence[PartitionRow]) -> None:
        """Bring the table up to date; not on a pipe."""
        if not self._console.is_terminal:
            return
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(_table(rows), refresh=True)

    def stop_table(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _table(rows: Sequence[PartitionRow]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold")
    for heading in _HEADINGS:
        is_number = heading in ("waiting", "merge requests", "landed")
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        numbers = (row.waiting, row.merge_requests, row.landed)
        waiting, merge_requests, landed = (Text(str(number)) for number in numbers)
        table.add_row(Text(row.partition), waiting, Text(row.at_work), merge_requests, landed)
    return table
