"""Lays the edits of a batch's members over the target branch's files: members in, commit actions out.

Pure and deterministic: no clock, no GitLab, no order but the members' own. May take seconds of CPU for
large documents (documents/__init__): call it off the event loop.

What it decides, path by path, in the order of the members:
A  structured edits of several members on one file: they compose, each on the result of the earlier ones.
B  a whole-file edit of a path that an earlier member touched, or any edit of a path that an earlier member
   wrote or deleted whole: the later member waits for the next round, with all of its edits.
C  an edit of a path that a waiting member wants: that later member waits too, or it would overtake the
   earlier one.
D  `README` beside `readme`, or `a` beside `a/b`: one checkout cannot hold both, so the member that adds the
   second one fails, also if the first is none of ours. Deleting the first makes room (deletions come first
   in the commit).
E  an edit that cannot be applied: its member fails alone and leaves no trace, also on its other paths.
F  a document whose changes cannot be written without touching other lines: found out only when it is
   written, so the members are gone through again, the file being written after each, until the one at fault
   is known. That is costly and ends after some bytes: who had no turn by then waits for the next round.
G  a path that is no file on the target branch, or lies below a link: its member fails (`base_files`).
`if_match` speaks of the file as it is on the target branch, not of what earlier members make of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Final, assert_never

from gitlab_sync.base_files import BaseFiles, Exists, FailureCode, Refused
from gitlab_sync.collisions import NameBook
from gitlab_sync.documents import (
    Document,
    DocumentProblem,
    ensure_item,
    merge_patch,
    open_document,
    remove_item,
    same_value,
)
from gitlab_sync.edits import WHOLE_FILE_OPS, Op, folded_path, is_hidden, put_content
from gitlab_sync.model import ComposedFile, FileChange, MemberRow, OperationId

# Written on trial, to find the members at fault (F): a few seconds of parsing.
MAX_TRIED_BYTES: Final = 1024 * 1024
# Reasons are stored in columns of 1,000 characters.
MAX_REASON_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True)
class MemberFailure:
    """A member whose edits cannot be applied. `code` is a value of FailureCode or DocumentFault."""

    operation_id: OperationId
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Composition:
    """What a batch comes to. Every member is in exactly one of `landed`, `deferred` and `failed`."""

    files: tuple[ComposedFile, ...]
    landed: tuple[OperationId, ...]
    deferred: tuple[OperationId, ...]
    failed: tuple[MemberFailure, ...]


def paths_touched(members: Sequence[MemberRow]) -> tuple[str, ...]:
    """Every path of the members' edits, once, in order: `compose` must know whether each exists."""
    return tuple(dict.fromkeys(edit["path"] for member in members for edit in member.edits))


def paths_to_read(members: Sequence[MemberRow]) -> tuple[str, ...]:
    """The paths whose content `compose` needs: all but those that are only deleted, unseen.

    A `put` is read too: writing the same bytes again is no change, and would become an empty commit.
    """
    edits = [edit for member in members for edit in member.edits]
    return tuple(
        dict.fromkeys(edit["path"] for edit in edits if edit["op"] != "delete" or edit.get("if_match"))
    )


def compose(members: Sequence[MemberRow], existing: Mapping[str, bytes | Exists]) -> Composition:
    """Compose the edits. `existing`: the touched paths that exist, with their content or what they are.

    It also names what stands in the way of new paths: twins, and what is above them and no folder. A member
    whose edits change nothing has landed. Raises ValueError if content that is needed was not read.
    """
    base = BaseFiles(existing)
    doubtful: frozenset[str] = frozenset()
    while True:
        batch = _Batch(base, doubtful)
        for member in members:
            batch.take(member)
        files, unwritable = batch.files()
        if not unwritable:
            return Composition(files, tuple(batch.landed), tuple(batch.deferred), tuple(batch.failed))
        doubtful |= unwritable


class _Edited(Enum):
    """How the members so far edited a path."""

    STRUCTURED = auto()
    WHOLE = auto()


@dataclass(frozen=True, slots=True)
class _File:
    """A path as the members so far leave it: `content` (None: not there), or a document and its new value."""

    content: bytes | None
    edited: _Edited
    document: Document | None = None
    value: Any = None

    @property
    def is_there(self) -> bool:
        return self.content is not None or self.value is not None


