"""The resource `batches`: list, show, and the operator's retry and fail.

The two moves are answered 202 at once and end in the batch itself: GitLab has to be asked first, and merged
wins.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from gitlab_sync import queries
from gitlab_sync.errors import FieldProblem, NotFound
from gitlab_sync.model import BatchId
from gitlab_sync.states import BatchStatus
from gitlab_sync.store.views import BatchFilter
from gitlab_sync.units import current
from hooks.api.bodies import SMALL_LIMITS, json_body, require_model
from hooks.api.cursors import read_cursor, read_limit, read_status, read_text, refuse_unknown, write_cursor
from hooks.api.incoming import BatchMoveIn
from hooks.api.shapes import AcceptedOut, BatchPageOut, json_answer
from hooks.api.views import batch_detail_out, batch_out
from hooks.endpoints import Call
from hooks.problems import invalid

LIST_PARAMETERS: Final = ("status", "partition", "cursor", "limit")


async def list_batches(call: Call) -> Response:
    """A page of batches, newest first."""
    query = call.request.query_params
    refuse_unknown(query, LIST_PARAMETERS)
    wanted = BatchFilter(
        status=read_status(query, BatchStatus),
        partition=read_text(query, "partition"),
        limit=read_limit(query),
    )
    page = await queries.list_batches(call.engine.ctx, wanted, read_cursor(query))
    items = [batch_out(summary) for summary in page.entries]
    return json_answer(BatchPageOut(items=items, next_cursor=write_cursor(page.next_position)))


async def show_batch(call: Call) -> Response:
    """One batch with everybody who was in it."""
    batch_id = _batch_id(call)
    view = await queries.batch_view(call.engine.ctx, batch_id)
    if view is None:
        raise NotFound(f"there is no batch {batch_id}")
    return json_answer(batch_detail_out(view))


async def retry_batch(call: Call) -> Response:
    """202: the blocked batch goes on."""
    batch_id, body = _batch_id(call), await _move_body(call)
    await call.engine.retry_batch(batch_id, body.version, call.caller.name)
    return json_answer(AcceptedOut(id=batch_id, result="retry"), 202)


async def fail_batch(call: Call) -> Response:
    """202: the batch is being ended; if it turns out to be merged, it lands."""
    batch_id, body = _batch_id(call), await _move_body(call)
    await call.engine.fail_batch(batch_id, body.version, call.caller.name)
    return json_answer(AcceptedOut(id=batch_id, result="fail"), 202)


async def _move_body(call: Call) -> BatchMoveIn:
    return require_model(BatchMoveIn, await json_body(call.request, SMALL_LIMITS))


def _batch_id(call: Call) -> BatchId:
    text: str = call.request.path_params["batch_id"]
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise invalid([FieldProblem("id", "is no number; send the id of a batch")])
    current().know(batch_id=int(text))
    return BatchId(int(text))
