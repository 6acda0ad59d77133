"""Single YAML values: what a plain word means, and how a value is written so that every reader agrees.

Reading follows the core schema of YAML 1.2 (`no`, `12:30`, `2024-01-01` are text). Writing quotes whatever
YAML 1.1 readers would take for something else.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from gitlab_sync.documents.tree import Opaque, OpaqueKind

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS: Final = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,299})")
_FLOAT: Final = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]*)?\.[0-9]+|(?:0|[1-9][0-9]*)\.?)(?:[eE][-+]?[0-9]{1,5})?"
)
_UNSURE_NUMBER: Final = re.compile(
    r"[-+]?(?:[0-9][0-9_]*|0[xX][0-9a-fA-F_]+|0[oO]?[0-7_]+|0b[01_]+|[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?"
    r"|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
)

# Plain only if no YAML version could see anything but this text: starts with a letter, no indicator inside.
_SAFE_PLAIN: Final = re.compile(r"[^\W\d_][\w./+-]*(?:[ ][\w./+(][\w./+()-]*)*", re.ASCII)
_YAML_1_1_WORDS: Final = frozenset(
    ("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf")
)
_LINE_OF_BLOCK: Final = re.compile(
    r"[^\x00-\x08\x0a-\x1f\x7f-\xa0\ud800-\udfff\u2028\u2029\ufeff\ufffe\uffff]*"
)
_ESCAPE: Final = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")


def plain_value(text: str) -> Any:
    """The value of an unquoted word."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if abs(number) != float("inf") else Opaque(OpaqueKind.NUMBER, text)
    return Opaque(OpaqueKind.NUMBER, text) if _UNSURE_NUMBER.fullmatch(text) else text


def scalar_text(value: Any, *, like: str = "") -> str:
    """Write a value on one line; text in the quotes of `like` where that is possible."""
    if isinstance(value, str):
        return _string_text(value, like)
    return json.dumps(value, allow_nan=False)


def block_scalar_lines(value: str) -> list[str] | None:
    """The header and the unindented lines of a literal block; None if the text is better off quoted."""
    lines = value.split("\n")
    header = "|" if lines[-1] == "" else "|-"
    if lines[-1] == "":
        lines.pop()
    is_fit = len(lines) > 1 and lines[0][:1] not in ("", " ", "\t") and lines[-1].strip() != ""
    if not is_fit or not all(_LINE_OF_BLOCK.fullmatch(line) and line == line.rstrip() for line in lines):
        return None
    return [header, *lines]


def _string_text(value: str, like: str) -> str:
    if like == "'" and _LINE_OF_BLOCK.fullmatch(value) and "\t" not in value:
        return "'" + value.replace("'", "''") + "'"
    if like != '"' and _SAFE_PLAIN.fullmatch(value) and value.lower() not in _YAML_1_1_WORDS:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return _ESCAPE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
