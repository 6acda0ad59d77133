"""Takes statements of ours apart far enough to hold them against the house rules. No SQL parser.

Knows only the forms that the rules allow: one SET, one WHERE, aliases written out, no semicolon in strings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_STRING: Final = re.compile(r"'(?:[^']|'')*'")
_UPDATE: Final = re.compile(
    r"UPDATE\b(?P<tables>.+?)\bSET\b(?P<set>.+?)(?:\bWHERE\b(?P<where>.+))?", re.DOTALL
)
_TABLE: Final = re.compile(r"(?:\bUPDATE|\bFROM|JOIN|\bINTO)\s+(\w+)(?:\s+(?:AS\s+)?(\w+))?")
_TARGET: Final = re.compile(r"\s*(?:(\w+)\.)?(\w+)\s*=")
_NOT_AN_ALIAS: Final = frozenset(
    {"FORCE", "ON", "SET", "WHERE", "STRAIGHT_JOIN", "ORDER", "LIMIT", "VALUES", "SELECT"}
)


@dataclass(frozen=True, slots=True)
class Update:
    """An UPDATE: which tables it writes, by alias, what it sets there and under which conditions."""

    written: dict[str, str]
    assignments: dict[str, str]
    conditions: str


def without_strings(text: str) -> str:
    """The text without comments and with every string literal emptied."""
    code = re.sub(r"--[^\n]*", "", _STRING.sub("''", text))
    return re.sub(r"[ \t\n]+", " ", code).strip()


def strings(text: str) -> list[str]:
    """The string literals of the text."""
    return _STRING.findall(re.sub(r"--[^\n]*", "", text))


def tables(text: str) -> dict[str, str]:
    """Each alias and the table it stands for; a table without an alias stands for itself."""
    found = {}
    for table, alias in _TABLE.findall(without_strings(text)):
        found[table if alias.upper() in _NOT_AN_ALIAS or not alias else alias] = table
    return found


def update_of(text: str) -> Update | None:
    """The parts of an UPDATE; None for any other statement."""
    code = without_strings(text)
    parts = _UPDATE.fullmatch(code)
    if parts is None:
        return None
    aliases = tables("UPDATE " + parts["tables"])
    only = next(iter(aliases))
    assignments, written = {}, {}
    for piece in _at_top_level_commas(parts["set"]):
        target = _TARGET.match(piece)
        assert target is not None, piece
        alias = target[1] or only
        written[alias] = aliases[alias]
        assignments[f"{alias}.{target[2]}"] = piece[target.end() :].strip()
    return Update(written, assignments, f"{parts['tables']} {parts['where'] or ''}")


def _at_top_level_commas(text: str) -> list[str]:
    pieces, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return pieces
