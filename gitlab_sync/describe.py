"""Names and words that reach GitLab: branch, commit message, title and description. Pure.

GitLab obeys text: a line `/merge` in a description runs with our rights, `@all` pings, `Closes #1` closes,
`[skip ci]` skips the pipeline, `Approved-by:` at a line's start is a trailer. So what users wrote never
begins a line, has its signs of reference replaced by look-alikes, is shown in code spans, and is cut. It
stays as it was in the database. The marker line proves that a branch or merge request is ours; it always is
the last line, and no text of users' can make one, because it would have to begin a line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gitlab_sync.edits import is_hidden
from gitlab_sync.errors import InvariantBroken
from gitlab_sync.model import BatchId, BatchRow, MemberRow, ProjectId

MAX_TEXT_BYTES: Final = 100_000
MAX_TITLE_CHARACTERS: Final = 255
# Together 200 characters of users' text a member.
_TITLE_SHARE: Final = 80
_NAME_SHARE: Final = 40
_ROOM_FOR_TAIL_BYTES: Final = 600

BRANCH_PREFIX: Final = "gitlab-sync"
_MARKER: Final = "GitLab-Sync-Batch"
_PARTITION_KEY: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.))*")
_BRANCH: Final = re.compile(
    rf"{BRANCH_PREFIX}/(?P<partition>[^/]+)/(?P<batch>[1-9][0-9]{{0,18}})-(?P<marker>[0-9a-f]{{8}})"
    r"(?:-a(?P<attempt>[1-9][0-9]{0,8}))?"
)

# Signs by which GitLab finds references, mentions, markup and CI words, and look-alikes without meaning
# (the full-width forms stand at a fixed distance from ASCII).
_LOOK_ALIKES: Final = str.maketrans(
    {**{sign: chr(ord(sign) + 0xFEE0) for sign in "@#!$%~&^<>"}, "`": "'", "[": "(", "]": ")"}
)
# A word begins after any sign that is not of ASCII, too: so GitLab's matcher sees it.
_JIRA_KEY: Final = re.compile(r"\b([A-Za-z][A-Za-z0-9_]*)-(?=[0-9])", re.ASCII)
# Bare addresses become links without any sign.
_WWW: Final = re.compile(r"(www)\.", re.IGNORECASE)
# A partition's key is its operator's word: only what Jira itself takes for a key is broken in it.
_STRICT_JIRA_KEY: Final = re.compile(r"\b([A-Z][A-Z0-9_]+)-(?=[0-9])", re.ASCII)
_LINE_ENDS: Final = frozenset("\t\n\r\v\f\x85\u2028\u2029")
# A text is looked at to this many times of what is shown: enough behind any honest number of invisible signs.
_LOOKED_AT: Final = 8
_BLANKS: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class BranchRef:
    """What the name of one of our branches says."""

    partition_key: str
    batch_id: BatchId
    marker_prefix: str
    attempt: int


def partition_key_problem(key: str) -> str | None:
    """Why a partition's key cannot be part of a branch name; None: it can."""
    if (
        len(key) > 64
        or not _PARTITION_KEY.fullmatch(key)
        or key.endswith(".")
        or key.casefold().endswith(".lock")
    ):
        return (
            f"{key[:80]!r} cannot be part of a branch name; use at most 64 letters, digits, "
            "'-', '_' and single '.', beginning with a letter or digit"
        )
    return None


def branch_name(partition_key: str, batch_id: int, marker: UUID, attempt: int) -> str:
    """The branch of a batch's attempt, the same on every replica. Raises ValueError for an unfit key."""
    if problem := partition_key_problem(partition_key):
        raise ValueError(problem)
    suffix = f"-a{attempt}" if attempt > 1 else ""
    return f"{BRANCH_PREFIX}/{partition_key}/{batch_id}-{marker.hex[:8]}{suffix}"


def branch_of(batch: BatchRow) -> str:
    """The branch of a batch: a rebuilt one stays on its branch, and so in its merge request."""
    return branch_name(batch.partition_key, batch.id, batch.marker, attempt=1)


def project_of(batch: BatchRow) -> ProjectId:
    """The project that a batch was claimed for. Raises InvariantBroken: a batch that was claimed has one."""
    if batch.project_id is None:
        raise InvariantBroken(f"batch {batch.id} has no project")
    return batch.project_id


def parse_branch_name(name: str) -> BranchRef | None:
    """Read a name made by `branch_name`; None: it is not one of ours."""
    found = _BRANCH.fullmatch(name)
    if not found or partition_key_problem(found["partition"]):
        return None
    attempt = int(found["attempt"] or 1)
    if found["attempt"] and attempt == 1:
        return None
    return BranchRef(found["partition"], BatchId(int(found["batch"])), found["marker"], attempt)


