"""The resource `requests`: submit, list, show, approve, reject, close, retry.

Form is checked here, meaning by the engine's admission; both tell all problems at once. A list is taken
whole or not at all. Answers after a write are read anew, so a repeated submit is answered with what is, not
with what was.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from starlette.responses import Response

from gitlab_sync import admission, moves, queries
from gitlab_sync.admission import Idempotency, SubmitAnswer, Submitted
from gitlab_sync.context import Context
from gitlab_sync.errors import FieldProblem, NotFound
from gitlab_sync.model import NewRequest, OperationId, OperationRow
from gitlab_sync.read_back import read_back
from gitlab_sync.states import OperationStatus
from gitlab_sync.store.views import OperationFilter
from gitlab_sync.units import current
from hooks.api.bodies import SUBMIT_LIMITS, json_body, optional_body, read_model
from hooks.api.cursors import read_cursor, read_limit, read_status, read_text, refuse_unknown, write_cursor
from hooks.api.incoming import MoveIn, RequestIn
from hooks.api.shapes import RequestPageOut, json_answer, json_list
from hooks.api.views import request_detail_out, request_out
from hooks.auth import single_header
from hooks.endpoints import Call
from hooks.problems import invalid
from hooks.strict_json import body_hash

LARGEST_LIST: Final = 1_000
LONGEST_KEY_BYTES: Final = 255
_KEY: Final = re.compile(rb"[!-~]{1,%d}" % LONGEST_KEY_BYTES)
LIST_PARAMETERS: Final = ("status", "partition", "subject", "target", "cursor", "limit")


class MoveFunction(Protocol):
    """One of the engine's moves of a single operation."""

    def __call__(
        self, ctx: Context, operation_id: OperationId, *, actor: str, version: int | None, reason: str
    ) -> Awaitable[OperationRow]: ...


async def submit(call: Call) -> Response:
    """201: admitted. 200: the same key and body came before. A list is answered with a list."""
    refuse_unknown(call.request.query_params, ())
    key = _idempotency_key(call)
    body = await json_body(call.request, SUBMIT_LIMITS)
    requests, pointers = _requests_in(body)
    submitted = await admission.submit(
        call.engine.ctx,
        requests,
        caller=call.caller.name,
        idempotency=None if key is None else Idempotency(key, body_hash(body)),
        pointers=pointers,
    )
    return await read_back(_submit_answer(call, submitted, is_list=isinstance(body, list)))


async def list_requests(call: Call) -> Response:
    """A page of requests, newest first."""
    query = call.request.query_params
    refuse_unknown(query, LIST_PARAMETERS)
    wanted = OperationFilter(
        status=read_status(query, OperationStatus),
        partition=read_text(query, "partition"),
        subject=read_text(query, "subject"),
        target=read_text(query, "target"),
        limit=read_limit(query),
    )
    page = await queries.list_requests(call.engine.ctx, wanted, read_cursor(query))
    items = [request_out(row) for row in page.entries]
    return json_answer(RequestPageOut(items=items, next_cursor=write_cursor(page.next_position)))


async def show_request(call: Call) -> Response:
    """One request with its batch, its place in the waiting set and its history."""
    return await _detail(call, _operation_id(call), 200)


def mover(move: MoveFunction) -> Callable[[Call], Awaitable[Response]]:
    """The endpoint of one move: approve, reject, close or retry."""

    async def handle(call: Call) -> Response:
        operation_id = _operation_id(call)
        body = await optional_body(call.request, MoveIn)
        await move(
            call.engine.ctx, operation_id, actor=call.caller.name, version=body.version, reason=body.reason
        )
        return await read_back(_detail(call, operation_id, 200))

    return handle


approve: Final = mover(moves.approve)
reject: Final = mover(moves.reject)
close: Final = mover(moves.close)
retry: Final = mover(moves.retry)


def _requests_in(body: Any) -> tuple[list[NewRequest], list[str]]:
    """The requests of a body and their JSON pointers. Raises Problem 422 with the index of every bad one."""
    members = body if isinstance(body, list) else [body]
    if not members or len(members) > LARGEST_LIST:
        message = f"holds {len(members)} requests; send 1 to {LARGEST_LIST} in one call"
        raise invalid([FieldProblem("", message)])
    pointers = [f"/{index}" for index in range(len(members))] if isinstance(body, list) else [""]
    problems: list[FieldProblem] = []
    models = [
        read_model(RequestIn, member, pointer, problems)
        for member, pointer in zip(members, pointers, strict=True)
    ]
    if problems:
        raise invalid(problems)
    return [model.to_request() for model in models if model is not None], pointers


def _idempotency_key(call: Call) -> str | None:
    headers = call.request.scope["headers"]
    if not any(name == b"idempotency-key" for name, _ in headers):
        return None
    key: bytes = single_header(headers, b"idempotency-key")
    if not _KEY.fullmatch(key):
        message = f"is no key; send it once, 1 to {LONGEST_KEY_BYTES} printable ASCII characters, no blanks"
        raise invalid([FieldProblem("Idempotency-Key", message)])
    return key.decode("ascii")


async def _submit_answer(call: Call, submitted: Submitted, *, is_list: bool) -> Response:
    status = 201 if submitted.answer is SubmitAnswer.NEW else 200
    if not is_list:
        return await _detail(call, submitted.operation_ids[0], status)
    rows = await queries.operations_of(call.engine.ctx, submitted.operation_ids)
    return json_list([request_out(row) for row in rows], status)


async def _detail(call: Call, operation_id: OperationId, status: int) -> Response:
    view = await queries.request_view(call.engine.ctx, operation_id)
    if view is None:
        raise NotFound(f"there is no request {operation_id}")
    headers = {"Location": f"/api/v1/requests/{operation_id}"} if status == 201 else None
    return json_answer(request_detail_out(view), status, headers)


def _operation_id(call: Call) -> OperationId:
    text: str = call.request.path_params["operation_id"]
    try:
        operation_id = OperationId(uuid.UUID(text))
    except ValueError:
        message = "is no UUID; send the operation_id of a request"
        raise invalid([FieldProblem("operation_id", message)]) from None
    current().know(operation_id=operation_id)
    return operation_id
