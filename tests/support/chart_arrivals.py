"""What values of the chart are for: each is set, and must be found in the manifests that it belongs into.

The names are those of the rows in guides/CHART.md that say *arrives*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.support.chart import Document, containers, of_kind, one, pod_specs

Found = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Arrival:
    """What is set, where it is looked for, and what each manifest found there must contain."""

    values: dict[str, Any]
    where: Callable[[list[Document]], Found]
    contains: dict[str, Any]


def every_pod(documents: list[Document]) -> Found:
    """Of Deployments, Jobs, CronJobs and the test."""
    return [pod["spec"] for pod in pod_specs(documents)]


def serving(documents: list[Document]) -> Found:
    """Pods of Deployments."""
    return [each["spec"]["template"]["spec"] for each in of_kind(documents, "Deployment")]


def own_containers(documents: list[Document]) -> Found:
    """Those that have settings; that of `helm test` has none."""
    own = [container for pod in pod_specs(documents) for container in containers(pod)]
    return [container for container in own if container["name"] != "test"]


def everything(documents: list[Document]) -> Found:
    """The metadata of every object."""
    return [document["metadata"] for document in documents]


def every(kind: str) -> Callable[[list[Document]], Found]:
    """A finder of all objects of a kind."""

    def found(documents: list[Document]) -> Found:
        return of_kind(documents, kind)

    return found


def the_service(documents: list[Document]) -> Found:
    """That of API and webhooks."""
    return [one(documents, "Service")["spec"]]


def contains(wanted: Any, found: Any) -> bool:
    """True if `found` has all of `wanted`: keys of maps, and for each item of a list one like it."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            contains(value, found.get(key)) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and all(
            any(contains(item, other) for other in found) for item in wanted
        )
    return bool(wanted == found)


