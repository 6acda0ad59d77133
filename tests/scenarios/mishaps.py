"""What happens in each scenario, continued: GitLab, the network and the service itself fail and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import gitlab

from gitlab_sync.states import Via
from tests.scenarios.modes import Mode
from tests.scenarios.service import Meeting, Precipice
from tests.scenarios.stage import Batch, Stage
from tests.scenarios.stories import Story, merged_by_a_person, person_merges

#: On the way of a batch that lands, in its order: where the service is crashed, some of them in each run.
BOUNDARIES: Final = (
    "claim.before_commit",
    "claim.committed",
    "publish.after_commit",
    "publish.after_merge_request",
    "publish.recorded",
    "merge.before_ask",
    "merge.asked",
    "landing.proven",
    "settle.after_batch",
    "settle.committed",
    "clean_up.after_delete",
)
CRASHES: Final = 3
HOUR_S: Final = 3600.0


async def nothing_happens(stage: Stage) -> None:
    """All goes by itself."""
    await stage.ask(2)
    await stage.settled()


async def two_look_at_the_same_instant(stage: Stage) -> None:
    """Both replicas know that it is merged before either may settle."""
    patience_s = 1.0
    meeting = Meeting("landing.proven", patience_s)
    for service in stage.services:
        service.points.use(meeting)
    await merged_by_a_person(stage)


async def merge_hook_before_the_answer(stage: Stage) -> None:
    """The merge call hangs after its effect, while the hook is on its way."""
    await stage.spoil("delay", "PUT", r"/merge_requests/\d+/merge$", place="after", delay_s=0.6, count=1)
    await stage.ask(2)


def answers_lost(place: str) -> Story:
    """The answer to each kind of write is lost once: a batch lands over it, another is closed over it."""

    async def story(stage: Stage) -> None:
        for method, path in _WRITES:
            await stage.spoil("reset", method, path, place=place, count=1)
        await stage.ask(2)
        await stage.settled()
        await stage.until(stage.is_over, "the first batch is cleaned up")
        await stage.spoil("reset", "PUT", r"/merge_requests/\d+$", place=place, count=1)
        await stage.ask(1)

    return story


_WRITES: Final = (
    ("POST", "/repository/commits$"),
    ("POST", "/merge_requests$"),
    ("PUT", r"/merge_requests/\d+/merge$"),
    ("DELETE", "/repository/branches/"),
)


def stuck_in_locked(point: str) -> Story:
    """The merge dies half done; GitLab's own clean-up comes a second later."""

    async def story(stage: Stage) -> None:
        await asyncio.to_thread(stage.control.crash_merges, point, project_id=stage.project_id, unstick_s=1.0)
        await stage.ask(2)

    return story


async def merged_without_a_hook(stage: Stage) -> None:
    """GitLab's worker dies between the merge and the event."""
    await asyncio.to_thread(stage.control.crash_merges, "merged_without_hook", project_id=stage.project_id)
    await stage.ask(2)
    await stage.shown("merged")


async def hook_disabled(stage: Stage) -> None:
    """The receiver fails until the hook is paused for an hour; a merge in it is not told; a test mends it."""
    async with stage.house.clock:
        await stage.ask(2)
        batch = await stage.published()
        await stage.quiet()
        await stage.one.stop()
        if stage.mode is not Mode.POLL:
            await _until_disabled(stage, batch)
        await stage.one.start(stage.token)
        await person_merges(stage, batch)
        stage.is_helped = True
        await stage.settled()
        stage.is_helped = False
    await asyncio.to_thread(_test_hook, stage)
    await stage.ask(1)
    await person_merges(stage, await stage.published(2))
    told = await stage.settled(2)
    assert stage.mode is not Mode.HOOKS or told.via == Via.WEBHOOK, told


async def _until_disabled(stage: Stage, batch: Batch) -> None:
    """Each failure doubles the pause; the clock skips the one before."""
    for _ in range(60):
        await stage.do(stage.control.burst, batch.iid, 3)
        await stage.quiet()
        pause_s = await asyncio.to_thread(_pause_s, stage)
        if pause_s > HOUR_S:
            return
        await asyncio.to_thread(stage.control.advance_clock, max(pause_s, 0.0) + 1.0)
    raise AssertionError("the hook is not disabled by any number of failures")


def _pause_s(stage: Stage) -> float:
    """For how long from now the hook is disabled, by GitLab's clock, which its newest event tells."""
    hook = _hook(stage)
    if hook.alert_status == "executable":
        return 0.0
    mine = [one for one in stage.control.deliveries() if one["hook_id"] == stage.hook_ids[0]]
    return _unix(hook.disabled_until) - _unix(mine[-1]["queued_at"])


def _test_hook(stage: Stage) -> None:
    _hook(stage, lambda hook: hook.test("merge_requests_events"))
    assert _hook(stage).alert_status == "executable", "a test that succeeds enables the hook again"


def _hook(stage: Stage, use: Callable[[Any], object] = lambda _hook: None) -> Any:
    """The hook as GitLab shows it, after doing something with it."""
    with gitlab.Gitlab(stage.house.gitlab.base_url, private_token=stage.token, timeout=20) as gl:
        hook = gl.projects.get(stage.project, lazy=True).hooks.get(stage.hook_ids[0])
        use(hook)
        return hook


def _unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


async def receiver_down_during_the_merge(stage: Stage) -> None:
    """The event meets nobody."""
    await stage.ask(2)
    batch = await stage.published()
    await stage.one.stop()
    await person_merges(stage, batch)
    await stage.quiet()
    await stage.one.start(stage.token)


async def token_revoked_then_replaced(stage: Stage) -> None:
    """Merged while the service cannot see it; the new token comes with a restart."""
    await stage.ask(2)
    batch = await stage.published()
    await asyncio.to_thread(stage.control.revoke_token, stage.token)
    await person_merges(stage, batch)
    await stage.blocked("access_refused")
    await stage.one.stop()
    stage.token = f"{stage.token}-new"
    await asyncio.to_thread(stage.control.add_token, stage.bot, stage.token)
    await stage.one.start(stage.token)


async def storm_of_429(stage: Stage) -> None:
    """With seconds, and without a word about how long."""
    for seed, more in enumerate(({"retry_after": "1"}, {})):
        rule = {"probability": 0.4, "count": 3, "seed": stage.seed + seed, **more}
        await stage.spoil("status", ".*", "", status=429, **rule)
    await stage.ask(2)


async def crashed_at_boundaries(stage: Stage) -> None:
    """Some boundaries of the way, one after the other; each time another life goes on."""
    points = sorted(stage.dice.sample(range(len(BOUNDARIES)), CRASHES))
    fatal = [Precipice(BOUNDARIES[at]) for at in points]
    stage.one.points.use(fatal[0])
    await stage.ask(2)
    for now, then in zip(fatal, [*fatal[1:], None], strict=True):
        await stage.until(now.reached.is_set, f"{now.point} is passed")
        await stage.one.crash()
        stage.one.points.use(then)
        await stage.one.start(stage.token)


async def late_update(stage: Stage) -> None:
    """Updates from before the merge arrive after the settlement: nothing moves any more."""
    await stage.ask(2)
    batch = await stage.published()
    await stage.do(stage.control.burst, batch.iid, 3)
    await person_merges(stage, batch)
    settled = await stage.settled()
    await stage.over()
    await stage.quiet()
    assert stage.batches() == [settled]