class _Batch:
    """The members taken so far, and the files as they leave them."""

    def __init__(self, base: BaseFiles, doubtful: frozenset[str]) -> None:
        self._base = base
        self._doubtful = doubtful
        self._files: dict[str, _File] = {}
        self._awaited: set[str] = set()
        folders = {path for path, kind in base.existing.items() if kind is Exists.FOLDER}
        self._names = NameBook(base.existing.keys() - folders, folders)
        self._tried_bytes = 0
        self.landed: list[OperationId] = []
        self.deferred: list[OperationId] = []
        self.failed: list[MemberFailure] = []

    def take(self, member: MemberRow) -> None:
        """Apply a member's edits, or let it wait, or fail it; in the last two cases no file changes."""
        if any(self._must_wait(edit) for edit in member.edits):
            self.deferred.append(member.operation_id)
            self._awaited |= {folded_path(edit["path"]) for edit in member.edits}
            return
        try:
            self._files |= self._applied(member)
        except Refused as refused:
            self.failed.append(MemberFailure(member.operation_id, refused.code, _shown(refused.text)))
        else:
            self.landed.append(member.operation_id)

    def files(self) -> tuple[tuple[ComposedFile, ...], frozenset[str]]:
        """The commit actions, deletions first, and the paths whose changes cannot be written."""
        composed: list[ComposedFile] = []
        unwritable: set[str] = set()
        for path, file in self._files.items():
            try:
                composed += self._change_of(path, file)
            except DocumentProblem:
                unwritable.add(path)
        composed.sort(key=lambda one: (one.change is not FileChange.DELETE, one.path))
        return tuple(composed), frozenset(unwritable)

    def _must_wait(self, edit: Mapping[str, Any]) -> bool:
        path = edit["path"]
        if folded_path(path) in self._awaited:
            return True
        if path in self._doubtful and self._tried_bytes >= MAX_TRIED_BYTES:
            return True
        file = self._files.get(path)
        return file is not None and (file.edited is _Edited.WHOLE or edit["op"] in WHOLE_FILE_OPS)

    def _applied(self, member: MemberRow) -> dict[str, _File]:
        touched: dict[str, _File] = {}
        for edit in member.edits:
            path = edit["path"]
            self._base.require_file(edit)
            self._base.require_match(path, edit.get("if_match"))
            try:
                touched[path] = self._edited(edit, touched.get(path) or self._files.get(path))
            except DocumentProblem as problem:
                raise Refused(problem.fault, f"{path}: {problem.text}") from problem
        gone = [path for path, file in touched.items() if not file.is_there]
        come = [path for path, file in touched.items() if file.is_there]
        if clash := self._names.move(gone, come):
            what = f"{clash[0]} cannot stand beside {clash[1]} in one checkout; choose another path"
            raise Refused(FailureCode.PATH_COLLISION, what)
        return touched

    def _edited(self, edit: Mapping[str, Any], present: _File | None) -> _File:
        match Op(edit["op"]):
            case Op.PUT:
                return _File(put_content(edit), _Edited.WHOLE)
            case Op.DELETE:
                return _File(None, _Edited.WHOLE)
            case Op.MERGE | Op.ENSURE_ITEM | Op.REMOVE_ITEM:
                return self._restructured(edit, present)
            case unknown:
                assert_never(unknown)

    def _restructured(self, edit: Mapping[str, Any], present: _File | None) -> _File:
        path = edit["path"]
        if present is None:
            document = self._base.document(path)
            present = _File(self._base.content(path), _Edited.STRUCTURED, document, document.value)
        elif present.document is None:
            document = open_document(path, present.content)
            present = replace(present, document=document, value=document.value)
        file = replace(present, value=_new_value(edit, present))
        if path in self._doubtful and file.document is not None:
            self._tried_bytes += len(present.content or b"") + 1
            file.document.render(file.value)
        return file

    def _change_of(self, path: str, file: _File) -> Iterator[ComposedFile]:
        before = self._base.existing.get(path)
        if not file.is_there:
            if before is not None:
                yield ComposedFile(FileChange.DELETE, path)
            return
        after = file.content
        if file.document is not None and not same_value(file.value, file.document.value):
            after = file.document.render(file.value)
        if after is not None and after != before:
            yield ComposedFile(FileChange.CREATE if before is None else FileChange.UPDATE, path, after)


def _new_value(edit: Mapping[str, Any], present: _File) -> Any:
    if edit["op"] == Op.MERGE:
        if not present.is_there and _only_removes(edit["patch"]):
            return None  # there is nothing to remove, and no reason to make an empty file
        return merge_patch(present.value, edit["patch"])
    change = ensure_item if edit["op"] == Op.ENSURE_ITEM else remove_item
    return change(present.value, edit["pointer"], edit["item"])


def _shown(text: str) -> str:
    """A reason as it is stored and shown: paths and keys in it may be long, and keys may hold anything."""
    visible = "".join(sign for sign in text if not is_hidden(sign))
    return visible if len(visible) <= MAX_REASON_CHARACTERS else visible[: MAX_REASON_CHARACTERS - 1] + "…"


def _only_removes(patch: Any) -> bool:
    return patch is None or (isinstance(patch, dict) and all(_only_removes(one) for one in patch.values()))
