"""`submit`: requests from files, each with an idempotency key of its own: a repeated call adds nothing.

All files are read and judged before anything is written. Then each request is admitted by itself: one that is
refused (its relation is busy) does not keep the others out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gitlab_sync.cli.failures import ExitCode
from gitlab_sync.cli.output import JsonOption, note, say_json, say_table
from gitlab_sync.cli.running import actor, on_engine
from gitlab_sync.errors import FieldProblem, InvalidRequest, SubmitRefused
from gitlab_sync.settings import Need

if TYPE_CHECKING:
    from gitlab_sync.cli.request_file import FiledRequest
    from gitlab_sync.context import Context
    from gitlab_sync.model import OperationId, OperationRow

LOOK_AGAIN_S: Final = 0.5
REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of one request of a file. `operation_id` None: it was refused."""

    place: str
    answer: str
    operation_id: OperationId | None
    status: str | None
    detail: str = ""


def submit(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE.yaml", help="Files with one request or a list each.")
    ],
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until each has landed or failed.")] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=1, help="How long to wait, in seconds.")
    ] = 3600.0,
    as_json: JsonOption = False,
) -> None:
    """Submit requests. Exit 1 if one is refused or, with --wait, does not land."""
    filed = _read_all(files)
    entries = on_engine(lambda ctx: _submit(ctx, filed, timeout_s if wait else 0.0), Need.SUBMIT)
    if as_json:
        say_json([_json(entry) for entry in entries])
    else:
        rows = [(one.place, one.answer, one.operation_id, one.status, one.detail) for one in entries]
        say_table(("request", "answer", "id", "status", "detail"), rows, empty="")
    if not all(_is_well(entry, has_waited=wait) for entry in entries):
        raise typer.Exit(ExitCode.FOUND)


def _read_all(files: Sequence[Path]) -> list[list[FiledRequest]]:
    """The requests of each file. Raises InvalidRequest with the problems of all files."""
    from gitlab_sync.cli.request_file import read_request_file

    filed: list[list[FiledRequest]] = []
    problems: list[FieldProblem] = []
    for path in files:
        try:
            filed.append(read_request_file(path))
        except InvalidRequest as error:
            problems += error.problems
    if problems:
        raise InvalidRequest(problems)
    return filed


async def _submit(ctx: Context, filed: Sequence[Sequence[FiledRequest]], wait_s: float) -> list[Entry]:
    from gitlab_sync.validation import check_requests

    problems = [
        problem
        for one_file in filed
        for problem in check_requests(
            [one.request for one in one_file], ctx.partitions, [one.place for one in one_file]
        )
    ]
    if problems:
        raise InvalidRequest(problems)
    entries = [await _submit_one(ctx, one) for one_file in filed for one in one_file]
    return await _with_status(ctx, entries, wait_s)


async def _submit_one(ctx: Context, filed: FiledRequest) -> Entry:
    from gitlab_sync import admission

    try:
        submitted = await admission.submit(
            ctx, [filed.request], caller=actor(), idempotency=filed.idempotency, pointers=[filed.place]
        )
    except (SubmitRefused, InvalidRequest) as refusal:  # the latter: its `expires_at` has passed meanwhile
        return Entry(filed.place, REFUSED, None, None, str(refusal))
    return Entry(filed.place, submitted.answer, submitted.operation_ids[0], None)


async def _with_status(ctx: Context, entries: Sequence[Entry], wait_s: float) -> list[Entry]:
    """The entries with where their requests stand, once all have ended or `wait_s` is over."""
    deadline = time.monotonic() + wait_s
    rows = await _rows(ctx, entries)
    open_before = len(rows)
    while (open_now := sum(not _has_ended(row) for row in rows.values())) and time.monotonic() < deadline:
        if open_now < open_before:
            note(f"{len(rows) - open_now} of {len(rows)} have ended")
        open_before = open_now
        await asyncio.sleep(LOOK_AGAIN_S)
        rows = await _rows(ctx, entries)
    return [_seen(entry, rows) for entry in entries]


async def _rows(ctx: Context, entries: Sequence[Entry]) -> dict[OperationId, OperationRow]:
    from gitlab_sync import queries

    wanted = [entry.operation_id for entry in entries if entry.operation_id is not None]
    rows = await queries.operations_of(ctx, wanted) if wanted else ()
    return {row.operation_id: row for row in rows}


def _has_ended(row: OperationRow) -> bool:
    from gitlab_sync.states import OperationStatus

    return row.status not in (OperationStatus.PENDING, OperationStatus.QUEUED, OperationStatus.MERGING)


def _seen(entry: Entry, rows: dict[OperationId, OperationRow]) -> Entry:
    row = None if entry.operation_id is None else rows.get(entry.operation_id)
    if row is None:
        return entry
    return Entry(entry.place, entry.answer, entry.operation_id, row.status.name, row.reason_text or "")


def _is_well(entry: Entry, *, has_waited: bool) -> bool:
    return entry.answer != REFUSED and (not has_waited or entry.status == "MERGED")


def _json(entry: Entry) -> dict[str, str | None]:
    operation_id = None if entry.operation_id is None else str(entry.operation_id)
    return {
        "request": entry.place,
        "answer": entry.answer,
        "operation_id": operation_id,
        "status": entry.status,
        "detail": entry.detail or None,
    }
