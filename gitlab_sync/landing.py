"""Proves how a batch ended: what GitLab says is compared with what stands on the target branch.

Called once before each settlement, outside any transaction. `merged` is believed when our head (or the
squash commit) is part of the target and the commit that landed holds the touched files as composed (one
comparison where nothing else had moved). A merged one of which no commit is to be found there (a train, or
GitLab itself, has rebased it, or history was written anew) is landed if all that it changes is there. So is
a batch that would settle FAILED. A handful of calls, whatever the number of files up to some
hundred; none for a batch that never pushed.

Where the two disagree about a merged one, nothing is told as merged: the members go round again (what is
there lands as it is), and the partition is frozen with the settlement, so that no round works on ground
that nobody understands.

Never decides from half an answer: GitLab away means look again later, and a target branch that is gone means
that a merge can be proven by nobody.

Races considered:
A  the target moves between merge and look: a merged one is compared at the commit that landed, which does
   not move.
B  the target had moved before the merge, on the same file: three-way merged, neither side's content; there
   reachability is what is asked (`contents.unexplained`).
C  somebody brings our content to the target after this look and before the settlement: settled as FAILED,
   and the next round finds everything there already.
D  two lookers: both prove the same; one settles, and with it freezes.
E  our commit is on the target and was changed there by a later one: it landed. Later changes are theirs.
F  somebody resolves a conflict on our branch in the target's favour and merges: the target's own changes
   explain nothing then, since of ours nothing is left in that file.
G  the record of a rebuild is lost (we died between push and record), and exactly that head is merged before
   anybody looks. It is ours by what it holds, so it is what is compared, on its own base: where the target
   had brought a part of our change itself, a comparison with the head we know would call that part dropped
   and freeze a partition for nothing.
H  the node of GitLab's that answers lags behind the merge, by a second as a rule: neither the commit nor its
   content is on the target there. So in the first minute after a merge a "no" to that is no answer: looked
   at again, frozen afterwards. What the landed commit holds is no such question, since no commit changes.
I  the target branch is deleted or renamed after the merge: of no commit can be said then that it is part of
   it, and that is no mismatch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final

from gitlab_sync.compose import paths_touched
from gitlab_sync.context import Context
from gitlab_sync.errors import GitLabRefused, GitLabUnavailable
from gitlab_sync.log_words import Event
from gitlab_sync.model import BatchRow, ProjectId
from gitlab_sync.recognising import our_commit
from gitlab_sync.settlement import Ending
from gitlab_sync.states import BatchStatus
from gitlab_sync.store import batches
from gitlab_sync.verdict import MemberFate, SettleReason
from gitlab_sync.verdict.contents import Blobs, changed_between, dropped, is_as_composed, strays, unexplained

SHOWN_PATHS: Final = 5
LAGGING_S: Final = 60.0


class NotYet(StrEnum):
    """Why a batch cannot be ended now.

    MERGING: GitLab does not say yet. UNPROVEN: it says merged, and does not show it yet (race H).
    TARGET_GONE: nobody can say.
    """

    MERGING = "merging"
    UNPROVEN = "unproven"
    TARGET_GONE = "target_gone"


@dataclass(frozen=True, slots=True)
class _Pushed:
    """What a batch has pushed: where, from which base, and each path that its commit changes."""

    project_id: ProjectId
    target: str
    head_sha: str
    base: Blobs
    composed: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class _Compared:
    """The paths that a commit does not hold as composed, what it holds, and what its first parent held."""

    strays: tuple[str, ...]
    there: Blobs
    before: Blobs


async def proven(ctx: Context, batch: BatchRow, how: Ending) -> Ending | NotYet:
    """Return how the batch truly ends, given how it seems to. Raises GitLabError if GitLab does not say.

    TARGET_GONE, UNPROVEN: it was merged, and the branch is gone, or shows nothing of it yet.
    """
    truth: Ending | NotYet
    if batch.head_sha is None or batch.project_id is None or batch.base_sha is None:
        return how
    match how.reason_code:
        case SettleReason.MERGED:
            truth = await _of_merged(ctx, batch, how)
        case SettleReason.MERGED_OTHER_HEAD:
            truth = await _of_other_head(ctx, batch, how)
        case _ if how.after is BatchStatus.FAILED:
            truth = await _of_failed(ctx, batch, how)
        case _:
            truth = how
    await ctx.points.hit("landing.proven")
    return truth


async def _of_merged(ctx: Context, batch: BatchRow, how: Ending) -> Ending | NotYet:
    head, landed = str(batch.head_sha), how.landed_sha or str(batch.head_sha)
    if not await _is_part(ctx, batch, head) and (landed == head or not await _is_part(ctx, batch, landed)):
        if await _is_target_gone(ctx, batch):
            return NotYet.TARGET_GONE
        there = await _by_content(ctx, batch, how)
        if there is None and _may_lag(batch, how):
            return NotYet.UNPROVEN
        return there or _mismatch(batch, how, f"{landed} is not part of the target branch")
    if landed == head or await _is_same_tree(ctx, batch, landed):
        return how
    pushed = await _pushed(ctx, batch)
    compared = await _compared(ctx, pushed, landed)
    wrong = unexplained(compared.strays, pushed.base, compared.before)
    return _mismatch(batch, how, _told(wrong, landed)) if wrong else how


async def _of_other_head(ctx: Context, batch: BatchRow, how: Ending) -> Ending | NotYet:
    """Race G; or somebody pushed to our branch and merged: landed if all that we composed came with it."""
    ours = await our_commit(ctx, batch, how.merged_head) if how.merged_head else None
    if ours is not None:
        as_pushed = replace(batch, head_sha=ours.sha, base_sha=ours.parent_shas[0])
        merged = replace(how, after=BatchStatus.SUCCEEDED, reason_code=SettleReason.MERGED)
        return await _of_merged(ctx, as_pushed, merged)
    if await _is_target_gone(ctx, batch):
        return NotYet.TARGET_GONE
    pushed = await _pushed(ctx, batch)
    landed = how.landed_sha or pushed.head_sha
    compared = await _compared(ctx, pushed, landed)
    lost = dropped(compared.strays, compared.there, compared.before)
    wrong = tuple(sorted({*unexplained(compared.strays, pushed.base, compared.before), *lost}))
    is_there = await _is_part(ctx, batch, landed)
    if not is_there and _may_lag(batch, how):
        return NotYet.UNPROVEN
    if wrong or not is_there:
        text = _told(wrong, landed) if wrong else f"{landed} is not part of the target branch"
        return replace(how, reason_text=text, freeze=_frozen(batch, text))
    return _landed_otherwise(how, landed)


async def _of_failed(ctx: Context, batch: BatchRow, how: Ending) -> Ending:
    """Closed, deleted, given up: our commit, or everything it changes, may be on the target all the same."""
    head = str(batch.head_sha)
    if await _is_part(ctx, batch, head):
        return _landed_otherwise(how, head)
    return await _by_content(ctx, batch, how) or how


async def _by_content(ctx: Context, batch: BatchRow, how: Ending) -> Ending | None:
    """Landed, if the target's tip holds everything as composed. None: it does not, or nobody can tell."""
    try:
        pushed = await _pushed(ctx, batch)
    except GitLabRefused as refused:
        if refused.status != 404:
            raise
        return None  # nothing refers to our commit any more and it is gone: nothing to compare with
    tip = await ctx.gitlab.branch(pushed.project_id, pushed.target)
    if tip is None:
        return None
    there = await ctx.gitlab.blob_ids(pushed.project_id, tip.sha, list(pushed.composed))
    return _landed_otherwise(how, tip.sha) if is_as_composed(pushed.composed, there) else None


