"""Publishes a batch: makes its branch, commit and merge request exist.

Find or create, at every step, by derived names.

No transaction is open while GitLab is spoken to. Each fact is recorded once by a guarded write; whoever
loses that write stops and the caller looks again. Members whose edits cannot be applied leave the batch
here, before anything is pushed.

Races considered:
A  two replicas publish one batch: the branch name is derived from the batch, GitLab lets one create it, the
   other adopts; one records, the other meets zero rows.
B  the answer to a write is lost: look at the branch or the merge request and adopt what carries our marker;
   never create twice. Nothing there: the next look tries again.
C  dead between a write and its record: the next replica finds branch and merge request by name and records
   them.
D  the sweep settles meanwhile: every record is guarded by RUNNING and the version; the merge request that
   was opened a moment too late is closed by `reconcile` when it meets a settled batch (its branch is
   deleted, so it cannot land).
E  somebody else's branch under our name: it lacks our marker or our parent: BLOCKED, never overwritten.
F  our branch is deleted before its merge request exists: GitLab says "missing" of a fresh branch too, for up
   to a minute. Two minutes after the push the branch itself is asked for: gone is gone, BLOCKED.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gitlab_sync import policy
from gitlab_sync.batch_writes import confirm_batch, require_won, write_fact
from gitlab_sync.compose import Composition
from gitlab_sync.composing import compose_on
from gitlab_sync.context import Context
from gitlab_sync.db import Session
from gitlab_sync.describe import (
    branch_of,
    carries_marker,
    commit_message,
    merge_request_description,
    merge_request_title,
    project_of,
)
from gitlab_sync.errors import (
    DuplicateKey,
    GitLabRefused,
    GitLabUnavailable,
    InvariantBroken,
    OutcomeUnknown,
    StaleWrite,
)
from gitlab_sync.gateway import Handling
from gitlab_sync.log_words import Event, Unit
from gitlab_sync.memberships import tell_members
from gitlab_sync.model import BatchRow, BranchInfo, MemberRow, MergeRequestInfo, ProjectId
from gitlab_sync.release import leftovers, release, suspects
from gitlab_sync.states import BatchStatus
from gitlab_sync.store import batches, outbox
from gitlab_sync.units import current, unit

CONTENT_REFUSALS: Final = frozenset({400, 413, 422})
SHOWN_WITHIN_S: Final = 120.0


class Published(StrEnum):
    """What publishing came to."""

    PUBLISHED = "published"  # branch, commit and merge request exist and are recorded
    FEWER = "fewer"  # some members left the batch: look again with the others
    NOTHING_TO_LAND = "nothing_to_land"  # every member left the batch: nothing was pushed
    ALREADY_THERE = (
        "already_there"  # the target branch holds everything that was asked for: nothing was pushed
    )
    FOREIGN = "foreign"  # our names are taken by somebody else
    SOURCE_GONE = "source_gone"  # our branch was deleted before its merge request could be opened
    LATER = "later"  # an answer was lost, or GitLab does not show the branch yet: look again


@dataclass(frozen=True, slots=True)
class PublishReport:
    """The answer of `publish`; `detail` is for people."""

    result: Published
    detail: str = ""


async def publish(ctx: Context, batch: BatchRow) -> PublishReport:
    """Carry `batch` to a recorded merge request.

    Raises StaleWrite when somebody moved the batch meanwhile.
    """
    with unit(Unit.PUBLISH, batch_id=batch.id, partition=batch.partition_key) as line:
        report = await _published(ctx, batch)
        line.outcome = report.result
        line.add(detail=None if report.result is Published.PUBLISHED else report.detail)
        return report


async def _published(ctx: Context, batch: BatchRow) -> PublishReport:
    if batch.project_id is None or batch.base_sha is None:
        raise InvariantBroken(f"batch {batch.id} was claimed without a base")
    if batch.head_sha is None:
        report = await _push(ctx, batch, batch.project_id)
        if report is not None:
            return report
        batch = await _reread(ctx, batch)
    return await _open_merge_request(ctx, batch)


async def _push(ctx: Context, batch: BatchRow, project_id: ProjectId) -> PublishReport | None:
    """Make branch and commit exist and record the head. None: done."""
    branch = await ctx.gitlab.branch(project_id, branch_of(batch))
    if branch is not None:
        return await _adopt_branch(ctx, batch, branch)
    members = await ctx.db.read("members", lambda session: batches.select_members(session, batch.id))
    tell_members(ctx, batch, members)
    composition = await compose_on(ctx, batch, project_id, batch.base_sha or "", members)
    releases = leftovers(composition)
    if releases:
        await release(ctx, batch, releases)
        return PublishReport(Published.FEWER, f"{len(releases)} of {len(members)} members left the round")
    if not members:
        return PublishReport(Published.NOTHING_TO_LAND, "every member left the round")
    if not composition.files:
        return PublishReport(Published.ALREADY_THERE, "the target branch already holds what was asked for")
    return await _create_commit(ctx, batch, project_id, members, composition)


async def _create_commit(
    ctx: Context,
    batch: BatchRow,
    project_id: ProjectId,
    members: Sequence[MemberRow],
    composition: Composition,
) -> PublishReport | None:
    await ctx.points.hit("publish.before_commit")
    try:
        commit = await ctx.gitlab.create_commit(
            project_id,
            branch=branch_of(batch),
            start_sha=batch.base_sha or "",
            message=commit_message(batch, members),
            files=composition.files,
            author_name=batch.policy.get("author_name"),
            author_email=batch.policy.get("author_email"),
        )
    except (OutcomeUnknown, GitLabRefused) as error:
        return await _look_at_branch(ctx, batch, members, error)
    await ctx.points.hit("publish.after_commit")
    await _record_head(ctx, batch, commit.sha)
    return None


async def _look_at_branch(
    ctx: Context, batch: BatchRow, members: Sequence[MemberRow], error: OutcomeUnknown | GitLabRefused
) -> PublishReport | None:
    """Race B: the commit may exist although the answer did not say so; a refused one is tried with fewer."""
    branch = await ctx.gitlab.branch(project_of(batch), branch_of(batch))
    if branch is not None:
        return await _adopt_branch(ctx, batch, branch)
    if isinstance(error, OutcomeUnknown):
        return PublishReport(Published.LATER, str(error))
    if error.status not in CONTENT_REFUSALS:
        raise error
    await release(ctx, batch, suspects(members, error))
    return PublishReport(Published.FEWER, str(error))


async def _adopt_branch(ctx: Context, batch: BatchRow, branch: BranchInfo) -> PublishReport | None:
    """Record an existing branch as ours if it is: our marker on a commit right on our base."""
    is_ours = carries_marker(branch.message, batch.marker) and branch.parent_shas == (batch.base_sha,)
    if not is_ours:
        return PublishReport(Published.FOREIGN, f"branch {branch.name} holds {branch.sha}, which is not ours")
    await _record_head(ctx, batch, branch.sha)
    return None


async def _record_head(ctx: Context, batch: BatchRow, head_sha: str) -> None:
    await write_fact(
        ctx, "record_head", batch, lambda session: batches.record_head_if_running(session, batch, head_sha)
    )


async def _open_merge_request(ctx: Context, batch: BatchRow) -> PublishReport:
    project_id = project_of(batch)
    found = await _find_merge_request(ctx, batch, project_id)
    if found is None:
        found = await _create_merge_request(ctx, batch, project_id)
    if isinstance(found, PublishReport):
        return found
    await ctx.points.hit("publish.after_merge_request")
    try:
        await _record_merge_request(ctx, batch, found)
    except DuplicateKey:
        return PublishReport(Published.FOREIGN, f"another batch recorded !{found.iid}: was GitLab restored?")
    return PublishReport(Published.PUBLISHED, found.web_url)


async def _find_merge_request(
    ctx: Context, batch: BatchRow, project_id: ProjectId
) -> MergeRequestInfo | PublishReport | None:
    """The merge request of our branch, whatever its state. A foreign one under our branch's name blocks."""
    found = await ctx.gitlab.merge_requests_of_branch(project_id, branch_of(batch))
    ours = [info for info in found if carries_marker(info.description, batch.marker)]
    if ours:
        return ours[0]
    if found:
        return PublishReport(Published.FOREIGN, f"!{found[0].iid} of our branch does not carry our marker")
    return None


