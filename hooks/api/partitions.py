"""The resource `partitions`: list, rounds by hand, pause and resume."""

from __future__ import annotations

from starlette.responses import Response

from gitlab_sync import pausing, queries
from gitlab_sync.read_back import read_back
from gitlab_sync.rounds import partition_of
from gitlab_sync.units import current
from hooks.api.bodies import SMALL_LIMITS, json_body, optional_body, require_model
from hooks.api.cursors import refuse_unknown
from hooks.api.incoming import EmptyIn, PauseIn
from hooks.api.shapes import PartitionListOut, json_answer
from hooks.api.views import partition_out, round_out
from hooks.endpoints import Call


async def list_partitions(call: Call) -> Response:
    """Every configured partition as it stands."""
    refuse_unknown(call.request.query_params, ())
    views = await queries.partitions(call.engine.ctx)
    return json_answer(PartitionListOut(items=[partition_out(view) for view in views]))


async def run_round(call: Call) -> Response:
    """One round now, beside whatever the scheduler does. The result says what it came to."""
    key = _key(call)
    await optional_body(call.request, EmptyIn)
    return json_answer(round_out(await call.engine.run_round(key)))


async def pause(call: Call) -> Response:
    """Rounds claim nothing more until it is resumed."""
    key = _key(call)
    body = require_model(PauseIn, await json_body(call.request, SMALL_LIMITS))
    await pausing.pause(call.engine.ctx, key, reason=body.reason, actor=call.caller.name)
    return await read_back(_present(call, key))


async def resume(call: Call) -> Response:
    """Rounds claim again."""
    key = _key(call)
    await optional_body(call.request, EmptyIn)
    await pausing.resume(call.engine.ctx, key, actor=call.caller.name)
    return await read_back(_present(call, key))


def _key(call: Call) -> str:
    key = partition_of(call.engine.ctx, call.request.path_params["key"]).key
    current().know(partition=key)
    return key


async def _present(call: Call, key: str) -> Response:
    views = await queries.partitions(call.engine.ctx)
    return json_answer(next(partition_out(view) for view in views if view.partition.key == key))
