"""Statements on `binding` and its history: the present state of each subject-target relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gitlab_sync.db import Session
from gitlab_sync.model import BindingRow, NewRequest, OperationId
from gitlab_sync.states import BindingStatus, Via
from gitlab_sync.store.shapes import binding_row, hex_text, rows_json
from sql import statement


@dataclass(frozen=True, slots=True)
class BindingStart:
    """A relation that starts a new life or a change: from exactly the state that was read."""

    binding: BindingRow
    after: BindingStatus
    operation_id: OperationId


async def select_many(session: Session, relations: Sequence[tuple[str, str]]) -> list[BindingRow]:
    """Those relations that have a row, in no particular order."""
    parameters = {
        "relations": rows_json(
            [
                {"subject_id": hex_text(subject), "target_key": hex_text(target)}
                for subject, target in relations
            ]
        )
    }
    return [binding_row(row) for row in await session.rows(statement("binding_select_many"), parameters)]


async def get(session: Session, subject: str, target: str) -> BindingRow | None:
    parameters = {"subject_id": subject.encode(), "target_key": target.encode()}
    row = await session.row(statement("binding_get"), parameters)
    return None if row is None else binding_row(row)


async def insert_many(session: Session, requests: Sequence[NewRequest]) -> int:
    """First life of relations. Raises DuplicateKey(uk_relation)."""
    rows = [
        {
            "operation_id": request.operation_id.hex,
            "subject_id": hex_text(request.subject),
            "target_key": hex_text(request.target),
        }
        for request in requests
    ]
    parameters = {"rows": rows_json(rows), "token": session.token}
    return await session.execute(statement("binding_insert_many"), parameters)


async def start_if_unchanged(session: Session, starts: Sequence[BindingStart]) -> int:
    """How many relations were still exactly as read and have started; locks in ascending id."""
    rows = [
        {
            "id": start.binding.id,
            "before": int(start.binding.status),
            "version": start.binding.version,
            "after": int(start.after),
            "operation_id": start.operation_id.hex,
        }
        for start in sorted(starts, key=lambda start: start.binding.id)
    ]
    parameters = {"rows": rows_json(rows), "token": session.token}
    return await session.execute(statement("binding_start_if_unchanged"), parameters)


async def follow_moved(session: Session) -> int:
    """Relations follow the operations that this transaction moved to an end; how many did."""
    return await session.execute(statement("binding_follow_moved"), {"token": session.token})


async def recover_moved(session: Session) -> int:
    """Relations follow the operations that this transaction moved out of FAILED; how many did."""
    return await session.execute(statement("binding_recover_moved"), {"token": session.token})


async def insert_history_of_moved(session: Session, via: Via) -> int:
    """One history row for each relation this transaction has moved."""
    parameters = {"via": via, "token": session.token}
    return await session.execute(statement("binding_history_insert_moved"), parameters)
