"""The command line: what the API does for people at a terminal, and what only an operator does.

Commands work directly on the database with the engine's own functions, so they are safe beside a running
service. Nothing here decides about a request or a batch. Each command imports what it needs when it runs.

Exit codes: 0 done, 1 found something or failed, 2 wrong usage or configuration; 129, 130, 143: a command was
ended by SIGHUP, Ctrl-C, SIGTERM (`signals`).
"""

from __future__ import annotations

import gc
import sys
from typing import Final

# Importing makes hardly any garbage, and by default a tenth of a start goes into looking for it.
GC_THRESHOLDS: Final = (20_000, 20, 20)


def main() -> None:
    """The entry point `gitlab-sync`."""
    gc.set_threshold(*GC_THRESHOLDS)
    from gitlab_sync import last_words

    last_words.install()
    from gitlab_sync.cli.signals import end_on_signals, leave_soon

    end_on_signals()
    exit_code = _run()
    leave_soon(exit_code)
    sys.exit(exit_code)


def _run() -> int:
    from gitlab_sync.cli.signals import tell_interrupted

    try:
        from gitlab_sync.cli.app import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # while the commands were imported
        return tell_interrupted()
