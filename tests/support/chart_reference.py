"""Writes the chart's values.schema.json and the table in its README from the comments of values.yaml.

    python -m tests.support.chart_reference     writes both

The comment above a key is its description, a line `@schema {…}` adds to the type that the default shows, a
line that begins with `##` begins a section. A key with a map below it is a section of its own unless it has a
`@schema`. Never reads anything but `helm/`; what it writes depends on nothing else, so a test can compare.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).parents[2] / "helm"
BEGIN: Final = "<!-- values: written by `make chart-reference` -->"
END: Final = "<!-- end of values -->"

_KEY: Final = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z]\w*):(?: |$)")
_COMMENT: Final = re.compile(r"^ *# ?(?P<text>.*)$")
_ANNOTATION: Final = "@schema "
_TYPES: Final = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


@dataclass(frozen=True, slots=True)
class Value:
    """One key of values.yaml with what stands above it. `schema` None: nothing but a description."""

    path: tuple[str, ...]
    section: str
    description: str
    schema: Mapping[str, Any] | None
    default: Any

    @property
    def is_leaf(self) -> bool:
        """True if the key is a value by itself, and no section."""
        is_open_section = self.schema == {"additionalProperties": True}
        return not isinstance(self.default, dict) or (self.schema is not None and not is_open_section)


def read_values() -> list[Value]:
    """Every key of values.yaml in order, down to the leaves."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    defaults = yaml.safe_load(text)
    found = [_value(path, section, comments, defaults) for path, section, comments in _keys(text)]
    leaves = {value.path for value in found if value.is_leaf}
    return [
        value for value in found if not any(value.path[:depth] in leaves for depth in range(len(value.path)))
    ]


def schema_text() -> str:
    """The whole of values.schema.json."""
    definitions = yaml.safe_load((CHART / "schema-definitions.yaml").read_text(encoding="utf-8"))
    root: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Values of the chart gitlab-sync",
        **_section("The values of the chart."),
    }
    for value in read_values():
        place = root
        for key in value.path[:-1]:
            place = place["properties"][key]
        place["properties"][value.path[-1]] = _schema(value)
    root["properties"]["enabled"] = {
        "type": "boolean",
        "description": "For a parent chart's condition; the chart itself does not read it.",
    }
    root["$defs"] = definitions
    return json.dumps(root, indent=1, ensure_ascii=False) + "\n"


def table_text() -> str:
    """The table of values for the README, a heading for each section."""
    lines: list[str] = []
    section = ""
    for value in read_values():
        if not value.is_leaf:
            continue
        if value.section != section:
            section = value.section
            lines += ["", f"### {section}", "", "| value | default | meaning |", "|---|---|---|"]
        default = json.dumps(value.default, ensure_ascii=False).replace("|", "\\|")
        meaning = value.description.replace("|", "\\|")
        lines.append(f"| `{'.'.join(value.path)}` | `{default}` | {meaning} |")
    return "\n".join([*lines, "", ""])


def readme_text() -> str:
    """The chart's README with the table of now in its place."""
    text = (CHART / "README.md").read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{table_text()}{END}{rest.partition(END)[2]}"


def _keys(text: str) -> Iterator[tuple[tuple[str, ...], str, list[str]]]:
    """Each key's path, its section and the comment lines directly above it."""
    path: list[str] = []
    section = ""
    comments: list[str] = []
    for line in text.splitlines():
        if line.startswith("## "):
            section, comments = line.removeprefix("## "), []
        elif comment := _COMMENT.match(line):
            comments.append(comment["text"])
        elif key := _KEY.match(line):
            path = [*path[: len(key["indent"]) // 2], key["key"]]
            yield tuple(path), section, comments
            comments = []
        else:
            comments = []


def _value(path: tuple[str, ...], section: str, comments: list[str], defaults: Any) -> Value:
    default = defaults
    for key in path:
        default = default[key] if isinstance(default, dict) else None
    said = [line for line in comments if not line.startswith(_ANNOTATION)]
    notes = [line.removeprefix(_ANNOTATION) for line in comments if line.startswith(_ANNOTATION)]
    schema = yaml.safe_load(notes[0]) if notes else None
    return Value(path, section, " ".join(said), schema, default)


def _section(description: str) -> dict[str, Any]:
    return {"type": "object", "description": description, "additionalProperties": False, "properties": {}}


def _schema(value: Value) -> dict[str, Any]:
    if not value.is_leaf:
        return _section(value.description or f"Values of `{'.'.join(value.path)}`.") | dict(
            value.schema or {}
        )
    schema: dict[str, Any] = {"description": value.description}
    extra = dict(value.schema or {})
    if not {"$ref", "enum", "type"} & set(extra):
        schema["type"] = _TYPES[type(value.default)]
    return schema | extra | {"default": value.default}


def main() -> None:
    """Write both files."""
    (CHART / "values.schema.json").write_text(schema_text(), encoding="utf-8")
    (CHART / "README.md").write_text(readme_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