def commit_message(batch: BatchRow, members: Sequence[MemberRow]) -> str:
    """Subject, one line a member, and our trailer, which comes last."""
    lines = [_commit_line(member) for member in members]
    head = f"{_heading(batch, members)}\n\n"
    return _fitted(
        head, lines, "- and {left} more, named in gitlab-sync", f"\n{_marker_line(batch.marker)}\n"
    )


def merge_request_title(batch: BatchRow, members: Sequence[MemberRow]) -> str:
    """One line of our making; a single member's own title follows it."""
    title = _heading(batch, members)
    if len(members) == 1:
        title = f"{title}: {inert(members[0].title, _TITLE_SHARE)}"
    return title[:MAX_TITLE_CHARACTERS]


def merge_request_description(batch: BatchRow, members: Sequence[MemberRow]) -> str:
    """A table for the person who approves: who asked for what. Ends with the marker, hidden."""
    head = (
        f"**{_count(members)}** for `{_shown_key(batch)}` in one change.\n\n"
        "| | asked by | for | relation | action |\n|--:|---|---|---|---|\n"
    )
    rows = [_table_row(number, member) for number, member in enumerate(members, start=1)]
    left = "| | | and {left} more that are not shown here | | |"
    attempt = f", attempt {batch.attempt}" if batch.attempt > 1 else ""
    tail = (
        f"\nMade by gitlab-sync, batch {batch.id}{attempt}. Each request's history is kept there. "
        "Please do not push to this branch: a changed head is not merged.\n\n"
        f"<!-- {_marker_line(batch.marker)} -->\n"
    )
    return _fitted(head, rows, left, tail)


def carries_marker(text: str, marker: UUID) -> bool:
    """True if a commit message or description has the marker line of exactly this batch."""
    line = re.escape(_marker_line(marker))
    return re.search(rf"^(?:{line}|<!-- {line} -->)[ \t]*\r?$", text, re.MULTILINE) is not None


def inert(text: str, limit: int) -> str:
    """Make users' text safe for one line of ours: it pings, closes, skips, links and hides nothing."""
    text = text[: limit * _LOOKED_AT]
    spaced = "".join(" " if sign in _LINE_ENDS else sign for sign in text)
    shown = "".join(sign for sign in spaced if not is_hidden(sign))
    shown = _BLANKS.sub(" ", shown).strip().translate(_LOOK_ALIKES)
    shown = _JIRA_KEY.sub("\\1\u2011", _WWW.sub("\\1\uff0e", shown.replace("://", ": //")))
    if len(shown) > limit:
        shown = shown[: limit - 1].rstrip() + "…"
    return shown or "(none)"


def _heading(batch: BatchRow, members: Sequence[MemberRow]) -> str:
    return f"{BRANCH_PREFIX}: {_count(members)} for {_shown_key(batch)} (batch {batch.id})"


def _shown_key(batch: BatchRow) -> str:
    return _STRICT_JIRA_KEY.sub("\\1\u2011", batch.partition_key)


def _count(members: Sequence[MemberRow]) -> str:
    return f"{len(members)} request{'' if len(members) == 1 else 's'}"


def _marker_line(marker: UUID) -> str:
    return f"{_MARKER}: {marker}"


def _commit_line(member: MemberRow) -> str:
    who, what = inert(member.requested_by, _NAME_SHARE), inert(member.title, _TITLE_SHARE)
    relation = f"{inert(member.subject, _NAME_SHARE)} -> {inert(member.target, _NAME_SHARE)}"
    return f"- {what} (asked by {who}: {member.action.name.lower()} {relation})"


def _table_row(number: int, member: MemberRow) -> str:
    relation = f"{_cell(member.subject, _NAME_SHARE)} → {_cell(member.target, _NAME_SHARE)}"
    cells = (_cell(member.requested_by, _NAME_SHARE), _cell(member.title, _TITLE_SHARE), relation)
    return f"| {number} | {' | '.join(cells)} | {member.action.name.lower()} |"


def _cell(text: str, limit: int) -> str:
    # A bar ends the cell even inside a code span, and a backslash before it would undo an escape.
    shown = inert(text, limit).replace("|", "¦")
    return f"`{shown}`"


def _fitted(head: str, lines: Sequence[str], left_text: str, tail: str) -> str:
    """Put the lines between head and tail, as many as fit, and say how many do not."""
    room = MAX_TEXT_BYTES - len(head.encode()) - len(tail.encode()) - _ROOM_FOR_TAIL_BYTES
    shown: list[str] = []
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            shown.append(left_text.format(left=len(lines) - len(shown)))
            break
        shown.append(line)
    return head + "".join(f"{line}\n" for line in shown) + tail
