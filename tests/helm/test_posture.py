"""What Kubernetes' restricted profile asks for, and what this service must never get or give away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.chart import MODES, How, containers, of_kind, one, pod_specs, render

every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda path: path.name.removesuffix("-values.yaml"))


@every_mode
@pytest.mark.parametrize("is_upgrade", [False, True], ids=["install", "upgrade"])
def test_every_pod_is_as_restricted_as_can_be(mode: Path, *, is_upgrade: bool) -> None:
    """No root, no capability, nothing to write on but /tmp, no token of Kubernetes; Jobs and tests too."""
    pods = pod_specs(render(mode, How(is_upgrade=is_upgrade)))
    assert pods
    for pod in pods:
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert not [volume for volume in spec.get("volumes", []) if "hostPath" in volume]
        for container in containers(pod):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]


@every_mode
def test_kubernetes_sets_no_variables_that_the_service_would_refuse(mode: Path) -> None:
    """For a Service `gitlab-sync` a pod would get GITLAB_SYNC_PORT, and `serve` stops at unknown settings."""
    assert [pod for pod in pod_specs(render(mode)) if pod["spec"]["enableServiceLinks"] is not False] == []


def test_no_secret_passes_through_a_pod() -> None:
    """Even with secrets in the values, manifests of pods name files, and one Secret holds the texts."""
    secrets = {
        "database": {"url": "mysql://u:canary-1@h/n"},
        "gitlab": {"token": "canary-2"},
        "webhook": {"tokens": "canary-3"},
        "api": {"tokens": "canary-4"},
        "notifications": {"url": "https://r.example.org", "secret": "canary-5"},
    }
    for is_upgrade in (False, True):
        documents = render(secrets, How(is_upgrade=is_upgrade))
        holders = {document["kind"] for document in documents if "canary" in str(document)}
        assert holders == {"Secret"}


def test_with_existing_secrets_the_chart_makes_none() -> None:
    """The ordinary way leaves no secret in the release."""
    assert (
        of_kind(render({"existingSecret": "s", "gitlab": {"url": "https://g.example.org"}}), "Secret") == []
    )


def test_openshift_chooses_users_itself() -> None:
    """An id that is named would be refused there."""
    for pod in pod_specs(render({"openshift": True})):
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(pod["spec"]["securityContext"])


def test_a_changed_partition_or_secret_rolls_the_pods() -> None:
    """The service reads both at its start only."""
    before: dict[str, Any] = {
        "partitions": {"p": {"project": 1, "target_branch": "main"}},
        "database": {"url": "mysql://u:p@h/n"},
    }
    stamps = [
        one(render(before | change), "Deployment")["spec"]["template"]["metadata"]["annotations"]
        for change in (
            {},
            {"partitions": {"p": {"project": 2, "target_branch": "main"}}},
            {"database": {"url": "mysql://u:q@h/n"}},
        )
    ]
    assert stamps[0]["checksum/partitions"] != stamps[1]["checksum/partitions"]
    assert stamps[0]["checksum/secret"] != stamps[2]["checksum/secret"]
    assert stamps[0]["checksum/secret"] == stamps[1]["checksum/secret"]


@pytest.mark.parametrize(("kubernetes", "way"), [("1.28.0", "exec"), ("1.29.0", "exec"), ("1.30.0", "sleep")])
def test_the_pause_before_the_end_is_one_that_this_kubernetes_knows(kubernetes: str, way: str) -> None:
    """`sleep` as a lifecycle handler is on by default from 1.30."""
    (container,) = one(render({}, How(kubernetes=kubernetes)), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    assert set(container["lifecycle"]["preStop"]) == {way}