async def _is_same_tree(ctx: Context, batch: BatchRow, landed: str) -> bool:
    """Only a short way: GitLab may be unable to compare two trees that are far apart, each time anew."""
    try:
        return await ctx.gitlab.is_same_tree(batch.project_id or ProjectId(0), str(batch.head_sha), landed)
    except (GitLabUnavailable, GitLabRefused) as error:
        ctx.log.info(Event.COMPARISON_MISSING, batch_id=batch.id, detail=str(error))
        return False


def of_lost_target(batch: BatchRow, text: str) -> Ending:
    """How it ends where nobody waits for the branch any more: nobody is told merged, and nobody is blamed."""
    told = f"{text}: merged into {batch.policy['target_branch']!r}, which is gone"
    return Ending(BatchStatus.FAILED, SettleReason.TARGET_GONE, told, members=MemberFate.INNOCENT)


async def is_on_target(ctx: Context, batch: BatchRow) -> bool:
    """Whether our commit is part of the target branch, by whatever way it came there."""
    return batch.head_sha is not None and await _is_part(ctx, batch, batch.head_sha)


async def _is_target_gone(ctx: Context, batch: BatchRow) -> bool:
    """Asked only where a merge cannot be proven otherwise (race I)."""
    target = str(batch.policy["target_branch"])
    return batch.project_id is not None and await ctx.gitlab.branch(batch.project_id, target) is None


