"""One relation through its whole table: every state against every verb, in an order drawn by lot.

The table below is written by hand and not taken from `states.py`. After each step every table of the database
is compared: an allowed verb moves the relation as the table says and adds one line of history, a refused one
names the way on and changes nothing at all.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pymysql
import pytest

from gitlab_sync import moves
from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.errors import RelationBusy, StaleWrite
from gitlab_sync.expiry import removal_id
from gitlab_sync.model import BatchRow, OperationId
from gitlab_sync.rounds import RoundResult
from gitlab_sync.states import Action, BindingStatus
from tests.conftest import MakeConnection
from tests.support.engine import new_request, require_no_violations
from tests.support.expiry import expire, in_a_day, let_time_pass
from tests.support.pictures import Change, picture
from tests.support.replicas import LANDED, MEMBERS_FAIL, batch_of, claim_on
from tests.support.rows import end, grid_context

STEPS: Final = 100
ACTIONS: Final = {"apply": "PENDING", "amend": "AMENDING", "remove": "REMOVING"}
MOVES: Final = ("approve", "reject", "close", "retry")
VERBS: Final = (*ACTIONS, *MOVES, "claim", "land", "fail", "expire")
REMEDY: Final = {
    "ABSENT": "apply it first",
    "PENDING": "wait for that to end",
    "AMENDING": "wait for that to end",
    "REMOVING": "wait for that to end",
    "ACTIVE": "amend or remove it",
    "FAILED": "retry or close that one first",
    "REJECTED": "apply it anew",
    "CLOSED": "apply it anew",
    "REMOVED": "apply it anew",
}


@dataclass(frozen=True)
class At:
    """Where the relation is: its state, how far its operation is, and as which action it started."""

    state: str
    stage: str = "ended"
    going: str = ""


def goes_to(at: At, verb: str) -> At | None:
    """Where `verb` leads; None: it is refused or does nothing."""
    if verb in ACTIONS:
        starts = ("ACTIVE",) if verb != "apply" else ("ABSENT", "REJECTED", "CLOSED", "REMOVED")
        return At(ACTIONS[verb], "asked", ACTIONS[verb]) if at.state in starts else None
    if verb == "expire":
        return At("REMOVING", "queued", "REMOVING") if at.state == "ACTIVE" else None
    withdrawn = {"reject": "REJECTED", "close": "CLOSED"}
    left = withdrawn.get(verb, "") if at.going == "PENDING" else "ACTIVE"
    landed = "REMOVED" if at.going == "REMOVING" else "ACTIVE"
    return {
        ("asked", "approve"): replace(at, stage="queued"),
        ("asked", "reject"): At(left),
        ("asked", "close"): At(left),
        ("queued", "close"): At(left),
        ("queued", "claim"): replace(at, stage="merging"),
        ("merging", "land"): At(landed),
        ("merging", "fail"): replace(at, state="FAILED", stage="failed"),
        ("failed", "retry"): replace(at, state=at.going, stage="queued"),
        ("failed", "close"): At(left),
    }.get((at.stage, verb))


@dataclass
class Walk:
    """The relation on its way: what holds it, what made it active, what has been asked for at its end."""

    ctx: Context
    look: pymysql.Connection[Any]
    at: At = field(default_factory=lambda: At("ABSENT"))
    operation_id: OperationId | None = None
    made_active_by: OperationId | None = None
    batch: BatchRow | None = None
    ended: set[OperationId] = field(default_factory=set)
    history: list[str] = field(default_factory=list)

    async def step(self, verb: str) -> None:
        """Try `verb`, and hold what became of every table against the table of this file."""
        wanted, before = self._wanted(verb), picture(self.look)
        is_done = await self._try(verb, is_allowed=wanted is not None)
        after = picture(self.look)
        assert is_done == (wanted is not None), (self.at, verb)
        if wanted is None:
            assert after == before, (self.at, verb)
            return
        added = Change(before, after).added("binding_history")
        names = [BindingStatus(row["to_status"]).name for row in added]
        assert names == ([wanted.state] if wanted.state != self.at.state else []), (self.at, verb)
        self.history += names
        self._follow(wanted)
        [row] = after["binding"]
        assert BindingStatus(row["status"]).name == wanted.state
        let_time_pass(self.look)

    def _wanted(self, verb: str) -> At | None:
        wanted = goes_to(self.at, verb)
        if verb == "expire" and self.made_active_by in self.ended:
            return None
        return wanted

    def _follow(self, wanted: At) -> None:
        if wanted.state == "ACTIVE" and self.at.stage == "merging":
            self.made_active_by = self.operation_id
        self.at = wanted

    async def _try(self, verb: str, *, is_allowed: bool) -> bool:
        if verb in ACTIONS:
            return await self._ask(verb)
        if verb in MOVES:
            return await self._move(verb)
        if verb == "expire":
            return await self._expire()
        if verb == "claim":
            return await self._claim()
        if not is_allowed or self.batch is None:
            return False  # there is no running batch to be settled
        await end(self.ctx, self.batch, LANDED if verb == "land" else MEMBERS_FAIL)
        return True

    async def _ask(self, verb: str) -> bool:
        until = None if verb == "remove" else in_a_day()
        end_edits = ({"op": "delete", "path": "access/item-0.txt"},) if verb == "amend" else None
        request = new_request(action=Action[verb.upper()], expires_at=until, on_expiry=end_edits)
        try:
            await submit(self.ctx, [request], caller="portal")
        except RelationBusy as refused:
            self._require_way_on(refused)
            return False
        self.operation_id = request.operation_id
        return True

    async def _move(self, verb: str) -> bool:
        if self.operation_id is None:
            return False
        try:
            await getattr(moves, verb)(self.ctx, self.operation_id, actor="olga")
        except StaleWrite as refused:
            told = (refused.present["operation_id"], refused.present["status"] in str(refused))
            return told != (str(self.operation_id), True)  # a refusal that says less counts as done
        return True

    def _require_way_on(self, refused: RelationBusy) -> None:
        """The refusal says where the relation is, which operation brought it there, and what to do."""
        assert (refused.status, refused.operation_id) == (self.at.state, self.operation_id)
        assert REMEDY[self.at.state] in str(refused)
        assert self.operation_id is None or str(self.operation_id) in str(refused)

    async def _expire(self) -> bool:
        if not await expire(self.ctx):
            return False
        assert self.made_active_by is not None
        self.ended.add(self.made_active_by)
        self.operation_id = removal_id(self.made_active_by)
        return True

    async def _claim(self) -> bool:
        report = await claim_on(self.ctx)
        if report.result is not RoundResult.CLAIMED or report.batch_id is None:
            return False
        self.batch = await batch_of(self.ctx, report.batch_id)
        return True


async def test_a_relation_walks_its_whole_table_and_remembers_every_step(
    database_url: str, connect: MakeConnection
) -> None:
    """Verbs by lot, every refusal checked at every stop; the history read at the end is the walk itself."""
    seed = random.randrange(10**9)  # drawn from the seed of the run, which the end of the run prints too
    print(f"seed {seed}")
    lot, look = random.Random(seed), connect()
    async with grid_context(database_url) as ctx:
        walk = Walk(ctx, look)
        for _ in range(STEPS):
            allowed = [verb for verb in VERBS if goes_to(walk.at, verb)]
            verb = lot.choice(allowed if lot.random() < 0.6 else VERBS)
            await walk.step(verb)
        [row] = picture(look)["binding"]
        assert row["version"] == len(walk.history)
        lives = picture(look)["binding_history"]
        assert [BindingStatus(one["to_status"]).name for one in lives] == walk.history
        assert [one["version"] for one in lives] == list(range(1, len(lives) + 1))
        await require_no_violations(ctx)


ROADS: Final = {
    "ABSENT": [],
    "PENDING": ["apply"],
    "ACTIVE": ["apply", "approve", "claim", "land"],
    "FAILED": ["apply", "approve", "claim", "fail"],
    "REJECTED": ["apply", "reject"],
    "CLOSED": ["apply", "close"],
    "AMENDING": ["apply", "approve", "claim", "land", "amend"],
    "REMOVING": ["apply", "approve", "claim", "land", "expire"],
    "REMOVED": ["apply", "approve", "claim", "land", "expire", "claim", "land"],
}


@pytest.mark.parametrize("state", ROADS)
async def test_every_verb_that_is_refused_in_a_state_says_so_and_changes_nothing(
    database_url: str, connect: MakeConnection, state: str
) -> None:
    """The whole row of the table, refusals first; expiry among the verbs."""
    async with grid_context(database_url) as ctx:
        walk = Walk(ctx, connect())
        for verb in ROADS[state]:
            await walk.step(verb)
        assert walk.at.state == state
        refused = [verb for verb in VERBS if goes_to(walk.at, verb) is None]
        assert len(refused) >= len(VERBS) - 4
        for verb in refused:
            await walk.step(verb)
        assert walk.at.state == state
        await require_no_violations(ctx)


@pytest.mark.parametrize("recovery", ["retry", "close"])
@pytest.mark.parametrize("change", [["amend", "approve"], ["remove", "approve"], ["expire"]], ids="-".join)
async def test_a_failed_change_is_recovered_and_never_overwritten(
    database_url: str, connect: MakeConnection, change: list[str], recovery: str
) -> None:
    """Actions and expiry are refused while it is FAILED; retry goes on, close leaves active what was."""
    async with grid_context(database_url) as ctx:
        walk = Walk(ctx, connect())
        for verb in (*ROADS["ACTIVE"], *change, "claim", "fail", *ACTIONS, "expire", "approve", "reject"):
            await walk.step(verb)
        assert walk.at.state == "FAILED"
        await walk.step(recovery)
        assert walk.at.state == (ACTIONS.get(change[0], "REMOVING") if recovery == "retry" else "ACTIVE")
        await require_no_violations(ctx)
