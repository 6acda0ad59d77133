"""Checks the edits of one request before anything is written: every problem names its field and the remedy.

Nothing is repaired here and nothing is looked up; whether an edit fits the file it meets shows when it is
composed.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gitlab_sync.documents import MAX_DEPTH, is_document_path, pointer_tokens
from gitlab_sync.edits.ops import (
    OPTIONAL_MEMBERS,
    REQUIRED_MEMBERS,
    WHOLE_FILE_OPS,
    Op,
    is_lfs_pointer,
    put_content,
)
from gitlab_sync.edits.paths import folded_parents, folded_path, path_problem, protection_problem
from gitlab_sync.errors import FieldProblem

MAX_EDITS: Final = 100
MAX_CONTENT_BYTES: Final = 1024 * 1024
MAX_VALUE_NODES: Final = 10_000
MAX_KEY_CHARACTERS: Final = 512
MAX_POINTER_CHARACTERS: Final = 4096
MAX_INTEGER_DIGITS: Final = 300

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PRIVATE_KEY: Final = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-[0-9]"
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_OPS: Final = ", ".join(Op)


def check_edits(
    edits: Sequence[Any], *, allowed: Sequence[str], protected: Sequence[str], pointer: str
) -> list[FieldProblem]:
    """Return every problem of a request's edits; none: they can be admitted.

    `allowed` and `protected` are the partition's patterns; `pointer` is where the list of edits stands in the
    request's body (`/2/edits`), so that the problems point into it (`/2/edits/0/path`).
    """
    if not 1 <= len(edits) <= MAX_EDITS:
        return [FieldProblem(pointer, f"holds {len(edits)} edits; send 1 to {MAX_EDITS} in one request")]
    problems: list[FieldProblem] = []
    for index, edit in enumerate(edits):
        at = f"{pointer}/{index}"
        problems += (FieldProblem(at + field, message) for field, message in _edit_problems(edit))
        if not problems:
            path, message = (
                edit["path"],
                protection_problem(edit["path"], allowed=allowed, protected=protected),
            )
            problems += [FieldProblem(f"{at}/path", f"{path!r} {message}")] if message else []
    return problems or [FieldProblem(pointer + field, message) for field, message in _pair_problems(edits)]


def _edit_problems(edit: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(edit, Mapping):
        yield "", 'is no object; send {"op": …, "path": …, …}'
        return
    op = edit.get("op")
    if not isinstance(op, str) or op not in set(Op):
        yield "/op", f"is missing or unknown; send one of {_OPS}"
        return
    yield from _member_problems(edit, Op(op))
    yield from _field_problems(edit, Op(op))


def _member_problems(edit: Mapping[str, Any], op: Op) -> Iterator[tuple[str, str]]:
    known = {"op", *REQUIRED_MEMBERS[op], *OPTIONAL_MEMBERS[op]}
    for name in REQUIRED_MEMBERS[op]:
        if name not in edit:
            yield f"/{name}", f"is missing; {op} needs {', '.join(REQUIRED_MEMBERS[op])}"
    for name in sorted(str(key) for key in edit if key not in known):
        shown = name.encode("ascii", "backslashreplace").decode()[:80]
        yield (
            f"/{shown.replace('~', '~0').replace('/', '~1')}",
            f"is unknown; {op} takes {', '.join(sorted(known))}",
        )


def _field_problems(edit: Mapping[str, Any], op: Op) -> Iterator[tuple[str, str]]:
    if "path" in edit:
        yield from _path_problems(edit["path"], op)
    if "if_match" in edit and not (isinstance(edit["if_match"], str) and _SHA256.fullmatch(edit["if_match"])):
        yield (
            "/if_match",
            "is no SHA-256; send the 64 lower-case hex digits of the file's content, or leave it out",
        )
    if op is Op.PUT and "content" in edit:
        yield from _content_problems(edit)
    if "pointer" in edit and op in (Op.ENSURE_ITEM, Op.REMOVE_ITEM):
        yield from _pointer_problems(edit["pointer"])
    if "item" in edit and op in (Op.ENSURE_ITEM, Op.REMOVE_ITEM) and (message := value_problem(edit["item"])):
        yield "/item", message
    if "patch" in edit and op is Op.MERGE:
        yield from _patch_problems(edit["patch"])


def _path_problems(path: Any, op: Op) -> Iterator[tuple[str, str]]:
    if not isinstance(path, str):
        yield "/path", "is no text; name a file, like access/db.yaml"
    elif message := path_problem(path):
        yield "/path", message
    elif op not in WHOLE_FILE_OPS and not is_document_path(path):
        yield "/path", f"{op} works on .yaml, .yml and .json files; use put for others"


def _content_problems(edit: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    content, encoding = edit["content"], edit.get("encoding", "text")
    if encoding not in ("text", "base64"):
        yield "/encoding", "is unknown; send text or base64"
    elif not isinstance(content, str):
        yield "/content", "is no text; send the whole file as text, or as base64"
    elif message := _content_problem(edit, is_text=encoding == "text"):
        yield "/content", message


def _content_problem(edit: Mapping[str, Any], *, is_text: bool) -> str | None:
    if len(edit["content"]) > MAX_CONTENT_BYTES * 2:
        return f"is larger than {MAX_CONTENT_BYTES} bytes; large files do not belong in a request"
    try:
        content = put_content(edit)
    except UnicodeEncodeError:
        return "holds half of a surrogate pair, which is no Unicode text; send other content as base64"
    except (binascii.Error, ValueError):
        return "is no base64 (RFC 4648 with padding, no line breaks); encode it again"
    if len(content) > MAX_CONTENT_BYTES:
        return f"has {len(content)} bytes; at most {MAX_CONTENT_BYTES} are taken"
    if is_text and b"\0" in content:
        return "holds a NUL character; send binary content as base64"
    if is_lfs_pointer(content):
        return "is a pointer of Git LFS, whose file is not here; large files do not belong in a request"
    if _PRIVATE_KEY.search(content):
        return "looks like a private key; secrets do not belong in a repository"
    return None


def _pointer_problems(pointer: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(pointer, str):
        yield "/pointer", 'is no text; send an RFC 6901 pointer to a list, like "/groups/admins"'
        return
    try:
        tokens = pointer_tokens(pointer)
    except ValueError as error:
        yield "/pointer", str(error)
        return
    if len(pointer) > MAX_POINTER_CHARACTERS or len(tokens) > MAX_DEPTH - 1:
        yield (
            "/pointer",
            f"is too long; at most {MAX_DEPTH - 1} steps and {MAX_POINTER_CHARACTERS} characters are taken",
        )
    elif message := next((one for token in tokens if (one := _text_problem(token, is_key=True))), None):
        yield "/pointer", message


def _patch_problems(patch: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(patch, dict):
        yield "/patch", "is no object; a merge patch (RFC 7396) for a whole other value is a put"
    elif message := value_problem(patch):
        yield "/patch", message


def value_problem(value: Any) -> str | None:
    """Why a JSON value cannot be written into a document; None: it can. Does not recurse."""
    waiting = [(value, 1)]
    for nodes, (one, depth) in enumerate(waiting, start=1):
        if depth > MAX_DEPTH:
            return f"is nested deeper than {MAX_DEPTH} levels; flatten it"
        if nodes > MAX_VALUE_NODES:
            return f"holds more than {MAX_VALUE_NODES} values; split the request"
        if message := _node_problem(one):
            return message
        if isinstance(one, dict | list):
            waiting.extend((inner, depth + 1) for inner in (one.values() if isinstance(one, dict) else one))
    return None


def _node_problem(value: Any) -> str | None:
    match value:
        case None | bool():
            return None
        case str():
            return _text_problem(value, is_key=False)
        case int():
            return (
                None
                if abs(value) < 10**MAX_INTEGER_DIGITS
                else "holds a number too large to be kept; send it as text"
            )
        case float():
            return (
                None
                if math.isfinite(value)
                else "holds NaN or Infinity, which JSON does not have; leave it out"
            )
        case dict():
            return next((one for key in value if (one := _text_problem(key, is_key=True))), None)
        case list():
            return None
        case _:
            return f"holds a {type(value).__name__}, which is no JSON value"


def _text_problem(text: Any, *, is_key: bool) -> str | None:
    if not isinstance(text, str):
        return "has a key that is no text; send JSON"
    if "\0" in text or _SURROGATE.search(text):
        return "holds a NUL character or half of a surrogate pair; leave it out"
    if is_key and len(text) > MAX_KEY_CHARACTERS:
        return f"has a key longer than {MAX_KEY_CHARACTERS} characters; shorten it"
    if len(text) > MAX_CONTENT_BYTES:
        return f"holds a text longer than {MAX_CONTENT_BYTES} characters; shorten it"
    if _PRIVATE_KEY.search(text.encode()):
        return "looks like a private key; secrets do not belong in a repository"
    return None


def _pair_problems(edits: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """What two edits of one request do to each other; every edit is well formed by now."""
    first_by_name: dict[str, int] = {}
    whole: set[str] = set()
    for index, edit in enumerate(edits):
        path, name = edit["path"], folded_path(edit["path"])
        first = first_by_name.setdefault(name, index)
        if first == index:
            whole |= {name} if edit["op"] in WHOLE_FILE_OPS else set()
        elif edits[first]["path"] != path:
            yield (
                f"/{index}/path",
                f"{path!r} cannot stand beside {edits[first]['path']!r}; they differ only in form",
            )
        elif edit["op"] in WHOLE_FILE_OPS or name in whole:
            yield f"/{index}/path", f"{path!r} is edited twice; put and delete stand alone on their file"
    for index, edit in enumerate(edits):
        if holder := next((one for one in folded_parents(edit["path"]) if one in first_by_name), None):
            outer = edits[first_by_name[holder]]["path"]
            yield f"/{index}/path", f"{edit['path']!r} lies in {outer!r}, which another edit takes for a file"