def _may_lag(batch: BatchRow, how: Ending) -> bool:
    """Race H, by the database's clock at the read; a merge of no known time was long ago."""
    if how.merged_at is None:
        return False
    now = batch.created_at + timedelta(seconds=batch.age_s)
    return abs((now - how.merged_at).total_seconds()) < LAGGING_S


async def _is_part(ctx: Context, batch: BatchRow, sha: str) -> bool:
    if batch.project_id is None:
        return False
    target = str(batch.policy["target_branch"])
    return await ctx.gitlab.contains(batch.project_id, branch=target, sha=sha)


async def _pushed(ctx: Context, batch: BatchRow) -> _Pushed:
    project_id, base_sha, head_sha = (
        batch.project_id or ProjectId(0),
        batch.base_sha or "",
        str(batch.head_sha),
    )
    members = await ctx.db.read("members", lambda session: batches.select_members(session, batch.id))
    paths = paths_touched(members)
    base = await ctx.gitlab.blob_ids(project_id, base_sha, paths)
    head = await ctx.gitlab.blob_ids(project_id, head_sha, paths)
    composed = changed_between(base, head, paths)
    return _Pushed(project_id, str(batch.policy["target_branch"]), head_sha, base, composed)


async def _compared(ctx: Context, pushed: _Pushed, landed: str) -> _Compared:
    there = await ctx.gitlab.blob_ids(pushed.project_id, landed, list(pushed.composed))
    wrong = strays(pushed.composed, there)
    if not wrong:
        return _Compared((), there, pushed.base)
    parents = (await ctx.gitlab.commit(pushed.project_id, landed)).parent_shas
    if not parents:
        return _Compared(wrong, there, pushed.base)
    return _Compared(wrong, there, await ctx.gitlab.blob_ids(pushed.project_id, parents[0], wrong))


def _landed_otherwise(how: Ending, landed: str) -> Ending:
    return Ending(
        BatchStatus.SUCCEEDED,
        SettleReason.LANDED_OTHERWISE,
        how.reason_code,
        landed_sha=landed,
        merged_at=how.merged_at,
    )


def _mismatch(batch: BatchRow, how: Ending, text: str) -> Ending:
    return Ending(
        BatchStatus.FAILED,
        SettleReason.LANDED_MISMATCH,
        text,
        merged_at=how.merged_at,
        members=MemberFate.INNOCENT,
        freeze=_frozen(batch, text),
    )


def _frozen(batch: BatchRow, text: str) -> str:
    told = f"batch {batch.id} is merged, but the target branch does not hold what was composed"
    return f"{told}: {text}"


def _told(wrong: tuple[str, ...], landed: str) -> str:
    shown = ", ".join(wrong[:SHOWN_PATHS])
    more = f" and {len(wrong) - SHOWN_PATHS} more" if len(wrong) > SHOWN_PATHS else ""
    return f"{landed} does not hold as composed: {shown}{more}"
