"""What the engine may ask of GitLab: the port that publish, reconcile and settlement's callers speak to.

Two implementations: `gitlab_client` (the real one) and stand-ins in tests. Plain values of `model` in and
out; nobody here knows of HTTP.

Every method raises, and raises nothing else:
- GitLabUnavailable: nothing was changed, try again later. Reads also end here after their own retries, and
  every call ends here at once while the host has asked for a pause (`retry_after_s` says how long).
- GitLabRefused: GitLab understood and refused; repeating does not help. Carries the status and
  GitLab's own text.
- OutcomeUnknown: a write whose answer is lost. Look at GitLab before doing anything else, and adopt what
  is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from gitlab_sync.model import (
    BranchInfo,
    CommitInfo,
    ComposedFile,
    FileContent,
    MergeRequestInfo,
    MrIid,
    ProjectId,
    ProjectInfo,
    Squash,
)
from gitlab_sync.target_tree import TreeEntry


class MergeAnswer(StrEnum):
    """What GitLab said to "merge this head". Neither is proof: re-read the MR and believe only its state.

    ACCEPTED: it took the order; the MR may still be locked, or, with a merge that runs later, opened.
    NO_TRAIN: only of a wish to board: this project has no merge trains, or the token may not use them.
    NOT_NOW: not mergeable, head moved, another answer is in the way, or no right to merge: the MR tells
    which.
    """

    ACCEPTED = "accepted"
    NO_TRAIN = "no_train"
    NOT_NOW = "not_now"


@dataclass(frozen=True, slots=True)
class ListedMergeRequest:
    """A row of a list: cheap, for comparing with an earlier row, never for a verdict.

    It has no pipeline, and its merge status may be hours old. State, head and target are those of the last
    change that moved `updated_at`.
    """

    iid: MrIid
    state: str
    sha: str | None
    source_branch: str
    target_branch: str
    detailed_merge_status: str
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class ListedPipeline:
    """A pipeline as a list shows it."""

    id: int
    status: str
    sha: str
    ref: str
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewestPipelines:
    """The pipelines of a project that moved last, and since when none is missing among them.

    `complete_since` None: there are no others at all.
    """

    rows: tuple[ListedPipeline, ...]
    complete_since: datetime | None


@dataclass(frozen=True, slots=True)
class Handling:
    """Whom an MR is shown to, and how its commits are to land."""

    reviewer_ids: tuple[int, ...] = ()
    assignee_ids: tuple[int, ...] = ()
    squash: Squash = Squash.NEVER


PLAIN: Final = Handling()


class GitLabGateway(Protocol):
    """One GitLab instance, as far as the engine depends on it."""

    async def project(self, project: int | str) -> ProjectInfo:
        """Return the project, by id or path. A 404 is GitLabRefused: gone, or the token does not see it."""
        ...

    async def branch(self, project: int | str, branch: str) -> BranchInfo | None:
        """Return the branch with its head commit. None: the project answers and has no such branch."""
        ...

    async def existing_paths(self, project_id: ProjectId, ref: str, paths: Sequence[str]) -> frozenset[str]:
        """Return those of `paths` that are files at `ref`."""
        ...

    async def read_file(self, project_id: ProjectId, path: str, ref: str) -> FileContent | None:
        """Return the file's bytes at `ref`. None: there is no such file there.

        GitLabRefused with status 413: the file is larger than any that we edit; it was not read.
        """
        ...

    async def list_folder(
        self, project_id: ProjectId, ref: str, folder: str, *, most: int
    ) -> Sequence[TreeEntry]:
        """Return the folder's own entries ("": the root), at most `most`. Empty: there is no such folder."""
        ...

    async def create_commit(
        self,
        project_id: ProjectId,
        *,
        branch: str,
        start_sha: str,
        message: str,
        files: Sequence[ComposedFile],
        author_name: str | None = None,
        author_email: str | None = None,
    ) -> CommitInfo:
        """Create `branch` at `start_sha` and commit `files` on it, in one call.

        GitLabRefused with status 400: the branch exists (an earlier attempt made it: look and adopt), or a
        file is not in the state its change expects. OutcomeUnknown: look at the branch.
        """
        ...

    async def merge_requests_of_branch(
        self, project_id: ProjectId, source_branch: str
    ) -> list[MergeRequestInfo]:
        """Return the MRs of `source_branch` in every state, newest first; a list shows no pipelines."""
        ...

    async def open_merge_request(
        self,
        project_id: ProjectId,
        *,
        source_branch: str,
        target_branch: str,
        title: str,
        description: str,
        labels: Sequence[str],
        handling: Handling = PLAIN,
    ) -> MergeRequestInfo:
        """Open an MR that keeps its branch when merged. Status 409: an open one exists (look and adopt)."""
        ...

    async def merge_request(self, project_id: ProjectId, iid: MrIid) -> MergeRequestInfo | None:
        """Return the MR with its pipeline. None: deleted, while the project itself still answers."""
        ...

    async def merge_requests(
        self, project_id: ProjectId, iids: Sequence[MrIid]
    ) -> Mapping[MrIid, ListedMergeRequest]:
        """Return the rows of these MRs, one call for a hundred. One that is missing may be gone: look."""
        ...

    async def newest_pipelines(self, project_id: ProjectId) -> NewestPipelines:
        """Return the pipelines of the project that moved last, in one call."""
        ...

    async def merge(
        self, project_id: ProjectId, iid: MrIid, *, sha: str, commit_message: str | None = None
    ) -> MergeAnswer:
        """Ask GitLab to merge exactly `sha`. Whatever comes back, the MR's state is the only proof."""
        ...

    async def close_merge_request(self, project_id: ProjectId, iid: MrIid) -> MergeRequestInfo:
        """Ask GitLab to close the MR and return what it is now: `state` may be merged, merged wins."""
        ...

    async def delete_branch(self, project_id: ProjectId, branch: str) -> None:
        """Delete the branch; one that is gone already is fine."""
        ...

    async def contains(self, project_id: ProjectId, *, branch: str, sha: str) -> bool:
        """Tell whether the commit is part of the branch. False also for a commit or branch that is gone."""
        ...

    async def commit(self, project_id: ProjectId, sha: str) -> CommitInfo:
        """Return the commit with its parents. GitLabRefused with status 404: there is none."""
        ...

    async def blob_ids(self, project_id: ProjectId, ref: str, paths: Sequence[str]) -> dict[str, str]:
        """Return the content's id of those of `paths` that are files at `ref`."""
        ...

    async def is_same_tree(self, project_id: ProjectId, one: str, other: str) -> bool:
        """Tell whether two commits hold the same files. True is certain; False is not."""
        ...

    async def changed_paths(self, project_id: ProjectId, sha: str) -> frozenset[str]:
        """Return the paths that the commit changed against its first parent, both names of a moved file."""
        ...

    async def reset_branch(
        self,
        project_id: ProjectId,
        *,
        branch: str,
        start_sha: str,
        message: str,
        files: Sequence[ComposedFile],
        author_name: str | None = None,
        author_email: str | None = None,
    ) -> CommitInfo:
        """Throw away what `branch` holds, and put it at `start_sha` with a commit of `files`, in one call.

        GitLab has no guard on what is thrown away: look right before. GitLabRefused: the name may not be
        force-pushed, or a file is not as its change expects. OutcomeUnknown: look at the branch.
        """
        ...

    async def rebase(self, project_id: ProjectId, iid: MrIid) -> None:
        """Ask GitLab to put the MR's commits on its target's head, which leaves approvals as they are.

        It happens after the answer, or comes to nothing: the MR's head is the only proof. GitLabRefused: the
        branch may not be force-pushed, or is gone.
        """
        ...

    async def pushed_heads(self, project_id: ProjectId, iid: MrIid) -> Sequence[str]:
        """Return the heads that the MR has had, the newest first; GitLab notes a push some time after it."""
        ...

    async def user_ids(self, usernames: Sequence[str]) -> dict[str, int]:
        """Return the numbers of those of `usernames` whom GitLab knows."""
        ...

    async def board_train(self, project_id: ProjectId, iid: MrIid, *, sha: str) -> MergeAnswer:
        """Ask for a place on the target's merge train for exactly `sha`; `train_car` is the proof of it."""
        ...

    async def train_car(self, project_id: ProjectId, iid: MrIid) -> str | None:
        """Return the status of the MR's car. None: it is on no train."""
        ...

    async def aclose(self) -> None:
        """Let the running calls end and give the threads and connections back."""
        ...
