"""What people do in the instance beside the service: push, merge, close, reopen, delete, unlock.

They act through the same rules as the API, with one difference: a person looks at the page until the
merge button is there, so a merge by a person waits for the checks instead of being refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.commit_actions import FileAction
from gitlab_sync.sandbox.simulator.core import Simulator, person
from gitlab_sync.sandbox.simulator.errors import refused
from gitlab_sync.sandbox.simulator.mergeability import detailed_status, start_check
from gitlab_sync.sandbox.simulator.merging import MergeWish, accept, unstick
from gitlab_sync.sandbox.simulator.pushes import pushed
from gitlab_sync.sandbox.simulator.state import MergeRequest, MrState, Project
from gitlab_sync.sandbox.simulator.writing import CommitWish, make_commit

PATIENCE_S = 20.0
_NOT_YET = {"preparing", "unchecked", "checking"}


@dataclass(frozen=True, slots=True)
class Push:
    """A push of changed files, or of a local merge of another branch.

    `modes`: of new files that are links, executable or submodules (their text is the commit), as git has it.
    """

    branch: str
    message: str = "A push"
    files: dict[str, str] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    modes: dict[str, str] = field(default_factory=dict)
    merge: str | None = None
    start_branch: str | None = None


def push(sim: Simulator, project: Project, user: User, wish: Push) -> str:
    """Push and return the branch's new head."""
    if wish.merge is not None:
        return _push_merge(sim, project, user, wish.branch, wish.merge)
    head = project.repo.branch(wish.branch)
    start_sha = head or project.repo.branch(wish.start_branch or project.default_branch)
    present = project.repo.files(start_sha) if start_sha else {}
    actions = [
        FileAction(
            "update" if path in present else "create",
            path,
            None,
            text.encode(),
            None,
            executable=False,
            mode=wish.modes.get(path),
        )
        for path, text in wish.files.items()
    ]
    actions += [FileAction("delete", path, None, None, None, executable=False) for path in wish.deleted]
    start = None if head else wish.start_branch or (project.default_branch if start_sha else None)
    return make_commit(
        sim, project, user, CommitWish(wish.branch, wish.message, actions, start_branch=start)
    ).sha


def merge(sim: Simulator, mr: MergeRequest, user: User) -> None:
    """Merge as soon as it can be merged; raises the refusal if it cannot."""
    start_check(sim, mr)
    sim.clock.wait_for(lambda: detailed_status(mr) not in _NOT_YET, PATIENCE_S)
    accept(sim, mr, user, MergeWish())


def stick_in_locked(sim: Simulator, mr: MergeRequest, for_s: float) -> None:
    """Leave a merge request in `locked`, as a crashed merge does, until a clean-up frees it."""
    if mr.state is not MrState.OPENED:
        raise refused(409, f"the merge request is {mr.state}")
    mr.state = MrState.LOCKED
    sim.clock.after(for_s, lambda: unstick(sim, mr, sim.root_user))


def _push_merge(sim: Simulator, project: Project, user: User, branch: str, source: str) -> str:
    repo = project.repo
    old, head = repo.branch(branch), repo.resolve(source)
    if old is None or head is None:
        raise refused(400, "no such branch")
    tree = repo.merged_tree(old, head)
    if tree is None:
        raise refused(409, "the branches conflict")
    who, message = person(user), f"Merge {source} into {branch}"
    new = repo.write_commit(tree, [old, head], message, author=who, committer=who, at=sim.clock.now())
    pushed(sim, project, branch, new, old, user)
    return new
