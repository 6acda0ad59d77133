"""Merge modes and what a partition says of its merge requests: trains, people, author, squash, the branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import httpx2
import pytest

from gitlab_sync.context import Context
from gitlab_sync.ending import retry_batch
from gitlab_sync.model import BatchId, BatchRow, Squash
from gitlab_sync.points import FaultPoints
from gitlab_sync.reconcile import Reconciled, reconcile
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.states import BatchStatus, Via
from tests.conftest import MakeConnection
from tests.support.engine import enqueue, require_no_violations
from tests.support.road import (
    BOT_TOKEN,
    PATH,
    batch_of,
    claimed,
    road,
    until,
    until_published,
    until_settled,
)

PROJECT: Final = f"/projects/{PATH.replace('/', '%2F')}"


def ask(simulator: Running, method: str, path: str, **body: Any) -> Any:
    """One call to the simulated GitLab with the bot's token; its JSON."""
    answer = httpx2.request(
        method,
        f"{simulator.base_url}/api/v4{path}",
        headers={"PRIVATE-TOKEN": BOT_TOKEN},
        json=body or None,
        trust_env=False,
    )
    assert answer.status_code < 300, answer.text
    return answer.json()


def let_time_pass(connect: MakeConnection) -> None:
    """A wish to merge lies long enough back to be repeated."""
    with connect().cursor() as cursor:
        cursor.execute("UPDATE merge_batch SET merge_asked_at = created_at - INTERVAL 1 HOUR")


async def until_blocked(
    ctx: Context, batch_id: BatchId, meanwhile: Callable[[], object] = lambda: None
) -> BatchRow:
    """Look until the batch is blocked."""

    async def reached() -> bool:
        meanwhile()
        return await reconcile(ctx, batch_id, via=Via.POLLER) is Reconciled.BLOCKED

    await until(reached, "the batch is blocked")
    return await batch_of(ctx, batch_id)


async def test_a_train_takes_the_batch_and_lands_it(simulator: Running, database_url: str) -> None:
    """Green, boarded with our head, merged by GitLab; the auto-merge flag is never sent."""
    ask(simulator, "PUT", PROJECT, merge_trains_enabled=True, merge_pipelines_enabled=True)
    async with road(simulator, database_url, merge="train") as ctx:
        await enqueue(ctx, 3)
        settled = await until_settled(ctx, await claimed(ctx))
        assert (settled.status, settled.reason_code) == (BatchStatus.SUCCEEDED, "merged")
        assert settled.merge_asks == 1
        assert simulator.control.files(PATH)["access/item-2.txt"] == "item 2\n"
        await require_no_violations(ctx)


async def test_a_project_without_trains_says_how_to_mend_it(simulator: Running, database_url: str) -> None:
    """BLOCKED with the remedy, until an operator has mended the project and says so."""
    async with road(simulator, database_url, merge="train") as ctx:
        await enqueue(ctx, 1)
        batch_id = await claimed(ctx)
        blocked = await until_blocked(ctx, batch_id)
        assert blocked.reason_code == "train_unavailable"
        assert "enable merge trains" in (blocked.reason_text or "")
        assert await reconcile(ctx, batch_id, via=Via.POLLER) is Reconciled.BLOCKED
        ask(simulator, "PUT", PROJECT, merge_trains_enabled=True, merge_pipelines_enabled=True)
        await retry_batch(ctx, batch_id, version=blocked.version, actor="olga")
        await require_no_violations(ctx)


async def test_reviewers_assignees_author_and_labels_are_set(simulator: Running, database_url: str) -> None:
    """By username and by name; somebody whom GitLab does not know is left out and stops nobody."""
    for name in ("rita", "anna"):
        simulator.control.add_user(name, role=30)
    people: dict[str, Any] = {"reviewers": ("rita", "long-gone"), "assignees": ("anna",)}
    people |= {"author_name": "Access Bot", "author_email": "access@example.com", "labels": ("a", "b")}
    async with road(simulator, database_url, merge="manual", **people) as ctx:
        await enqueue(ctx, 1)
        published = await until_published(ctx, await claimed(ctx))
        shown = ask(simulator, "GET", f"{PROJECT}/merge_requests/{published.mr_iid}")
        assert [one["username"] for one in shown["reviewers"]] == ["rita"]
        assert [one["username"] for one in shown["assignees"]] == ["anna"]
        assert sorted(shown["labels"]) == ["a", "b"]
        commit = ask(simulator, "GET", f"{PROJECT}/repository/commits/{published.head_sha}")
        assert (commit["author_name"], commit["author_email"]) == ("Access Bot", "access@example.com")


