"""What belongs together finds each other: selectors, ports, names, references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.chart import CHART, MODES, containers, of_kind, one, pod_specs, render, run_helm

every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda path: path.name.removesuffix("-values.yaml"))


@every_mode
def test_every_selector_finds_its_pods_and_no_others(mode: Path) -> None:
    """Services, budgets and Deployments select replicas; pods of Jobs and tests carry other components."""
    documents = render(mode)
    labels = [pod["metadata"]["labels"] for pod in pod_specs(documents)]
    for kind in ("Service", "Deployment", "PodDisruptionBudget"):
        for document in of_kind(documents, kind):
            selector = document["spec"]["selector"]
            wanted = selector.get("matchLabels", selector)
            found = [each["app.kubernetes.io/component"] for each in labels if wanted.items() <= each.items()]
            assert found
            assert set(found) <= {"http", "worker"}


@every_mode
def test_every_mount_has_its_volume_and_every_reference_its_object(mode: Path) -> None:
    """A name that is mistyped in a template would leave pods waiting for ever."""
    documents = render(mode)
    made = {(each["kind"], each["metadata"]["name"]) for each in documents}
    given = {
        "gitlab-sync",
        "database",
        "database-owner",
        "gitlab",
        "webhook",
        "api",
        "notifications",
        "authorities",
        "partitions",
        "more",
    }
    for pod in pod_specs(documents):
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        assert len(volumes) == len(pod["spec"].get("volumes", []))
        for container in containers(pod):
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= set(volumes)
        for kind, name in _references(volumes.values()):
            assert name in given or (kind, name) in made
        account = pod["spec"].get("serviceAccountName", "default")
        assert account in {"default", "shared"} or ("ServiceAccount", account) in made


@pytest.mark.parametrize("kind", ["ServiceMonitor", "PodMonitor"])
def test_monitors_find_every_replica(kind: str) -> None:
    """Those of the worker too, which answers no calls."""
    switch = kind[0].lower() + kind[1:]
    documents = render({"topology": "split", "metrics": {switch: {"enabled": True}}})
    wanted = one(documents, kind)["spec"]["selector"]["matchLabels"]
    if kind == "ServiceMonitor":
        (service,) = [
            each
            for each in of_kind(documents, "Service")
            if wanted.items() <= each["metadata"]["labels"].items()
        ]
        wanted = service["spec"]["selector"]
    pods = [each for each in pod_specs(documents) if wanted.items() <= each["metadata"]["labels"].items()]
    assert {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods} == {"http", "worker"}
    for pod in pods:
        assert "management" in {port["name"] for port in pod["spec"]["containers"][0]["ports"]}


def test_a_network_policy_lets_through_what_is_needed() -> None:
    """In: callers and Prometheus. Out: DNS, database, GitLab, and the receiver of notifications."""
    policy = one(render({"networkPolicy": {"enabled": True, "databasePorts": [3307]}}), "NetworkPolicy")[
        "spec"
    ]
    assert [[port["port"] for port in rule["ports"]] for rule in policy["ingress"]] == [[8080], [8081]]
    assert [[port["port"] for port in rule["ports"]] for rule in policy["egress"]] == [
        [53, 53],
        [3307],
        [443],
    ]
    told = {"url": "https://r.example.org", "existingSecret": "n"}
    policy = one(render({"networkPolicy": {"enabled": True}, "notifications": told}), "NetworkPolicy")["spec"]
    assert len(policy["egress"]) == 4
    (expression,) = policy["podSelector"]["matchExpressions"]
    components = {
        pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pod_specs(render(_everything()))
    }
    assert components - set(expression["values"]) == {"test"}


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        ({"gitlab": {"url": "https://g.example.org:8443/gitlab"}}, [[53, 53], [3306], [8443]]),
        ({"gitlab": {"url": "http://g.example.org"}}, [[53, 53], [3306], [80]]),
        ({"gitlab": {"url": "https://[2001:db8::1]"}}, [[53, 53], [3306], [443]]),
        (
            {"notifications": {"url": "http://[2001:db8::1]:9000/x", "existingSecret": "n"}},
            [[53, 53], [3306], [443], [9000]],
        ),
        (
            {"gitlab": {"url": "https://g:8443"}, "networkPolicy": {"gitlabPorts": [443, 8443]}},
            [[53, 53], [3306], [443, 8443]],
        ),
        ({"openshift": True}, [[53, 53, 5353, 5353], [3306], [443]]),
    ],
    ids=str,
)
def test_the_network_policy_follows_the_addresses(values: dict[str, Any], ports: list[list[int]]) -> None:
    """A GitLab at another port was fenced off; and OpenShift's DNS pods listen at 5353."""
    policy = {"networkPolicy": {"enabled": True} | values.get("networkPolicy", {})}
    rules = one(render(values | policy), "NetworkPolicy")["spec"]["egress"]
    assert [[port["port"] for port in rule["ports"]] for rule in rules] == ports


def test_the_pod_of_helm_test_passes_the_network_policy() -> None:
    """It is let in beside those who are named."""
    peers = [{"podSelector": {"matchLabels": {"app": "edge"}}}]
    documents = render({"networkPolicy": {"enabled": True, "from": peers, "metricsFrom": peers}})
    (tester,) = of_kind(documents, "Pod")
    for rule in one(documents, "NetworkPolicy")["spec"]["ingress"]:
        allowed = [peer["podSelector"]["matchLabels"] for peer in rule["from"]]
        assert any(labels.items() <= tester["metadata"]["labels"].items() for labels in allowed)


