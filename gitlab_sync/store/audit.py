"""Statements on `operation_audit` alone; its rows are written together with the moves, in `operations`."""

from __future__ import annotations

from gitlab_sync.db import Session
from gitlab_sync.model import OperationId
from gitlab_sync.states import OperationStatus
from sql import statement


async def lock_move(
    session: Session,
    operation_id: OperationId,
    *,
    version: int,
    after: OperationStatus,
    actor: str,
    cause: str,
) -> bool:
    """Whether the move to `version` is this one; waits for a commit in flight on it."""
    parameters = {
        "operation_id": operation_id.bytes,
        "version": version,
        "after": after,
        "actor": actor.encode(),
        "cause": cause,
    }
    return await session.row(statement("audit_lock_move"), parameters) is not None