RUNS: Final[dict[str, Any]] = {"cronJobs": {"reconcile": {"enabled": True}}, "topology": "split"}
_LIMITS: Final = {"timeouts": {"request": "30s"}, "filters": [{"type": "RequestHeaderModifier"}]}
_PARENTS: Final = {"parentRefs": [{"name": "edge"}]}
_TARGET: Final = {"apiVersion": "apps/v1", "kind": "Deployment"}
ARRIVALS: Final[dict[str, Arrival]] = {
    "User namespaces (`hostUsers`)": Arrival(RUNS | {"hostUsers": False}, every_pod, {"hostUsers": False}),
    "Lifecycle and grace period": Arrival(
        {"lifecycle": {"preStop": {"exec": {"command": ["true"]}}}, "terminationGracePeriodSeconds": 99},
        serving,
        {
            "terminationGracePeriodSeconds": 99,
            "containers": [{"lifecycle": {"preStop": {"exec": {"command": ["true"]}}}}],
        },
    ),
    "Horizontal autoscaler": Arrival(
        {"http": {"autoscaling": {"enabled": True, "maxReplicas": 9}}},
        every("HorizontalPodAutoscaler"),
        {"spec": {"maxReplicas": 9, "scaleTargetRef": _TARGET}},
    ),
    "Vertical autoscaler": Arrival(
        {"http": {"verticalAutoscaling": {"enabled": True, "maxAllowed": {"cpu": "1"}}}},
        every("VerticalPodAutoscaler"),
        {
            "spec": {
                "targetRef": _TARGET,
                "updatePolicy": {"updateMode": "Off"},
                "resourcePolicy": {
                    "containerPolicies": [{"containerName": "gitlab-sync", "maxAllowed": {"cpu": "1"}}]
                },
            }
        },
    ),
    "Topology spread": Arrival(
        {
            "topologySpreadConstraints": [
                {"maxSkew": 2, "topologyKey": "{{ .Release.Name }}", "whenUnsatisfiable": "DoNotSchedule"}
            ]
        },
        serving,
        {"topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "rel"}]},
    ),
    "… over hosts and zones by default": Arrival(
        {"topology": "split"},
        serving,
        {
            "topologySpreadConstraints": [
                {"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"},
                {"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"},
            ]
        },
    ),
    "Affinity, tolerations, node selector": Arrival(
        RUNS
        | {
            "affinity": {"nodeAffinity": {}},
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"kubernetes.io/os": "linux"},
        },
        every_pod,
        {
            "affinity": {"nodeAffinity": {}},
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"kubernetes.io/os": "linux"},
        },
    ),
    "Priority class": Arrival(
        RUNS | {"priorityClassName": "important"}, every_pod, {"priorityClassName": "important"}
    ),
    "Runtime class and scheduler": Arrival(
        RUNS | {"runtimeClassName": "gvisor", "schedulerName": "own"},
        every_pod,
        {"runtimeClassName": "gvisor", "schedulerName": "own"},
    ),
    "Host aliases and DNS": Arrival(
        RUNS
        | {
            "hostAliases": [{"ip": "10.0.0.9", "hostnames": ["gitlab.example.org"]}],
            "dnsPolicy": "None",
            "dnsConfig": {"nameservers": ["10.0.0.10"]},
        },
        every_pod,
        {
            "hostAliases": [{"ip": "10.0.0.9", "hostnames": ["gitlab.example.org"]}],
            "dnsPolicy": "None",
            "dnsConfig": {"nameservers": ["10.0.0.10"]},
        },
    ),
    "More variables, also from Secrets and ConfigMaps": Arrival(
        RUNS
        | {"extraEnv": [{"name": "TZ", "value": "UTC"}], "extraEnvFrom": [{"secretRef": {"name": "more"}}]},
        own_containers,
        {"env": [{"name": "TZ", "value": "UTC"}], "envFrom": [{"secretRef": {"name": "more"}}]},
    ),
    "More arguments": Arrival(
        {"topology": "split", "http": {"extraArgs": ["--more"]}, "worker": {"extraArgs": ["--more"]}},
        serving,
        {"containers": [{"args": ["--more"]}]},
    ),
    "More volumes and mounts": Arrival(
        RUNS
        | {
            "extraVolumes": [{"name": "more", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        },
        own_containers,
        {"volumeMounts": [{"name": "more", "mountPath": "/more"}]},
    ),
    "Init containers and sidecars": Arrival(
        {
            "initContainers": [{"name": "before", "image": "before:1"}],
            "sidecars": [{"name": "beside", "image": "beside:1"}],
        },
        serving,
        {"initContainers": [{"name": "before"}], "containers": [{"name": "beside"}]},
    ),
    "Manifests of one's own, with templates filled in": Arrival(
        {"extraObjects": ["apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Release.Name }}-own\n"]},
        every("Secret"),
        {"metadata": {"name": "rel-own"}},
    ),
    "Image by registry, repository, tag or digest, pull policy": Arrival(
        {
            "image": {
                "registry": "r.example.org",
                "repository": "a/b-gitlab-sync",
                "digest": f"sha256:{'0' * 64}",
                "pullPolicy": "Always",
            }
        },
        own_containers,
        {
            "image": f"r.example.org/a/b-gitlab-sync@sha256:{'0' * 64}",
            "imagePullPolicy": "Always",
        },
    ),
    "Registry and pull secrets for all images, also from a parent chart": Arrival(
        RUNS | {"global": {"imageRegistry": "r.example.org", "imagePullSecrets": ["pull"]}},
        every_pod,
        {
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [{"image": "r.example.org/gitlab-sync:0.1.0"}],
        },
    ),
    "Labels and annotations for everything": Arrival(
        RUNS | {"commonLabels": {"team": "platform"}, "commonAnnotations": {"example.org/owner": "platform"}},
        everything,
        {"labels": {"team": "platform"}, "annotations": {"example.org/owner": "platform"}},
    ),
    "Annotations of the workload itself": Arrival(
        {"topology": "split", "deploymentAnnotations": {"example.org/restart": "when a Secret changes"}},
        every("Deployment"),
        {"metadata": {"annotations": {"example.org/restart": "when a Secret changes"}}},
    ),
    "Number of old ReplicaSets, roll-out strategy": Arrival(
        {"revisionHistoryLimit": 7, "http": {"strategy": {"type": "Recreate"}}},
        every("Deployment"),
        {"spec": {"revisionHistoryLimit": 7, "strategy": {"type": "Recreate"}}},
    ),
    "Namespace of everything": Arrival(
        RUNS | {"namespaceOverride": "elsewhere"}, everything, {"namespace": "elsewhere"}
    ),
    "Service account: made or named, annotated, without a token": Arrival(
        {"serviceAccount": {"name": "own", "annotations": {"example.org/role": "none"}}},
        every("ServiceAccount"),
        {
            "automountServiceAccountToken": False,
            "metadata": {"name": "own", "annotations": {"example.org/role": "none"}},
        },
    ),
    "Service: type, class, source ranges, families, preferred replicas": Arrival(
        {
            "service": {
                "type": "LoadBalancer",
                "loadBalancerClass": "own",
                "loadBalancerSourceRanges": ["10.0.0.0/8"],
                "ipFamilyPolicy": "PreferDualStack",
                "ipFamilies": ["IPv6", "IPv4"],
                "trafficDistribution": "PreferSameZone",
            }
        },
        the_service,
        {
            "type": "LoadBalancer",
            "loadBalancerClass": "own",
            "loadBalancerSourceRanges": ["10.0.0.0/8"],
            "ipFamilyPolicy": "PreferDualStack",
            "ipFamilies": ["IPv6", "IPv4"],
            "trafficDistribution": "PreferSameZone",
        },
    ),
    "HTTPRoute (Gateway API), with filters and limits of time": Arrival(
        {
            "httpRoute": {"enabled": True} | _PARENTS | _LIMITS,
            "webhookHttpRoute": {"enabled": True} | _PARENTS | _LIMITS,
        },
        every("HTTPRoute"),
        {"spec": {"parentRefs": [{"name": "edge"}], "rules": [_LIMITS]}},
    ),
}
