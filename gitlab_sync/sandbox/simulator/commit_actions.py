"""Applies the actions of a commit call to a tree listing, with GitLab's checks and texts.

Nothing is written to a ref here. The actions of one commit see one another's effects, in their order. A
`last_commit_id` that git does not know lets a stale edit pass, as GitLab does.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gitlab_sync.sandbox.simulator.errors import bad_request, refused
from gitlab_sync.sandbox.simulator.git import (
    EXECUTABLE_MODE,
    FILE_MODE,
    SUBMODULE_MODE,
    Entry,
    Repository,
)

KINDS = ("create", "update", "move", "delete", "chmod")
_NEEDS_CONTENT = {"create", "update"}


@dataclass(frozen=True, slots=True)
class FileAction:
    """One checked action; `content` is None where the file's bytes stay.

    `mode`: what a person's own git can push and the commit call cannot, like links; None: as usual.
    """

    kind: str
    path: str
    previous_path: str | None
    content: bytes | None
    last_commit_id: str | None
    executable: bool
    mode: str | None = None


def read_actions(raw: Any) -> list[FileAction]:
    """Check the shape of the actions; the repository is not looked at yet."""
    if not isinstance(raw, list) or not raw:
        raise bad_request("actions is required")
    return [_read_action(number, row) for number, row in enumerate(raw)]


def apply_actions(repo: Repository, start: str | None, actions: list[FileAction]) -> dict[str, Entry]:
    """Return the listing after the actions; raises the 400 of the first one that does not fit."""
    files = repo.files(start) if start else {}
    contents = [action.content for action in actions if action.content is not None]
    blobs = iter(repo.write_blobs(contents))
    for action in actions:
        _check_path(action.path)
        _check_unchanged(repo, start, action)
        blob = next(blobs) if action.content is not None else None
        _apply(files, action, blob)
    return files


def decode_content(content: str, encoding: str) -> bytes:
    if encoding != "base64":
        return content.encode()
    try:
        return base64.b64decode(content, validate=False)
    except (binascii.Error, ValueError):
        raise refused(400, "Invalid base64 content") from None  # wording unverified


def _read_action(number: int, row: Any) -> FileAction:
    if not isinstance(row, Mapping):
        raise bad_request(f"actions[{number}] is required")
    kind = _field(row, number, "action")
    if kind not in KINDS:
        raise bad_request(f"actions[{number}][action] must be one of: {', '.join(KINDS)}")
    path = _field(row, number, "file_path")
    if kind == "move":
        _field(row, number, "previous_path")
    if kind in _NEEDS_CONTENT and row.get("content") is None:
        raise bad_request(f"actions[{number}][content] is required")
    content = row.get("content") if kind in _NEEDS_CONTENT | {"move"} else None
    return FileAction(
        kind=kind,
        path=path,
        previous_path=row.get("previous_path"),
        content=None if content is None else decode_content(str(content), str(row.get("encoding") or "text")),
        last_commit_id=row.get("last_commit_id") or None,
        executable=str(row.get("execute_filemode")).lower() == "true",
    )


def _field(row: Mapping[str, Any], number: int, name: str) -> str:
    if not row.get(name):
        raise bad_request(f"actions[{number}][{name}] is required")
    return str(row[name])


def _apply(files: dict[str, Entry], action: FileAction, blob: str | None) -> None:
    match action.kind:
        case "create":
            _refuse_occupied(files, action.path)
            files[action.path] = _created(action, blob)
        case "update":
            files[action.path] = Entry(_existing(files, action.path).mode, blob or "")
        case "delete":
            _existing(files, action.path)
            del files[action.path]
        case "chmod":
            entry = _existing(files, action.path)
            files[action.path] = Entry(EXECUTABLE_MODE if action.executable else FILE_MODE, entry.sha)
        case _:
            old = action.previous_path or ""
            entry = _existing(files, old)
            _refuse_occupied(files, action.path)
            del files[old]
            files[action.path] = Entry(entry.mode, blob or entry.sha)


def _created(action: FileAction, blob: str | None) -> Entry:
    if action.mode == SUBMODULE_MODE:  # its content is the commit that it points to
        return Entry(action.mode, (action.content or b"").decode())
    return Entry(action.mode or FILE_MODE, blob or "")


def _existing(files: Mapping[str, Entry], path: str) -> Entry:
    if path not in files:
        raise refused(400, "A file with this name doesn't exist")
    return files[path]


def _refuse_occupied(files: Mapping[str, Entry], path: str) -> None:
    parts = path.split("/")
    parents = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
    if path in files or not parents.isdisjoint(files):
        raise refused(400, "A file with this name already exists")
    if any(name.startswith(f"{path}/") for name in files):
        raise refused(400, "A directory with this name already exists")


def _check_path(path: str) -> None:
    parts = path.split("/")
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts) or "\0" in path:
        raise refused(400, f"invalid path: '{path}'")  # wording unverified


def _check_unchanged(repo: Repository, start: str | None, action: FileAction) -> None:
    if action.last_commit_id is None or start is None or action.kind == "create":
        return
    path = action.previous_path or action.path
    seen, present = repo.last_change(action.last_commit_id, path), repo.last_change(start, path)
    if seen and present and seen != present:
        raise refused(
            400,
            "You are attempting to update a file that has changed since you started editing it. "
            f"The current last commit ID is {present}",
        )
