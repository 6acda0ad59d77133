"""Opens, edits and deletes merge requests.

A new one is not ready: it is `preparing` until its diff exists, and only then the `open` event goes out
and the pipeline starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.closing import close, refuse_twin, reopen
from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.errors import bad_request, refused
from gitlab_sync.sandbox.simulator.history import ResourceKind, note_event
from gitlab_sync.sandbox.simulator.hook_events import merge_request_changed
from gitlab_sync.sandbox.simulator.mergeability import forget_one, start_check
from gitlab_sync.sandbox.simulator.pipelines import start_for
from gitlab_sync.sandbox.simulator.state import Label, MergeRequest, MergeStatus, Milestone, MrState, Project
from gitlab_sync.sandbox.simulator.versions import note_version

TITLE_CHARS = 255
DESCRIPTION_CHARS = 1_048_576


@dataclass(frozen=True, slots=True)
class MrWish:
    """What the creation call asked for."""

    source_branch: str
    target_branch: str
    title: str
    description: str = ""
    labels: list[str] = field(default_factory=list)
    squash: bool | None = None
    remove_source: bool | None = None
    assignees: list[User] = field(default_factory=list)
    reviewers: list[User] = field(default_factory=list)


def open_merge_request(sim: Simulator, project: Project, user: User, wish: MrWish) -> MergeRequest:
    """Record a merge request; its diff, its event and its pipeline follow."""
    head, target = _branch_heads(project, wish)
    check_texts(wish.title, wish.description)
    refuse_twin(project, wish.source_branch, wish.target_branch)
    now = sim.clock.now()
    project.last_iid += 1
    settings = project.settings
    mr = MergeRequest(
        id=sim.world.number("merge_request"),
        iid=project.last_iid,
        project=project,
        title=wish.title,
        description=wish.description,
        source_branch=wish.source_branch,
        target_branch=wish.target_branch,
        author=user,
        created_at=now,
        updated_at=now,
        head_sha=head,
        base_sha=project.repo.merge_base(target, head) or target,
        start_sha=target,
        squash=settings["squash_option"] in ("always", "default_on") if wish.squash is None else wish.squash,
        remove_source=bool(wish.remove_source),
        assignees=wish.assignees,
        reviewers=wish.reviewers,
    )
    mr.labels = take_labels(sim, project, wish.labels)
    _note_labels(sim, mr, user, _pair([], mr.labels))
    project.merge_requests[mr.iid] = mr
    _keep_head(mr)
    note_version(sim, mr)
    sim.clock.after(sim.timings.prepare_s, lambda: _prepared(sim, mr, user))
    return mr


def edit(sim: Simulator, mr: MergeRequest, user: User, wish: Mapping[str, Any]) -> None:
    """Change fields and state; one `update` event tells what changed."""
    check_texts(wish.get("title", mr.title), wish.get("description", mr.description))
    changes: dict[str, Any] = {}
    for name in (
        "title",
        "description",
        "target_branch",
        "squash",
        "remove_source",
        "assignees",
        "reviewers",
        "milestone",
    ):
        if name in wish and getattr(mr, name) != wish[name]:
            _change(mr, name, wish[name], changes)
    if "milestone" in changes:
        _note_milestones(sim, mr, user, changes["milestone"])
    if "labels" in wish and sorted(wish["labels"]) != sorted(mr.labels):
        _change(mr, "labels", take_labels(sim, mr.project, wish["labels"]), changes)
        _note_labels(sim, mr, user, changes["labels"])
    if changes:
        mr.updated_at = mr.edited_at = sim.clock.now()
        mr.edited_by = user
        if "target_branch" in changes:
            forget_one(mr)
        merge_request_changed(sim, mr, "update", user, changes=_shown(changes))
    _move(sim, mr, user, wish.get("state_event"))


def delete(mr: MergeRequest) -> None:
    """Make a merge request vanish; no event tells of it."""
    del mr.project.merge_requests[mr.iid]


def take_labels(sim: Simulator, project: Project, titles: list[str]) -> list[str]:
    """Return the titles without repeats, creating labels the project does not have yet."""
    wanted = list(dict.fromkeys(title for title in titles if title))
    for title in wanted:
        if title not in project.labels:
            project.labels[title] = Label(sim.world.number("label"), title, sim.clock.now())
    return wanted


def check_texts(title: str, description: str) -> None:
    """Refuse titles and descriptions that are too long, and empty titles."""
    if not title.strip():
        raise refused(400, {"title": ["can't be blank"]})
    if len(title) > TITLE_CHARS:
        raise refused(400, {"title": [f"is too long (maximum is {TITLE_CHARS} characters)"]})
    if len(description) > DESCRIPTION_CHARS:
        raise refused(400, {"description": [f"is too long (maximum is {DESCRIPTION_CHARS} characters)"]})


def _branch_heads(project: Project, wish: MrWish) -> tuple[str, str]:
    if wish.source_branch == wish.target_branch:
        raise refused(422, ["You can't use same project/branch for source and target"])
    head, target = project.repo.branch(wish.source_branch), project.repo.branch(wish.target_branch)
    if head is None:
        raise refused(400, {"source_branch": ["does not exist"]})  # status and wording unverified
    if target is None:
        raise refused(400, {"target_branch": ["does not exist"]})  # status and wording unverified
    return head, target


def _prepared(sim: Simulator, mr: MergeRequest, user: User) -> None:
    if mr.iid not in mr.project.merge_requests:
        return
    mr.prepared_at = sim.clock.now()
    mr.changes_count = len(mr.project.repo.changes(mr.base_sha, mr.head_sha))
    mr.merge_status = MergeStatus.UNCHECKED
    merge_request_changed(sim, mr, "open", user, changes={"merge_status": _pair("preparing", "unchecked")})
    if mr.state is MrState.OPENED:
        start_for(sim, mr, user)
        start_check(sim, mr)


def _note_labels(sim: Simulator, mr: MergeRequest, user: User, pair: dict[str, list[str]]) -> None:
    before, after = set(pair["previous"]), set(pair["current"])
    for title in sorted(after - before):
        note_event(sim, mr, user, ResourceKind.LABEL, what=title)
    for title in sorted(before - after):
        note_event(sim, mr, user, ResourceKind.LABEL, what=title, action="remove")


def _note_milestones(sim: Simulator, mr: MergeRequest, user: User, pair: dict[str, Milestone | None]) -> None:
    for side, action in (("previous", "remove"), ("current", "add")):
        row = pair[side]
        if row is not None:
            note_event(sim, mr, user, ResourceKind.MILESTONE, what=str(row.id), action=action)


def _keep_head(mr: MergeRequest) -> None:
    mr.project.repo.keep(f"refs/merge-requests/{mr.iid}/head", mr.head_sha)


def _change(mr: MergeRequest, name: str, value: Any, changes: dict[str, Any]) -> None:
    changes[name] = _pair(getattr(mr, name), value)
    setattr(mr, name, value)


def _shown(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the changes as an event shows them: people and labels as objects with their names."""
    return {name: {side: _plain(value) for side, value in pair.items()} for name, pair in changes.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Milestone):
        return value.id
    if not isinstance(value, list):
        return value
    return [
        {"id": item.id, "username": item.username} if isinstance(item, User) else {"title": item}
        for item in value
    ]


def _pair(previous: Any, current: Any) -> dict[str, Any]:
    return {"previous": previous, "current": current}


def _move(sim: Simulator, mr: MergeRequest, user: User, state_event: str | None) -> None:
    match state_event:
        case None:
            return
        case "close":
            close(sim, mr, user)
        case "reopen":
            reopen(sim, mr, user)
        case _:
            raise bad_request("state_event does not have a valid value")