def test_one_replica_has_no_disruption_budget() -> None:
    """It would keep its node from ever being emptied."""
    assert of_kind(render({"http": {"replicaCount": 1}}), "PodDisruptionBudget") == []
    scaled = render({"http": {"replicaCount": 1, "autoscaling": {"enabled": True}}})
    assert len(of_kind(scaled, "PodDisruptionBudget")) == 1
    assert "replicas" not in one(scaled, "Deployment")["spec"]


def test_there_is_a_round_for_each_partition() -> None:
    """Keys that a CronJob's name could not hold get jobs with names of their own."""
    keys = ["a_b", "a-b", "x" * 64]
    partitions = {key: {"project": 1, "target_branch": "main"} for key in keys}
    jobs = of_kind(render({"partitions": partitions, "cronJobs": {"rounds": {"enabled": True}}}), "CronJob")
    commands = [containers(pod)[0]["args"] for pod in pod_specs(jobs)]
    assert sorted(commands) == sorted(["round", key] for key in keys)
    assert all(len(job["metadata"]["name"]) <= 52 for job in jobs)
    assert len({job["metadata"]["name"] for job in jobs}) == len(keys)


def test_names_stay_within_what_kubernetes_takes() -> None:
    """The longest name that may be set, and the longest thing behind it."""
    documents = render(_everything() | {"fullnameOverride": "n" * 40})
    assert max(len(document["metadata"]["name"]) for document in documents) <= 63


NOTES: dict[str, tuple[dict[str, Any], str]] = {
    "the address of the narrow route": (
        {"webhookIngress": {"enabled": True, "host": "h.example.org", "tls": [{"hosts": ["h.example.org"]}]}},
        "https://h.example.org/hooks/gitlab",
    ),
    "the address that is set": (
        {"publicUrl": "https://p.example.org/"},
        "https://p.example.org/hooks/gitlab",
    ),
    "the address of a wide route that leads there": (
        {
            "ingress": {
                "enabled": True,
                "hosts": [{"host": "w.example.org", "paths": [{"path": "/"}]}],
                "tls": [{"hosts": ["w.example.org"]}],
            }
        },
        "https://w.example.org/hooks/gitlab",
    ),
    "no address that begins with a star": (
        {
            "webhookHttpRoute": {
                "enabled": True,
                "parentRefs": [{"name": "g"}],
                "hostnames": ["*.example.org"],
            }
        },
        "no route of this release is known",
    ),
    "how a webhook is made": ({}, "exec deployment/rel-gitlab-sync -- gitlab-sync hooks install"),
    "to wait for both Deployments": (
        {"topology": "split"},
        "sync\n   kubectl -n default rollout status deployment/rel-gitlab-sync-worker\n   helm test",
    ),
    "the address within the cluster": ({}, "http://rel-gitlab-sync.default.svc:80/hooks/gitlab"),
    "what is missing": ({}, "The pods will not start"),
    "that the database is missing": ({}, "database.existingSecret:"),
    "that the image cannot be pulled": ({}, "names no registry"),
    "that a secret would travel in the clear": (
        {"webhookIngress": {"enabled": True, "host": "h.example.org"}},
        "webhookIngress has no TLS",
    ),
    "that nobody would deliver notifications": (
        {
            "notifications": {"url": "https://r.example.org", "existingSecret": "n"},
            "roles": ["http", "rounds", "poller", "janitor"],
        },
        "roles lacks outbox",
    ),
    "that nothing would expire": ({"roles": ["http", "rounds", "poller", "outbox"]}, "roles lacks janitor"),
    "that no counter counts what a CronJob does": (
        {"roles": ["http", "rounds", "outbox", "janitor"], "cronJobs": {"reconcile": {"enabled": True}}},
        "is in no counter",
    ),
    "that secrets stand in the values": ({"gitlab": {"token": "t"}}, "Secrets stand in the values"),
}


@pytest.mark.parametrize("what", NOTES)
def test_the_notes_say(what: str) -> None:
    """What somebody who has just installed it has to know."""
    values, sentence = NOTES[what]
    said = run_helm(4, ["install", "rel", str(CHART), "--dry-run=client"], values)
    assert sentence in said.partition("NOTES:")[2]


def test_what_is_given_replaces_what_helm_would_merge_it_into() -> None:
    """Two handlers of a probe, or bounds of a rolling update beside `Recreate`, would be refused."""
    probe, strategy = {"exec": {"command": ["true"]}}, {"type": "Recreate"}
    deployment = one(render({"livenessProbe": probe, "http": {"strategy": strategy}}), "Deployment")
    assert deployment["spec"]["strategy"] == strategy
    assert "httpGet" not in deployment["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]


def _everything() -> dict[str, Any]:
    return {
        "topology": "split",
        "partitions": {"p": {"project": 1, "target_branch": "main"}},
        "cronJobs": {"rounds": {"enabled": True}, "reconcile": {"enabled": True}},
        "metrics": {"serviceMonitor": {"enabled": True}, "dashboard": {"enabled": True}},
    }


def _references(volumes: Any) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for volume in volumes:
        found += [
            ("Secret", each["secret"]["name"]) for each in volume.get("projected", {}).get("sources", [])
        ]
        found += [("Secret", volume["secret"]["secretName"])] if "secret" in volume else []
        found += [("ConfigMap", volume["configMap"]["name"])] if "configMap" in volume else []
    return found
