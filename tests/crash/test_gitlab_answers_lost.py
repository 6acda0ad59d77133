"""GitLab resets the connection of a call, before or after it was done: what it was to do happens once."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.crash_flows import STEPS, Flow, Journal, take_steps
from tests.support.crash_runs import House, MakeHouse, for_each, require_same_end, scene
from tests.support.crash_stage import End

pytestmark = pytest.mark.timeout(600)  # many runs in one test, on a machine that others use too

#: Method, path, and which such call of the flow is hit.
CALLS: Final[dict[Flow, dict[str, tuple[str, str, int]]]] = {
    Flow.LAND: {
        "commit": ("POST", "/repository/commits$", 1),
        "open": ("POST", "/merge_requests$", 1),
        "merge": ("PUT", r"/merge_requests/\d+/merge$", 1),
        "read what landed": ("GET", "/repository/tree$", 1),
        "delete branch": ("DELETE", "/repository/branches/", 1),
    },
    Flow.RED: {
        "close": ("PUT", r"/merge_requests/\d+$", 1),
        "delete branch": ("DELETE", "/repository/branches/", 1),
    },
    Flow.REBUILD: {"push anew": ("POST", "/repository/commits$", 2)},
    Flow.TRAIN: {
        "board": ("POST", r"/merge_trains/merge_requests/\d+$", 1),
        "see the car": ("GET", r"/merge_trains/merge_requests/\d+$", 1),
    },
}
PLACES: Final = ("before", "after")


@pytest.mark.parametrize("flow", CALLS, ids=str)
async def test_a_call_whose_answer_is_lost_happens_once(flow: Flow, make_house: MakeHouse) -> None:
    """Each kind of call, cut before and after its effect: the end is the same as when all answers come."""

    async def run(house: House, case: tuple[str, str], expected: End) -> None:
        call, place = case
        method, path, nth = CALLS[flow][call]
        async with scene(house, f"GitLab's answer lost {place} the effect") as (stage, score):
            rule = house.gitlab.control.add_fault(
                "reset", method=method, path=f"/projects/{stage.project_id}{path}", place=place, nth=nth
            )
            async with stage.context() as ctx:
                await take_steps(ctx, flow, STEPS[flow][:-1], Journal(house.folder / "-".join(case)))
                score.acknowledged = score.operations
                await stage.finish(ctx)
                fired = {one["id"]: one["fired"] for one in house.gitlab.control.faults()}
                assert fired[rule["id"]] == 1
                await require_same_end(stage, ctx, expected, score)

    await for_each(make_house(flow), [(call, place) for call in CALLS[flow] for place in PLACES], run)