@pytest.mark.parametrize("squash", Squash)
async def test_the_partition_says_whether_the_project_may_squash(
    simulator: Running, database_url: str, squash: Squash
) -> None:
    """`never` lands our own commit; `project` leaves it to the project, and the content proves it landed."""
    ask(simulator, "PUT", PROJECT, squash_option="default_on")
    async with road(simulator, database_url, squash=squash) as ctx:
        await enqueue(ctx, 2)
        settled = await until_settled(ctx, await claimed(ctx))
        assert settled.status is BatchStatus.SUCCEEDED
        shown = ask(simulator, "GET", f"{PROJECT}/merge_requests/{settled.mr_iid}")
        assert (shown["squash_commit_sha"] is not None) is (squash is Squash.PROJECT)
        await require_no_violations(ctx)


class Branches(FaultPoints):
    """Which of our branches are at GitLab when the settlement is committed."""

    def __init__(self, simulator: Running) -> None:
        self._simulator = simulator
        self.at_settlement: list[str] = []

    async def hit(self, name: str) -> None:
        if name == "settle.committed":
            self.at_settlement += ours(self._simulator)


def ours(simulator: Running) -> list[str]:
    """Branches of ours at GitLab."""
    names = simulator.control.audit()["projects"][PATH]["branches"]
    return [name for name in names if name.startswith("gitlab-sync/")]


async def test_the_branch_of_a_landed_batch_outlives_its_settlement(
    simulator: Running, database_url: str
) -> None:
    """Also where the project removes merged branches by itself: settled first, removed after."""
    ask(simulator, "PUT", PROJECT, remove_source_branch_after_merge=True)
    looking = Branches(simulator)
    async with road(simulator, database_url, points=looking) as ctx:
        await enqueue(ctx, 1)
        settled = await until_settled(ctx, await claimed(ctx))
        assert settled.status is BatchStatus.SUCCEEDED
        assert len(looking.at_settlement) == 1
        assert ours(simulator) == []


async def test_a_token_that_may_not_merge_ends_as_merge_refused(
    simulator: Running, database_url: str, connect: MakeConnection
) -> None:
    """Mergeable all the time, asked five times, 401 each time: BLOCKED; the right restored, it lands."""
    protect = {"name": "main", "push_access_level": 40, "merge_access_level": 40}
    simulator.control.set_role(PATH, "bot", 30)
    ask_as_root(simulator, protect)
    async with road(simulator, database_url) as ctx:
        await enqueue(ctx, 1)
        batch_id = await claimed(ctx)
        await until_published(ctx, batch_id)
        blocked = await until_blocked(ctx, batch_id, meanwhile=lambda: let_time_pass(connect))
        assert (blocked.reason_code, blocked.merge_asks) == ("merge_refused", 5)
        assert "may the token merge" in (blocked.reason_text or "")
        assert await reconcile(ctx, batch_id, via=Via.POLLER) is Reconciled.BLOCKED
        simulator.control.set_role(PATH, "bot", 40)
        await retry_batch(ctx, batch_id, version=blocked.version, actor="olga")
        let_time_pass(connect)
        settled = await until_settled(ctx, batch_id)
        assert settled.status is BatchStatus.SUCCEEDED
        await require_no_violations(ctx)


def ask_as_root(simulator: Running, protect: dict[str, Any]) -> None:
    """Protect the target anew as its owner does."""
    simulator.control.add_user("owner", token="owner-token", role=50)
    url = f"{simulator.base_url}/api/v4{PROJECT}/protected_branches"
    headers = {"PRIVATE-TOKEN": "owner-token"}
    httpx2.delete(f"{url}/main", headers=headers, trust_env=False)
    answer = httpx2.post(url, headers=headers, json=protect, trust_env=False)
    assert answer.status_code == 201, answer.text
