"""One source for values: defaults, schema and documentation say the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from gitlab_sync.model import Approval, MergeMode, OnFailure, PipelineAnswer, Squash
from gitlab_sync.partitions import _FIELDS, _PIPELINE_FIELDS, _REQUIRED
from tests.support.chart import CHART
from tests.support.chart_reference import read_values, readme_text, schema_text


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """The schema as it is shipped."""
    loaded: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    return loaded


def test_schema_and_table_are_those_of_the_comments() -> None:
    """`make chart-reference` would change nothing."""
    assert (CHART / "values.schema.json").read_text(encoding="utf-8") == schema_text()
    assert (CHART / "README.md").read_text(encoding="utf-8") == readme_text()


def test_the_schema_is_one_and_takes_the_defaults(schema: dict[str, Any]) -> None:
    """It is well formed by the rules of schemas, and values.yaml alone is lawful."""
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")))


def test_every_value_says_what_it_is() -> None:
    """No key without a sentence that ends."""
    silent = [value.path for value in read_values() if value.is_leaf and not value.description.endswith(".")]
    assert silent == []


def test_every_key_of_the_defaults_is_described(schema: dict[str, Any]) -> None:
    """The reader of comments has missed none, however it is indented."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert list(_undescribed(defaults, schema)) == []


def test_no_section_takes_what_it_does_not_know(schema: dict[str, Any]) -> None:
    """`additionalProperties: false` everywhere but in `global`, which belongs to the parent chart."""
    assert list(_open_sections(schema, "")) == ["global"]


def test_the_examples_of_a_type_are_of_the_type(schema: dict[str, Any]) -> None:
    """What the property test draws from is lawful."""
    for name, definition in schema["$defs"].items():
        checker = Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})
        for example in definition.get("examples", []):
            checker.validate(example)


def test_a_partition_of_the_values_is_one_of_the_partitions_file(schema: dict[str, Any]) -> None:
    """Same fields, same words as the service reads."""
    partition = schema["$defs"]["partition"]
    fields = partition["properties"]
    assert set(fields) == set(_FIELDS)
    assert set(partition["required"]) == set(_REQUIRED)
    assert set(fields["pipeline"]["properties"]) == set(_PIPELINE_FIELDS)
    for name, kind in (
        ("merge", MergeMode),
        ("on_failure", OnFailure),
        ("approval", Approval),
        ("squash", Squash),
    ):
        assert set(fields[name]["enum"]) == {str(word) for word in kind}
    for name in ("skipped", "canceled", "missing"):
        assert set(fields["pipeline"]["properties"][name]["enum"]) == {str(word) for word in PipelineAnswer}


def _undescribed(defaults: Any, schema: dict[str, Any], path: str = "") -> Any:
    for key, default in defaults.items():
        known = schema["properties"].get(key)
        if known is None or "description" not in known:
            yield f"{path}{key}"
        elif isinstance(default, dict) and "properties" in known and "$ref" not in known:
            yield from _undescribed(default, known, f"{path}{key}.")


def _open_sections(schema: dict[str, Any], path: str) -> Any:
    if (
        schema.get("type") == "object"
        and "properties" in schema
        and schema.get("additionalProperties") is not False
    ):
        yield path
    for key, below in schema.get("properties", {}).items():
        yield from _open_sections(below, f"{path}.{key}".removeprefix("."))
