"""Statements on `merge_batch` that put a published batch on another base."""

from __future__ import annotations

from gitlab_sync.db import Session
from gitlab_sync.model import BatchRow
from sql import statement


async def count_attempt_if_running(session: Session, batch: BatchRow, asks: int = 0) -> int:
    """One attempt more, before its push. `asks`: 1 where `merge_asks` counts what was asked for this head."""
    parameters = {"batch_id": batch.id, "version": batch.version, "token": session.token, "asks": asks}
    return await session.execute(statement("batch_count_attempt_if_running"), parameters)


async def record_rebuild_if_running(
    session: Session, batch: BatchRow, *, base_sha: str, head_sha: str
) -> int:
    """The branch was reset: another base, another head."""
    parameters = {
        "batch_id": batch.id,
        "version": batch.version,
        "token": session.token,
        "base_sha": base_sha,
        "head_sha": head_sha,
        "head_before": batch.head_sha,
    }
    return await session.execute(statement("batch_record_rebuild_if_running"), parameters)
