"""Lets time pass in the tables: what a batch or a notification waits for by the clock is over at once.

Rows that somebody holds are left alone: whoever holds one may be the event loop that calls this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[[str], list[tuple[Any, ...]]]


def let_time_pass(run: Run) -> None:
    """Leases and pauses are over: batches and notifications are due, so is a second wish to merge."""
    free(run, "merge_batch", "next_check_at < '9999-01-01'", "next_check_at = UTC_TIMESTAMP(6)")
    free(run, "merge_batch", "merge_asked_at > created_at", "merge_asked_at = created_at - INTERVAL 1 HOUR")
    free(run, "outbox", "delivered_at IS NULL", "next_attempt_at = UTC_TIMESTAMP(6)")


def make_overdue(run: Run) -> None:
    """Every deadline of an active batch has passed, and with it all that is shorter."""
    free(run, "merge_batch", "status IN (1, 4)", "deadline_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
    let_time_pass(run)


def free(run: Run, table: str, where: str, change: str) -> None:
    """Change the rows that nobody holds."""
    run("BEGIN")
    ids = [row[0] for row in run(f"SELECT id FROM {table} WHERE {where} FOR UPDATE SKIP LOCKED")]
    if ids:
        run(f"UPDATE {table} SET {change} WHERE id IN ({', '.join(map(str, ids))})")
    run("COMMIT")
