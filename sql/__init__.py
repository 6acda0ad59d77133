"""Every table and every statement of gitlab-sync, with the loader that hands them out by name.

What the file says is what is executed: nothing here builds, joins or changes a statement. The rules of the
files are checked while they are read, once per process: a broken file stops the start, not a settlement.

- `-- name: noun_verb[_if_guard]`, then at least one comment line of purpose and guard, then one statement;
- among those lines `-- index: table.key, table.key` names the indexes that the plan uses, or `-- index: none`
  says that it needs none;
- a statement ends where a line ends with a semicolon; parameters are `%(name)s`, any other per cent sign is
  doubled.

Never talks to a database and never reads an environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

_MARKER: Final = "schema_migration_list"  # read at every start; no other package called `sql` has it
_BLOCK: Final = re.compile(r"-- name: ([a-z][a-z0-9_]*)[ \t]*\n((?:--[^\n]*\n)*)(.*)", re.DOTALL)
_INDEX: Final = re.compile(r"-- index: (?:none\b.*|(?P<keys>\w+\.\w+(?:, *\w+\.\w+)*))")
_PARAMETER: Final = re.compile(r"%\((\w+)\)s")
_MIGRATION: Final = re.compile(r"\d{4}_[a-z0-9_]+\.sql")


class BadSqlFile(Exception):
    """A file of this package breaks the rules above, or a foreign package `sql` was imported instead."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement. `index` is what its plan uses: keys, none at all, or None if not said."""

    name: str
    text: str
    parameters: frozenset[str]
    index: tuple[str, ...] | None
    comment: str
    source: str


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file; `checksum` is the SHA-256 of its bytes, `statements` are its steps in order."""

    file: str
    checksum: str
    statements: tuple[str, ...]


def statement(name: str) -> Statement:
    """Hand out one statement. An unknown name is a KeyError: only our own code names statements."""
    return all_statements()[name]


@cache
def all_statements() -> dict[str, Statement]:
    """Read every statement file, in order of file and place."""
    found: dict[str, Statement] = {}
    for source, text in _read("statements"):
        for item in parse_statements(source, text):
            if item.name in found:
                raise BadSqlFile(f"{source}: {item.name} is also in {found[item.name].source}")
            found[item.name] = item
    if _MARKER not in found:
        raise BadSqlFile(f"no statement {_MARKER}: a foreign package `sql` is on the path, or ours is cut")
    return found


@cache
def migrations() -> tuple[Migration, ...]:
    """Read the numbered files in order. Raises BadSqlFile for a wrong name or a number used twice."""
    found = tuple(read_migration(name, text) for name, text in _read("migrations"))
    if len({migration.file[:4] for migration in found}) != len(found):
        raise BadSqlFile("two migrations carry one number")
    return found


def read_migration(file: str, text: str) -> Migration:
    """Take one migration apart; the name must be `NNNN_words.sql`."""
    if not _MIGRATION.fullmatch(file):
        raise BadSqlFile(f"{file}: migrations are called NNNN_words.sql")
    return Migration(file, sha256(text.encode()).hexdigest(), split_statements(file, text))


def schema_text() -> str:
    """Hand out the picture of the whole schema; `split_statements` gives its steps."""
    return files(__name__).joinpath("schema.sql").read_text(encoding="utf-8")


def split_statements(source: str, text: str) -> tuple[str, ...]:
    """Cut text into statements at semicolons that end a line; comments before a statement stay with it."""
    *pieces, rest = re.split(r";[ \t]*$", text, flags=re.MULTILINE)
    if _without_comments(rest):
        raise BadSqlFile(f"{source}: the last statement does not end with a semicolon")
    if not all(_without_comments(piece) for piece in pieces):
        raise BadSqlFile(f"{source}: a semicolon with no statement before it")
    return tuple(piece.strip() for piece in pieces)


def parse_statements(source: str, text: str) -> Iterator[Statement]:
    """Take one statement file apart, in order; raises BadSqlFile naming the place and what is wrong there."""
    head, *blocks = re.split(r"^(?=-- name:)", text, flags=re.MULTILINE)
    if _without_comments(head):
        raise BadSqlFile(f"{source}: text before the first `-- name:`")
    for block in blocks:
        parsed = _BLOCK.fullmatch(block)
        if parsed is None:
            raise BadSqlFile(f"{source}: {block.splitlines()[0]!r} is no `-- name: noun_verb`")
        yield _statement(source, *parsed.groups())


def _statement(source: str, name: str, header: str, body: str) -> Statement:
    place = f"{source}: {name}"
    lines = header.splitlines()
    purpose = [line.lstrip("- ") for line in lines if not line.startswith("-- index:")]
    if not any(purpose):
        raise BadSqlFile(f"{place} has no line that says its purpose")
    steps = split_statements(place, body)
    if len(steps) != 1:
        raise BadSqlFile(f"{place} holds {len(steps)} statements instead of one")
    if "%" in _PARAMETER.sub("", steps[0].replace("%%", "")):
        raise BadSqlFile(f"{place} has a per cent sign that is neither doubled nor a parameter")
    parameters = frozenset(_PARAMETER.findall(steps[0]))
    index = _index(place, [line for line in lines if line.startswith("-- index:")])
    return Statement(name, steps[0], parameters, index, "\n".join(purpose), source)


def _index(place: str, lines: list[str]) -> tuple[str, ...] | None:
    if not lines:
        return None
    found = _INDEX.fullmatch(lines[0].rstrip())
    if found is None or len(lines) > 1:
        raise BadSqlFile(f"{place}: write one `-- index: table.key, table.key`, or `-- index: none`")
    return tuple(key.strip() for key in found["keys"].split(",")) if found["keys"] else ()


def _without_comments(text: str) -> str:
    return "".join(line for line in text.splitlines() if line.strip() and not line.startswith("--"))


def _read(folder: str) -> list[tuple[str, str]]:
    entries = [entry for entry in files(__name__).joinpath(folder).iterdir() if entry.name.endswith(".sql")]
    return sorted((entry.name, entry.read_text(encoding="utf-8")) for entry in entries)
