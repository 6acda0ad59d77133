"""Every mode of the chart on both Helms and every Kubernetes that it names."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from jsonschema import ValidationError

from tests.support.chart import (
    CHART,
    KUBERNETES,
    MAJORS,
    MODES,
    How,
    check_strictly,
    of_kind,
    render,
    run_helm,
)
from tests.support.readme import read_document

both_helms = pytest.mark.parametrize("major", MAJORS)
every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda path: path.name.removesuffix("-values.yaml"))


@both_helms
@every_mode
def test_lint_has_nothing_to_say(mode: Path, major: int) -> None:
    """`helm lint --strict` passes with the values of each mode."""
    said = run_helm(major, ["lint", "--strict", "--quiet", str(CHART)], mode)
    assert said.strip() == ""


@every_mode
def test_both_helms_render_the_same(mode: Path) -> None:
    """Whoever still has Helm 3 gets the same objects."""
    four, three = (render(mode, How(major=major)) for major in MAJORS)
    assert sorted(map(str, four)) == sorted(map(str, three))


@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_every_kubernetes_takes_every_mode(kubernetes: str) -> None:
    """No field that its schema does not know."""
    for mode in MODES:
        documents = render(mode, How(kubernetes=kubernetes))
        assert documents
        check_strictly(documents, kubernetes)


@every_mode
def test_an_upgrade_is_taken_too(mode: Path) -> None:
    """What is a hook only then is held against the schema as well."""
    check_strictly(render(mode, How(is_upgrade=True)))


def test_a_field_that_kubernetes_does_not_know_is_noticed() -> None:
    """The check is strict: it would see a slip of the pen in a template."""
    (deployment,) = of_kind(render({}), "Deployment")
    check_strictly([deployment])
    deployment["spec"]["template"]["spec"]["containers"][0]["preStop"] = {}
    with pytest.raises(ValidationError):
        check_strictly([deployment])


@every_mode
def test_every_object_says_whose_it_is(mode: Path) -> None:
    """Namespace and the common labels are on everything that is the chart's own; names are told apart."""
    documents = [
        each
        for each in render(mode)
        if "more" not in each["metadata"]["name"] and "text" not in each["metadata"]["name"]
    ]
    for document in documents:
        assert document["metadata"]["namespace"] == "default"
        assert document["metadata"]["labels"]["app.kubernetes.io/instance"] == "rel"
    keys = [(document["kind"], document["metadata"]["name"]) for document in documents]
    assert len(keys) == len(set(keys))


@both_helms
def test_a_chart_that_depends_on_it_may_switch_it_off(major: int) -> None:
    """A parent's `global` and `enabled` arrive among the values, and the schema lets them through."""
    assert render(
        {"enabled": True, "global": {"other": 1, "imageRegistry": "r.example.org"}}, How(major=major)
    )


def test_the_values_of_the_readme_are_enough() -> None:
    """Whoever copies the example gets a whole installation, and the notes miss nothing."""
    (text,) = [
        text
        for kind, text in read_document("README.md").fences
        if kind == "yaml" and "webhookIngress" in text
    ]
    values = yaml.safe_load(text)
    check_strictly(render(values))
    said = run_helm(4, ["install", "rel", str(CHART), "--dry-run=client"], values).partition("NOTES:")[2]
    assert "https://gitlab-sync.example.org/hooks/gitlab" in said
    assert "will not start" not in said
