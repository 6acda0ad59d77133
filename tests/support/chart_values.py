"""Draws random values that a schema takes: some keys away from their defaults, whole sections switched on.

A type that is Kubernetes' own and open is drawn from the schema's `examples`; everything else from types,
enums, bounds. A pattern without examples takes those of a few texts that match it: to invert regular
expressions is not the aim.
"""

from __future__ import annotations

import random
import re
from typing import Any, Final

Drawn = dict[str, Any]
Schema = dict[str, Any]

_CHANCE: Final = 0.25
# Switched on half of the time: else most draws would make nothing but Deployments.
_SWITCH: Final = "enabled"
_TEXTS: Final = (
    "", "some-text", "SomeText", "/some/path", "10.0.0.0/8", "mysql://user:pass@host/name", "Europe/Berlin",
    "registry.example.org:5000", "1.2.3", "yes", "0123", "sha256:" + "a" * 64,
)  # fmt: skip


def draw_values(schema: Schema, dice: random.Random) -> Drawn:
    """Values that the schema takes."""
    return _section(schema, schema["$defs"], dice)


def _section(schema: Schema, definitions: Schema, dice: random.Random) -> Drawn:
    drawn: Drawn = {}
    for key, below in schema["properties"].items():
        if "properties" in below and "$ref" not in below and "default" not in below:
            section = _section(below, definitions, dice)
            if section:
                drawn[key] = section
        elif dice.random() < (0.5 if key == _SWITCH else _CHANCE):
            drawn[key] = _value(below, definitions, dice, below.get("default"))
    return drawn


def _value(schema: Schema, definitions: Schema, dice: random.Random, default: Any = None) -> Any:
    if "$ref" in schema:
        return _value(definitions[schema["$ref"].rpartition("/")[2]], definitions, dice, default)
    if "enum" in schema:
        return dice.choice(schema["enum"])
    if "examples" in schema:
        return dice.choice(schema["examples"])
    match schema["type"]:
        case "boolean":
            return dice.random() < 0.5
        case "integer" | "number":
            return _number(schema, dice)
        case "array":
            return _array(schema, definitions, dice)
        case "object":
            return _object(schema, definitions, dice)
        case _:
            fitting = [text for text in (*_TEXTS, default) if isinstance(text, str) and _fits(text, schema)]
            return dice.choice(fitting)


def _fits(text: str, schema: Schema) -> bool:
    within = schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 1000)
    return within and re.search(schema.get("pattern", ""), text) is not None


def _number(schema: Schema, dice: random.Random) -> int | float:
    least, most = schema.get("minimum", 0), schema.get("maximum", 1000)
    if schema["type"] == "number":
        return round(dice.uniform(least, most), 2)
    return int(dice.choice([least, most, dice.randint(least, most)]))


def _array(schema: Schema, definitions: Schema, dice: random.Random) -> list[Any]:
    count = max(schema.get("minItems", 0), dice.randint(0, 3))
    drawn = [_value(schema["items"], definitions, dice) for _ in range(count)]
    return list({str(one): one for one in drawn if one is not None}.values())


def _object(schema: Schema, definitions: Schema, dice: random.Random) -> Drawn:
    more = schema.get("additionalProperties")
    if not isinstance(more, dict):
        return {}
    return {f"key-{number}": _value(more, definitions, dice) for number in range(dice.randint(0, 2))}
