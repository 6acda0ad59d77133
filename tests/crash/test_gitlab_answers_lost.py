"""GitLab resets the connection of a write, before or after it was done: it happens once."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.crash_flows import STEPS, Flow, Journal, take_steps
from tests.support.crash_runs import House, MakeHouse, for_each, require_same_end, scene
from tests.support.crash_stage import End

pytestmark = pytest.mark.timeout(600)  # many runs in one test, on a machine that others use too

WRITES: Final[dict[Flow, dict[str, tuple[str, str]]]] = {
    Flow.LAND: {
        "commit": ("POST", "/repository/commits$"),
        "open": ("POST", "/merge_requests$"),
        "merge": ("PUT", r"/merge_requests/\d+/merge$"),
        "delete branch": ("DELETE", "/repository/branches/"),
    },
    Flow.RED: {
        "close": ("PUT", r"/merge_requests/\d+$"),
        "delete branch": ("DELETE", "/repository/branches/"),
    },
}
PLACES: Final = ("before", "after")


@pytest.mark.parametrize("flow", WRITES, ids=str)
async def test_a_write_whose_answer_is_lost_happens_once(flow: Flow, make_house: MakeHouse) -> None:
    """Each kind of write, cut before and after its effect: the end is the same as when all answers come."""

    async def run(house: House, case: tuple[str, str], expected: End) -> None:
        write, place = case
        method, path = WRITES[flow][write]
        async with scene(house, f"GitLab's answer lost {place} the effect") as (stage, score):
            rule = house.gitlab.control.add_fault(
                "reset", method=method, path=f"/projects/{stage.project_id}{path}", place=place, count=1
            )
            async with stage.context() as ctx:
                await take_steps(ctx, flow, STEPS[flow][:-1], Journal(house.folder / "-".join(case)))
                score.acknowledged = score.operations
                await stage.finish(ctx)
                fired = {one["id"]: one["fired"] for one in house.gitlab.control.faults()}
                assert fired[rule["id"]] == 1
                await require_same_end(stage, ctx, expected, score)

    await for_each(make_house(flow), [(write, place) for write in WRITES[flow] for place in PLACES], run)
