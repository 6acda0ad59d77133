"""A call's parameters, wherever they came from: query, JSON or form body, mixed as clients do mix them.

Values arrive as JSON types or as query text; the readers here accept both spellings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from gitlab_sync.sandbox.simulator.errors import ApiError, missing

_TRUE = {"true", "1", "yes", "on", "t"}
_FALSE = {"false", "0", "no", "off", "f"}


class Params:
    """Named values with GitLab's tolerance for their spelling."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str, default: str = "") -> str:
        value = self.values.get(name)
        return default if value is None else str(value)

    def optional_text(self, name: str) -> str | None:
        value = self.values.get(name)
        return None if value is None else str(value)

    def required(self, name: str) -> str:
        """Return a parameter that must not be left out (an empty one is the caller's business)."""
        if self.values.get(name) is None:
            raise missing(name)
        return str(self.values[name])

    def flag(self, name: str) -> bool | None:
        """Return a boolean; None: not given, or given as nothing."""
        value = str(self.values.get(name, "")).lower()
        if value in _TRUE:
            return True
        if value in _FALSE:
            return False
        if value in ("", "none"):
            return None
        raise ApiError(400, {"error": f"{name} is invalid"})

    def number(self, name: str, default: int) -> int:
        try:
            return int(self.values.get(name, default))
        except (TypeError, ValueError):
            raise ApiError(400, {"error": f"{name} is invalid"}) from None

    def items(self, name: str) -> list[str]:
        """Return a list given as an array or as text with commas."""
        value = self.values.get(name)
        parts = value if isinstance(value, list) else str(value or "").split(",")
        return [str(part).strip() for part in parts if str(part).strip()]

    def numbers(self, name: str) -> list[int]:
        try:
            return [int(item) for item in self.items(name)]
        except ValueError:
            raise ApiError(400, {"error": f"{name} is invalid"}) from None


def read_params(query: str, content_type: str, body: bytes) -> Params:
    """Join query and body; the body wins."""
    values = _pairs(parse_qsl(query, keep_blank_values=True))
    if "json" in content_type and body.strip():
        values |= _json_object(body)
    elif "form-urlencoded" in content_type:
        values |= _pairs(parse_qsl(body.decode(), keep_blank_values=True))
    return Params(values)


def _pairs(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name.endswith("[]"):
            values.setdefault(name[:-2], []).append(value)
        else:
            values[name] = value
    return values


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        raise ApiError(400, {"error": "The body is not valid JSON"}) from None  # wording unverified
    if not isinstance(value, dict):
        raise ApiError(400, {"error": "The body is not an object"})  # wording unverified
    return value
