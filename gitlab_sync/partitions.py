"""Reads the partitions file: which project and branch batches are made for, and by which policy.

YAML 1.2 by ruamel.yaml: `no` is a string, a doubled key is refused, tags stay inert. Everything wrong is a
ConfigError with one line for each problem, which names file, partition, field and remedy; nothing is
repaired or guessed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from gitlab_sync.errors import ConfigError
from gitlab_sync.model import (
    Approval,
    MergeMode,
    OnFailure,
    Partition,
    PipelineAnswer,
    PipelinePolicy,
    Squash,
)
from gitlab_sync.setting_secrets import named_file

LARGEST_FILE_BYTES: Final = 1_048_576
DEEPEST_BRACKETS: Final = 20
LARGEST_BATCH: Final = 1_000
LONGEST_WAIT_S: Final = 30 * 86_400
OWN_BRANCH_PREFIX: Final = "gitlab-sync/"

# The key is a database key, a metric label and part of a branch name.
_KEY: Final = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?")
_PROJECT_PATH: Final = re.compile(r"[A-Za-z0-9_.][\w.+-]*(?:/[A-Za-z0-9_.][\w.+-]*)+")
_BAD_IN_REF: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|^[-/.]|[/.]$|^@$")

_USERNAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
_AUTHOR_NAME: Final = re.compile(r"[^\s<>\x00-\x1f\x7f](?:[^<>\x00-\x1f\x7f]{0,98}[^\s<>\x00-\x1f\x7f])?")
_AUTHOR_EMAIL: Final = re.compile(r"[^\s<>@\x00-\x1f\x7f]{1,64}@[A-Za-z0-9.-]{1,189}")

E = TypeVar("E", bound=StrEnum)


class _BadField(ValueError):
    """A field does not hold what it should; the message says what to write."""


def load_partitions(path: Path) -> Mapping[str, Partition]:
    """Read the partitions file at `path`. Raises ConfigError with every problem found in it."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(
            [f"{_named(path)}: the partitions file cannot be read ({reason}); make it readable"]
        ) from None
    if len(content) > LARGEST_FILE_BYTES:
        raise ConfigError(
            [f"{path}: it is larger than {LARGEST_FILE_BYTES} bytes; remove what is not partitions"]
        )
    try:
        return parse_partitions(content.decode(), name=str(path))
    except UnicodeDecodeError:
        raise ConfigError([f"{path}: it is not UTF-8 text; save it as UTF-8"]) from None


def _named(path: Path) -> str:
    """A file that is not there may be something else in the wrong variable."""
    return f"{path}" if path.suffix in (".yaml", ".yml") else named_file(f"{path}")


def parse_partitions(text: str, *, name: str) -> Mapping[str, Partition]:
    """Read partitions from YAML; `name` is how the problems call the file."""
    document = _yaml(text, name)
    if not isinstance(document, dict) or set(document) != {"partitions"}:
        raise ConfigError(
            [f"{name}: the top level is not one key `partitions:`; put all partitions below that key"]
        )
    entries = document["partitions"]
    if not isinstance(entries, dict) or not entries:
        raise ConfigError([f"{name}: `partitions:` holds no partition; write a key and its fields below it"])
    problems: list[str] = []
    partitions: dict[str, Partition] = {}
    for key, fields in entries.items():
        found, partition = _partition(key, fields)
        problems += [f"{name}: partition {key!r}: {problem}" for problem in found]
        if partition is not None:
            partitions[partition.key] = partition
    if problems:
        raise ConfigError(problems)
    return MappingProxyType(partitions)


def _yaml(text: str, name: str) -> Any:
    # Nested brackets cost the parser time that grows with the square of their depth, then a RecursionError.
    if _depth(text) > DEEPEST_BRACKETS:
        raise ConfigError([f"{name}: brackets are nested deeper than {DEEPEST_BRACKETS}; write plain blocks"])
    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError([f"{name}: {where}it is not valid YAML: {error.problem}; mend that line"]) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(
            [f"{name}: it is not valid YAML ({type(error).__name__}); mend or rewrite it"]
        ) from None


def _depth(text: str) -> int:
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest


def _partition(key: Any, fields: Any) -> tuple[list[str], Partition | None]:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        return [
            "its key is not 1 to 64 of a-z, 0-9, '-', '_', with a letter or digit at both ends; rename it"
        ], None
    if not isinstance(fields, dict):
        return ["it has no fields; write at least project: and target_branch: below it"], None
    problems, values = _read(fields, _FIELDS)
    problems += [
        f"{name}: it is missing; {remedy}" for name, remedy in _REQUIRED.items() if name not in fields
    ]
    if not problems and values.get("min_batch", 1) > values.get("max_batch", 100):
        problems.append("min_batch: it is larger than max_batch; lower it")
    return problems, None if problems else Partition(key=key, **values)


