"""Reads a file of requests: YAML with the members of the API's body, one request or a list, strict in form.

What the values mean (known partition, lawful paths, lengths) is judged by the engine, as for the API.
Nothing is repaired: a doubled key, an unknown member or a tag is a problem with its place. Dates stay the
text that they are.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import ScalarNode

from gitlab_sync.admission import Idempotency
from gitlab_sync.errors import FieldProblem, InvalidRequest
from gitlab_sync.model import NewRequest, OperationId
from gitlab_sync.states import Action

LARGEST_FILE_BYTES: Final = 4_194_304
DEEPEST_BRACKETS: Final = 100
LONGEST_KEY: Final = 255
KEY_MEMBER: Final = "idempotency_key"


class _BadMember(ValueError):
    """A member does not hold what it should; the message says what to write."""


@dataclass(frozen=True, slots=True)
class FiledRequest:
    """One request of a file: where it stands, itself, and the key that makes submitting it twice harmless."""

    place: str
    request: NewRequest
    idempotency: Idempotency


def read_request_file(path: Path) -> list[FiledRequest]:
    """The requests of a file, in order. Raises InvalidRequest with every problem of form and its place."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise _bad(f"{path}", f"cannot be read ({error.strerror})") from None
    if len(content) > LARGEST_FILE_BYTES:
        raise _bad(f"{path}", f"is larger than {LARGEST_FILE_BYTES} bytes; split it")
    return parse_requests(content, name=str(path))


def parse_requests(content: bytes, *, name: str) -> list[FiledRequest]:
    """The requests in `content`; `name` is how the problems call the file."""
    document = _yaml(content, name)
    members = document if isinstance(document, list) else [document]
    fingerprint = hashlib.sha256(content).hexdigest()[:32]
    problems: list[FieldProblem] = []
    filed: list[FiledRequest] = []
    for index, member in enumerate(members):
        place = f"{name}/{index}" if isinstance(document, list) else name
        found = _request(member, place, f"file-{fingerprint}-{index}", problems)
        if found is not None:
            filed.append(found)
    if not members:
        problems.append(FieldProblem(name, "holds no request; write one, or a list of them"))
    if problems:
        raise InvalidRequest(problems)
    return filed


def _yaml(content: bytes, name: str) -> Any:
    try:
        text = content.decode()
        # Nested brackets cost the parser time that grows with the square of their depth.
        if _depth(text) > DEEPEST_BRACKETS:
            raise _bad(name, f"brackets are nested deeper than {DEEPEST_BRACKETS}; write plain blocks")
        reader = YAML(typ="safe", pure=True)
        reader.Constructor = _JsonValues
        return reader.load(text)
    except UnicodeDecodeError:
        raise _bad(name, "is not UTF-8 text; save it as UTF-8") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise _bad(name, f"{where}is not valid YAML: {error.problem}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise _bad(name, f"is not valid YAML ({type(error).__name__})") from None


class _JsonValues(SafeConstructor):
    """Gives only what JSON has."""

    def text_of_date(self, node: ScalarNode) -> str:
        return str(node.value)


_JsonValues.add_constructor("tag:yaml.org,2002:timestamp", _JsonValues.text_of_date)


def _depth(text: str) -> int:
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest


def _request(value: Any, place: str, made_key: str, problems: list[FieldProblem]) -> FiledRequest | None:
    """One request, or None after its problems were added."""
    if not isinstance(value, dict):
        problems.append(FieldProblem(place, "is no mapping; write partition:, subject:, target: and so on"))
        return None
    values, found = _read(value, place)
    problems += found
    if found:
        return None
    key = values.pop(KEY_MEMBER)
    body = {name: member for name, member in value.items() if name != KEY_MEMBER}
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    idempotency = Idempotency(key or made_key, hashlib.sha256(canonical.encode()).digest())
    return FiledRequest(place, NewRequest(**values), idempotency)


def _read(value: dict[Any, Any], place: str) -> tuple[dict[str, Any], list[FieldProblem]]:
    problems = [
        FieldProblem(
            f"{place}/{name}", f"is no member of a request; remove it (members: {', '.join(MEMBERS)})"
        )
        for name in value
        if name not in MEMBERS
    ]
    values: dict[str, Any] = {}
    for name, member in MEMBERS.items():
        if name not in value and member.is_required:
            problems.append(FieldProblem(f"{place}/{name}", "is missing; add it"))
            continue
        try:
            values[name] = member.read(value[name]) if name in value else member.absent()
        except _BadMember as problem:
            problems.append(FieldProblem(f"{place}/{name}", str(problem)))
    return values, problems


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _BadMember("is no text; put it in quotes")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _BadMember("is no whole number; write one without quotes")
    return value


def _action(value: Any) -> Action:
    names = {action.name.lower(): action for action in Action}
    if value not in names:
        raise _BadMember(f"is unknown; write {', '.join(names)}")
    return names[value]


def _operation_id(value: Any) -> OperationId:
    try:
        return OperationId(uuid.UUID(_text(value)))
    except ValueError:
        raise _BadMember(
            "is no UUID; write 32 hex digits in five groups in quotes, or leave it out"
        ) from None


def _key(value: Any) -> str:
    key = _text(value)
    if not 0 < len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable():
        raise _BadMember(f"is no key; write 1 to {LONGEST_KEY} printable ASCII characters")
    return key


def _moment(value: Any) -> datetime | None:
    if value is None:
        return None
    remedy = "write an RFC 3339 time such as 2026-12-31T23:59:59Z, or leave it out"
    try:
        moment = datetime.fromisoformat(_text(value))
    except ValueError:
        raise _BadMember(f"is no time; {remedy}") from None
    if moment.tzinfo is None:
        raise _BadMember(f"has no offset from UTC; {remedy}")
    return moment.astimezone(UTC).replace(tzinfo=None)


def _edits(value: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list) or not all(isinstance(edit, dict) for edit in value):
        raise _BadMember("is no list of mappings; write `- {op: put, path: …, content: …}`")
    _require_json(value)
    return tuple(value)


def _require_json(value: Any) -> None:
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise _BadMember("has a key that is no text; put it in quotes")
        for inner in value.values():
            _require_json(inner)
    elif isinstance(value, list):
        for inner in value:
            _require_json(inner)
    elif value is not None and not isinstance(value, str | int | float | bool):
        raise _BadMember(
            f"holds a {type(value).__name__}; write what JSON has: text, numbers, lists, mappings"
        )


@dataclass(frozen=True, slots=True)
class Member:
    """How one member is read. `absent` makes its value where it is left out."""

    read: Callable[[Any], Any]
    is_required: bool = False
    absent: Callable[[], Any] = lambda: None


MEMBERS: Final[Mapping[str, Member]] = {
    "operation_id": Member(_operation_id, absent=lambda: OperationId(uuid.uuid4())),
    "partition": Member(_text, is_required=True),
    "subject": Member(_text, is_required=True),
    "target": Member(_text, is_required=True),
    "action": Member(_action, is_required=True),
    "edits": Member(_edits, is_required=True),
    "title": Member(_text, is_required=True),
    "requested_by": Member(_text, is_required=True),
    "expires_at": Member(_moment),
    "on_expiry": Member(lambda value: None if value is None else _edits(value)),
    "priority": Member(_number, absent=lambda: 0),
    KEY_MEMBER: Member(_key),
}


def _bad(place: str, message: str) -> InvalidRequest:
    return InvalidRequest([FieldProblem(place, message)])
