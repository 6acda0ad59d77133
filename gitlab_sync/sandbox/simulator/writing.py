"""Makes a commit on a branch, for the commit call, the file calls and people who push.

Branch and commit come into being in one step: until `pushed` moves the ref, nothing of them is visible.
"""

from __future__ import annotations

from dataclasses import dataclass

from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.commit_actions import FileAction, apply_actions
from gitlab_sync.sandbox.simulator.core import Simulator, person
from gitlab_sync.sandbox.simulator.errors import refused
from gitlab_sync.sandbox.simulator.git import Commit, Person
from gitlab_sync.sandbox.simulator.pushes import pushed
from gitlab_sync.sandbox.simulator.state import Project


@dataclass(frozen=True, slots=True)
class CommitWish:
    """What to commit, where, and from where on."""

    branch: str
    message: str
    actions: list[FileAction]
    start_branch: str | None = None
    start_sha: str | None = None
    force: bool = False
    author: Person | None = None


def make_commit(sim: Simulator, project: Project, user: User, wish: CommitWish) -> Commit:
    """Create the commit and move the branch; raises the 400 of whatever does not fit."""
    repo = project.repo
    if not repo.valid_branch_name(wish.branch):
        raise refused(400, "Branch name is invalid")  # wording unverified
    old = repo.branch(wish.branch)
    start = _start_of(project, wish, old)
    files = apply_actions(repo, start, wish.actions)
    committer = person(user)
    sha = repo.write_commit(
        repo.write_tree(files),
        [start] if start else [],
        wish.message,
        author=wish.author or committer,
        committer=committer,
        at=sim.clock.now(),
    )
    pushed(sim, project, wish.branch, sha, old, user)
    return repo.commit(sha)


def _start_of(project: Project, wish: CommitWish, old: str | None) -> str | None:
    """Return the parent of the new commit; None: the very first commit of an empty repository."""
    repo = project.repo
    if wish.start_branch is None and wish.start_sha is None:
        if old is None and repo.branches():
            raise refused(400, "You can only create or edit files when you are on a branch")
        return old
    if old is not None and not wish.force and wish.start_branch != wish.branch:
        raise refused(
            400,
            f"A branch called '{wish.branch}' already exists. Switch to that branch in order to make changes",
        )
    start = repo.branch(wish.start_branch) if wish.start_branch else repo.resolve(wish.start_sha or "")
    if start is None:
        raise refused(400, f"Cannot find start {wish.start_branch or wish.start_sha}")  # wording unverified
    return start
