"""The files of the target branch as edits meet them: what stands at a path, and which edit it refuses. Pure.

A path that is a symbolic link, a submodule or a folder, or lies below one of the first two, is refused: what
is written there would appear somewhere else. A link may be deleted. A file that Git LFS keeps elsewhere may
be deleted too: its text here is only a pointer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from enum import Enum, StrEnum, auto
from typing import Any, Final

from gitlab_sync.documents import (
    MAX_DOCUMENT_BYTES,
    Document,
    DocumentFault,
    DocumentProblem,
    open_document,
)
from gitlab_sync.edits import Op, is_lfs_pointer


class Exists(Enum):
    """Stands for what is at a path and has no content here: a file not read, or no file at all."""

    UNREAD = auto()
    TOO_LARGE = auto()
    LINK = auto()
    FOLDER = auto()
    SUBMODULE = auto()


class FailureCode(StrEnum):
    """Why a member cannot be composed, beside the faults of documents (documents.DocumentFault)."""

    STALE_BASE = "stale_base"
    PATH_COLLISION = "path_collision"
    NOT_A_FILE = "not_a_file"
    LFS_POINTER = "lfs_pointer"
    COMMIT_TOO_LARGE = "commit_too_large"


class Refused(Exception):
    """One edit cannot be applied; its member fails."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


_IS: Final[Mapping[Exists, str]] = {
    Exists.LINK: "a symbolic link",
    Exists.FOLDER: "a folder",
    Exists.SUBMODULE: "a submodule",
}


class BaseFiles:
    """The files of the target branch; each document is parsed at most once."""

    def __init__(self, existing: Mapping[str, bytes | Exists]) -> None:
        self.existing = existing
        self._documents: dict[str, Document | DocumentProblem] = {}

    def content(self, path: str) -> bytes | None:
        content = self.existing.get(path)
        if content is Exists.TOO_LARGE:
            what = f"{path} is larger than the {MAX_DOCUMENT_BYTES} bytes that can be edited or compared"
            raise Refused(DocumentFault.TOO_LARGE, what)
        if isinstance(content, Exists):
            raise ValueError(  # noqa: TRY004 what is wrong is that nobody read it
                f"the content of {path!r} was not read; see paths_to_read"
            )
        return content

    def document(self, path: str) -> Document:
        if path not in self._documents:
            try:
                self._documents[path] = open_document(path, self.content(path))
            except DocumentProblem as problem:
                self._documents[path] = problem
        found = self._documents[path]
        if isinstance(found, DocumentProblem):
            raise DocumentProblem(found.fault, found.text)
        return found

    def require_file(self, edit: Mapping[str, Any]) -> None:
        """Refuse what would be written elsewhere than it says, or over what stands for something else."""
        path = edit["path"]
        for above in _above(path):
            kind = self.existing.get(above)
            if kind is Exists.LINK or kind is Exists.SUBMODULE:
                what = f"{path} lies below {above}, which is {_IS[kind]}; name the file by its own path"
                raise Refused(FailureCode.NOT_A_FILE, what)
        found = self.existing.get(path)
        what_it_is = _IS.get(found) if isinstance(found, Exists) else None
        is_plain_delete = edit["op"] == Op.DELETE and "if_match" not in edit
        if what_it_is is not None and not (found is Exists.LINK and is_plain_delete):
            what = f"{path} is {what_it_is} on the target branch, no file; change it by hand"
            raise Refused(FailureCode.NOT_A_FILE, what)
        if isinstance(found, bytes) and edit["op"] != Op.DELETE and is_lfs_pointer(found):
            what = f"{path} is kept in Git LFS, its text is only a pointer; change it by hand"
            raise Refused(FailureCode.LFS_POINTER, what)

    def require_match(self, path: str, wanted_sha256: str | None) -> None:
        if wanted_sha256 is None:
            return
        content = self.content(path)
        if content is None:
            raise Refused(
                FailureCode.STALE_BASE, f"{path} does not exist, but if_match was given; submit anew"
            )
        if (present := hashlib.sha256(content).hexdigest()) != wanted_sha256:
            what = f"{path} has changed (if_match {wanted_sha256[:12]}, now {present[:12]}); submit anew"
            raise Refused(FailureCode.STALE_BASE, what)


def _above(path: str) -> Iterator[str]:
    """The folders that hold a path, outermost first."""
    return (path[:end] for end in range(len(path)) if path[end] == "/")