def _read(
    fields: Mapping[Any, Any], readers: Mapping[str, Callable[[Any], Any]]
) -> tuple[list[str], dict[str, Any]]:
    problems: list[str] = []
    values: dict[str, Any] = {}
    for name, value in fields.items():
        if name not in readers:
            problems.append(f"{name}: there is no such field; {_nearest(str(name), readers)}")
            continue
        try:
            values[name] = readers[name](value)
        except _BadField as problem:
            problems.append(f"{name}{'' if str(problem).startswith('.') else ': '}{problem}")
    return problems, values


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"remove it (known: {', '.join(known)})"


def _project(value: Any) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str) and _PROJECT_PATH.fullmatch(value):
        return value
    raise _BadField(f"{value!r} is no project; write its number, such as 42, or its path, such as group/name")


def _branch(value: Any) -> str:
    if not isinstance(value, str) or not value or _BAD_IN_REF.search(value) or len(value.encode()) > 255:
        raise _BadField(f"{value!r} is not a branch name that Git accepts; write one such as main")
    if value.startswith(OWN_BRANCH_PREFIX):
        raise _BadField(
            f"{value!r} lies under {OWN_BRANCH_PREFIX}, where the batches' branches live; choose another"
        )
    return value


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise _BadField(f"{value!r} is not a whole number from {least} to {most}; write such a number")
        return value

    return read


def _choice(kind: type[E]) -> Callable[[Any], E]:
    def read(value: Any) -> E:
        if not isinstance(value, str) or value not in set(kind):
            raise _BadField(f"{value!r} is unknown; choose one of {', '.join(kind)}")
        return kind(value)

    return read


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _BadField(f"{value!r} is neither true nor false; write one of the two without quotes")
    return value


def _pipeline(value: Any) -> PipelinePolicy:
    if not isinstance(value, dict):
        raise _BadField(f"{value!r} is no mapping; write {{required: true, skipped: block}} and so on")
    problems, values = _read(value, _PIPELINE_FIELDS)
    if problems:
        raise _BadField("." + "; .".join(problems))
    return PipelinePolicy(**values)


def _texts(least: int, check: Callable[[str], str | None]) -> Callable[[Any], tuple[str, ...]]:
    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) < least:
            raise _BadField(f"{value!r} is not a list of at least {least}; write it in square brackets")
        for position, item in enumerate(value):
            problem = check(item) if isinstance(item, str) and item else "is not a text; put it in quotes"
            if problem:
                raise _BadField(f"entry {position} ({item!r}) {problem}")
        return tuple(cast(list[str], value))

    return read


def _path_pattern(text: str) -> str | None:
    if text.startswith("/") or "\\" in text or ".." in text.split("/") or not text.isprintable():
        return (
            "is no pattern of paths; write it from the repository's root without a leading / and without .."
        )
    return None


def _label(text: str) -> str | None:
    if "," in text or len(text) > 255 or not text.isprintable() or text != text.strip():
        return "is no label; write up to 255 characters without commas or blanks at the ends"
    return None


def _username(text: str) -> str | None:
    if not _USERNAME.fullmatch(text):
        return "is no username; write it as in the address of the person's page, without @"
    return None


def _line(matching: re.Pattern[str], remedy: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not matching.fullmatch(value):
            raise _BadField(f"{value!r} {remedy}")
        return value

    return read


_PIPELINE_FIELDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "required": _truth,
    "skipped": _choice(PipelineAnswer),
    "canceled": _choice(PipelineAnswer),
    "missing": _choice(PipelineAnswer),
}
_FIELDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "project": _project,
    "target_branch": _branch,
    "max_batch": _whole(1, LARGEST_BATCH),
    "min_batch": _whole(1, LARGEST_BATCH),
    "max_wait_s": _whole(0, LONGEST_WAIT_S),
    "merge": _choice(MergeMode),
    "pipeline": _pipeline,
    "deadline_s": _whole(1, LONGEST_WAIT_S),
    "on_failure": _choice(OnFailure),
    "max_rounds": _whole(1, 100),
    "approval": _choice(Approval),
    "allowed_paths": _texts(1, _path_pattern),
    "protected_paths": _texts(0, _path_pattern),
    "labels": _texts(0, _label),
    "reviewers": _texts(0, _username),
    "assignees": _texts(0, _username),
    "author_name": _line(_AUTHOR_NAME, "is no name; write up to 100 characters without <, > and line ends"),
    "author_email": _line(_AUTHOR_EMAIL, "is no e-mail address; write one such as bot@example.com"),
    "squash": _choice(Squash),
}
_REQUIRED: Final[Mapping[str, str]] = {
    "project": "write the project's number or path",
    "target_branch": "write the branch that batches merge into",
}