async def _create_merge_request(
    ctx: Context, batch: BatchRow, project_id: ProjectId
) -> MergeRequestInfo | PublishReport:
    members = await ctx.db.read("members", lambda session: batches.select_members(session, batch.id))
    handling = await _handling(ctx, batch)
    await ctx.points.hit("publish.before_merge_request")
    try:
        return await ctx.gitlab.open_merge_request(
            project_id,
            source_branch=branch_of(batch),
            target_branch=str(batch.policy["target_branch"]),
            title=merge_request_title(batch, members),
            description=merge_request_description(batch, members),
            labels=tuple(batch.policy.get("labels", ())),
            handling=handling,
        )
    except (OutcomeUnknown, GitLabRefused) as error:
        found = await _find_merge_request(ctx, batch, project_id)
        if found is not None:
            return found
        if isinstance(error, GitLabRefused):
            raise
        return PublishReport(Published.LATER, str(error))
    except GitLabUnavailable:
        if batch.rested_s < SHOWN_WITHIN_S or await ctx.gitlab.branch(project_id, branch_of(batch)):
            raise
        remedy = f"create it again at {batch.head_sha} and retry the batch"
        return PublishReport(Published.SOURCE_GONE, f"source_branch {branch_of(batch)} is gone: {remedy}")


async def _handling(ctx: Context, batch: BatchRow) -> Handling:
    """How the policy wants the merge request treated.

    A reviewer or assignee whom GitLab does not know is told and left out: a person who has left the company
    must not stop everybody's changes.
    """
    ran_under = policy.recorded(batch.policy)
    wanted = tuple(dict.fromkeys((*ran_under.reviewers, *ran_under.assignees)))
    known = await ctx.gitlab.user_ids(wanted) if wanted else {}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        ctx.log.warning(
            Event.PEOPLE_UNKNOWN,
            batch_id=batch.id,
            partition=batch.partition_key,
            detail=f"GitLab does not know {', '.join(unknown)}: mend the partitions file",
        )
    reviewers = tuple(known[name] for name in ran_under.reviewers if name in known)
    assignees = tuple(known[name] for name in ran_under.assignees if name in known)
    return Handling(reviewers, assignees, ran_under.squash)


async def _record_merge_request(ctx: Context, batch: BatchRow, info: MergeRequestInfo) -> None:
    async def work(session: Session) -> None:
        won = await batches.record_merge_request_if_running(
            session, batch, info.project_id, info.iid, info.web_url
        )
        require_won(won)
        await outbox.insert_batch(session, batch.id, "batch.published", str(batch.version + 1))
        await ctx.points.hit("publish.before_record")

    await ctx.db.transaction("record_merge_request", work, confirm=confirm_batch(batch))
    await ctx.points.hit("publish.recorded")
    line = current()
    line.know(mr_iid=info.iid)
    line.add(head_sha=batch.head_sha, url=info.web_url)


async def _reread(ctx: Context, batch: BatchRow) -> BatchRow:
    present = await ctx.db.read("batch", lambda session: batches.get(session, batch.id))
    if present is None:
        raise InvariantBroken(f"batch {batch.id} has vanished")
    if present.status is not BatchStatus.RUNNING:
        raise StaleWrite(f"batch {batch.id} is {present.status.name} meanwhile")
    return present
