"""What is set in the values is found in the manifests, and what is added may be written as a template."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chart import MODES, How, of_kind, one, render
from tests.support.chart_arrivals import ARRIVALS, RUNS, contains, every_pod, own_containers, serving


@pytest.mark.parametrize("name", ARRIVALS)
def test_what_is_set_arrives(name: str) -> None:
    """In every manifest that it belongs into."""
    arrival = ARRIVALS[name]
    found = arrival.where(render(arrival.values))
    assert found
    for each in found:
        assert contains(arrival.contains, each), each


def test_what_is_added_may_name_what_the_release_makes() -> None:
    """A ConfigMap of `extraObjects` is called after the release, so who mounts it must be able to say so."""
    name = "{{ .Release.Name }}-more"
    values = RUNS | {
        "migrations": {"mode": "initContainer"},
        "extraEnv": [{"name": "MORE", "value": name}],
        "extraEnvFrom": [{"configMapRef": {"name": name}}],
        "extraVolumes": [{"name": "more", "configMap": {"name": name}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": f"/{name}"}],
        "initContainers": [{"name": "before", "image": name}],
        "sidecars": [{"name": "beside", "image": name}],
    }
    documents = render(values)
    assert "{{" not in str(documents)
    for container in own_containers(documents):
        assert {"name": "MORE", "value": "rel-more"} in container["env"]
        assert {"configMapRef": {"name": "rel-more"}} in container["envFrom"]
        assert {"name": "more", "mountPath": "/rel-more"} in container["volumeMounts"]
    for pod in serving(documents):
        assert [each["image"] for each in pod["initContainers"] if each["name"] == "before"] == ["rel-more"]
        assert [each["image"] for each in pod["containers"] if each["name"] == "beside"] == ["rel-more"]
    assert str(documents).count("'configMap': {'name': 'rel-more'}") == len(every_pod(documents)) - 1


@pytest.mark.parametrize("mode", MODES, ids=lambda path: path.name)
def test_a_pod_that_fails_says_why_where_it_is_looked_for(mode: Path) -> None:
    """A wrong setting ends the process with a line for each problem; `kubectl describe pod` shows them."""
    for container in own_containers(render(mode)):
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_helm_test_asks_for_readiness_and_for_a_secret() -> None:
    """It is a hook of `helm test` alone, and can be left out."""
    (pod,) = of_kind(render({}), "Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    asked = pod["spec"]["containers"][0]["args"][1:]
    assert [address.partition("gitlab-sync")[2] for address in asked] == [
        "-metrics:8081/readyz",
        ":80/hooks/gitlab",
    ]
    assert of_kind(render({"tests": {"enabled": False}}), "Pod") == []


@pytest.mark.parametrize(
    ("kubernetes", "wish", "is_told"),
    [
        ("1.30.0", "PreferClose", False),
        ("1.31.0", "PreferClose", True),
        ("1.33.0", "PreferSameZone", False),
        ("1.34.0", "PreferSameZone", True),
    ],
)
def test_a_wish_that_this_kubernetes_does_not_know_is_left_out(
    kubernetes: str, wish: str, *, is_told: bool
) -> None:
    """It is a preference: without it everything works, with an unknown word nothing does."""
    documents = render({"service": {"trafficDistribution": wish}}, How(kubernetes=kubernetes))
    assert ("trafficDistribution" in one(documents, "Service")["spec"]) is is_told
