"""What a failed call to GitLab means: the one table from "what was seen" to our errors. Pure.

The question behind every row is whether the call may have had an effect. A read has none, so anything but a
refusal is GitLabUnavailable. A write that was sent and not clearly answered is OutcomeUnknown and must not be
repeated before somebody looked; only 429 and a lock conflict say for sure that nothing was done.

Never looks at exceptions of HTTP libraries: `gitlab_client` turns those into a Failure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never
from urllib.parse import urlsplit, urlunsplit

from gitlab_sync.errors import GitLabError, GitLabRefused, GitLabUnavailable, OutcomeUnknown, with_status

LONGEST_TEXT: Final = 500
LONGEST_WAIT_S: Final = 10.0  # what a call waits for by itself; a longer wish goes to the caller
SOURCE_BRANCH_RETRY_S: Final = 5.0
UNTOLD_PAUSE_S: Final = 1.0  # a 429 that names no time: the host, not one call of it, is asked less often

# Refusals of a merge that say nothing by themselves; the MR tells. 401: no right to merge (a dead token
# shows in the next read). 404: gone or out of sight. 409: another head, or a lock. 405, 406, 422: any reason.
MERGE_NOT_NOW: Final = frozenset({401, 404, 405, 406, 409, 422})


class CallKind(StrEnum):
    """Whether a call can change anything at GitLab."""

    READ = "read"
    WRITE = "write"


class GitLabCall(StrEnum):
    """What is asked of GitLab: the `operation` label of metrics and the name in error texts."""

    PROJECT = "project"
    BRANCH = "branch"
    COMMIT = "commit"
    COMMIT_DIFF = "commit_diff"
    COMPARE = "compare"
    TREE = "tree"
    FILE_EXISTS = "file_exists"
    READ_FILE = "read_file"
    CREATE_COMMIT = "create_commit"
    RESET_BRANCH = "reset_branch"
    REBASE = "rebase"
    VERSIONS = "versions"
    USERS = "users"
    BOARD_TRAIN = "board_train"
    TRAIN_CAR = "train_car"
    LIST_MERGE_REQUESTS = "list_merge_requests"
    LIST_PIPELINES = "list_pipelines"
    MERGE_REQUEST = "merge_request"
    OPEN_MERGE_REQUEST = "open_merge_request"
    MERGE = "merge"
    CLOSE_MERGE_REQUEST = "close_merge_request"
    DELETE_BRANCH = "delete_branch"
    MERGE_BASE = "merge_base"
    VERSION = "version"
    TOKEN = "token"  # noqa: S105 the name of a call
    USER = "user"
    PROTECTED_BRANCHES = "protected_branches"
    APPROVAL_RULES = "approval_rules"
    PUSH_RULES = "push_rules"
    HOOKS = "hooks"
    HOOK_EVENTS = "hook_events"
    CREATE_HOOK = "create_hook"
    CHANGE_HOOK = "change_hook"
    TRY_HOOK = "try_hook"

    @property
    def kind(self) -> CallKind:
        return CallKind.WRITE if self in _WRITES else CallKind.READ


_WRITES: Final = frozenset(
    {
        GitLabCall.CREATE_COMMIT,
        GitLabCall.RESET_BRANCH,
        GitLabCall.REBASE,
        GitLabCall.BOARD_TRAIN,
        GitLabCall.OPEN_MERGE_REQUEST,
        GitLabCall.MERGE,
        GitLabCall.CLOSE_MERGE_REQUEST,
        GitLabCall.DELETE_BRANCH,
        GitLabCall.CREATE_HOOK,
        GitLabCall.CHANGE_HOOK,
        GitLabCall.TRY_HOOK,
    }
)


# A branch that was pushed a moment ago can be missing for the call that opens the MR, for up to a minute.
_SOURCE_BRANCH_MISSING: Final = re.compile(
    r"source[ _]branch.{0,300}?(not exist|not found|missing|invalid)", re.IGNORECASE | re.DOTALL
)
# A 404 that names what is missing says that the project itself was found. Of calls that are not listed here
# nobody needs to know more: many paths are looked up together and checked together, and a branch to delete
# may be gone.
_SAYS_WHAT_IS_MISSING: Final = {
    GitLabCall.BRANCH: "branch not found",
    GitLabCall.READ_FILE: "file not found",
    GitLabCall.MERGE_REQUEST: "merge request not found",
}
_COMMIT_MISSING: Final = "commit not found"
_RESOURCE_LOCK: Final = re.compile(r"resource lock", re.IGNORECASE)


class Stage(StrEnum):
    """How far a failed call got.

    WITHHELD: we refused to send it. NOT_SENT: no connection. LOST: perhaps sent, and no whole answer came.
    UNREADABLE: GitLab said yes, in a form that cannot be read. ANSWERED: GitLab said no, with a status.
    """

    WITHHELD = "withheld"
    NOT_SENT = "not_sent"
    LOST = "lost"
    UNREADABLE = "unreadable"
    ANSWERED = "answered"


class Repeat(StrEnum):
    """Whether the client may send the same call again by itself."""

    SAFE = "safe"
    NEVER = "never"


class NotFound(StrEnum):
    """What a refusal says about a thing that was looked for.

    THING: it is not there, and its project is. UNCLEAR: it or its project. OTHER: something else is the
    matter.
    """

    THING = "thing"
    UNCLEAR = "unclear"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed call as it was seen from here."""

    call: GitLabCall
    stage: Stage
    text: str
    status: int = 0
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a failure means. `pause_s`: GitLab asked all of us to stay away for that long."""

    error: GitLabError
    repeat: Repeat
    pause_s: float | None = None

    @property
    def may_repeat(self) -> bool:
        return self.repeat is Repeat.SAFE


def judge(failure: Failure) -> Judgement:
    """Say what `failure` means and whether the call may be repeated."""
    match failure.stage:
        case Stage.WITHHELD:
            return Judgement(GitLabRefused(failure.call, failure.status, failure.text), Repeat.NEVER)
        case Stage.NOT_SENT:
            return Judgement(_unavailable(failure), _if_read(failure))
        case Stage.LOST | Stage.UNREADABLE:
            return _no_clear_answer(failure)
        case Stage.ANSWERED:
            return _answered(failure)
        case _:
            assert_never(failure.stage)


def plain_text(message: object) -> str:
    """Make one line of any form in which GitLab or a proxy gives its reason: text, list, fields, HTML."""
    match message:
        case bytes():
            return plain_text(message.decode("utf-8", "replace"))
        case list() | tuple():
            return _cut("; ".join(plain_text(item) for item in message))
        case dict():
            return _cut("; ".join(f"{key}: {plain_text(value)}" for key, value in message.items()))
        case str() if message.lstrip().startswith("<"):
            return "an HTML page, which GitLab itself does not send here"
        case _:
            return _cut(str(message))


def answered_text(message: object, reason: str, location: str | None) -> str:
    """Say why in one line: the body's reason, else the status line's, or where a redirect wants us."""
    if location:
        place = plain_text(_place_of(location))
        return f"redirected to {place}: set GITLAB_SYNC_GITLAB_URL to the final address"
    return plain_text(message) or plain_text(reason)


def _place_of(location: str) -> str:
    """Where a redirect leads, without what may be a credential: userinfo, query and fragment."""
    try:
        parts = urlsplit(location)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "an address that is none"
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def meaning_of_404(call: GitLabCall, refused: GitLabRefused) -> NotFound:
    """Say what a refused look at something means for "does it exist?"."""
    if refused.status != 404 or _COMMIT_MISSING in refused.message.casefold():
        return NotFound.OTHER
    if _SAYS_WHAT_IS_MISSING.get(call, "") in refused.message.casefold():
        return NotFound.THING
    return NotFound.UNCLEAR


def _answered(failure: Failure) -> Judgement:
    status = failure.status
    if status == 429:
        pause_s = UNTOLD_PAUSE_S if failure.retry_after_s is None else failure.retry_after_s
        return Judgement(_unavailable(failure), _if_soon(failure), pause_s)
    if status in (408, 425) or status >= 500:
        return _no_clear_answer(failure, pause_s=failure.retry_after_s if status == 503 else None)
    if status == 409 and _RESOURCE_LOCK.search(failure.text):
        return Judgement(_unavailable(failure), Repeat.SAFE)
    if failure.call is GitLabCall.OPEN_MERGE_REQUEST and _SOURCE_BRANCH_MISSING.search(failure.text):
        error = GitLabUnavailable(_sentence(failure), retry_after_s=SOURCE_BRANCH_RETRY_S)
        return Judgement(error, Repeat.NEVER)
    return Judgement(GitLabRefused(failure.call, status, failure.text), Repeat.NEVER)


def _no_clear_answer(failure: Failure, pause_s: float | None = None) -> Judgement:
    if failure.call.kind is CallKind.READ:
        return Judgement(_unavailable(failure), _if_soon(failure), pause_s)
    return Judgement(OutcomeUnknown(_sentence(failure)), Repeat.NEVER, pause_s)


def _if_soon(failure: Failure) -> Repeat:
    return Repeat.SAFE if (failure.retry_after_s or 0) <= LONGEST_WAIT_S else Repeat.NEVER


def _if_read(failure: Failure) -> Repeat:
    return Repeat.SAFE if failure.call.kind is CallKind.READ else Repeat.NEVER


def _unavailable(failure: Failure) -> GitLabUnavailable:
    return GitLabUnavailable(_sentence(failure), retry_after_s=failure.retry_after_s)


def _sentence(failure: Failure) -> str:
    return f"{failure.call}: {with_status(failure.status, failure.text)}"


def _cut(text: str) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= LONGEST_TEXT else line[: LONGEST_TEXT - 1] + "…"
