"""The chart tells the service what the service understands: names, ports, paths, times."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest

from gitlab_sync.assembly import POOL_SIZE
from gitlab_sync.cli.serve import STOP_LIMIT_S
from gitlab_sync.cli.signals import LAST_CHANCE_S
from gitlab_sync.db.limits import COMMIT_LIMIT_S
from gitlab_sync.db.pool import QUIT_LIMIT_S
from gitlab_sync.partitions import load_partitions
from gitlab_sync.service import DRAIN_S, HAND_BACK_S, Role
from gitlab_sync.settings import _VARIABLES, PREFIX, Need, load_settings
from hooks.api.bodies import SUBMIT_LIMITS
from hooks.receiver import HOOK_LIMITS
from hooks.server import GRACE_S, KEPT_S, LAST_HEAD_S
from hooks.table import PROBES, PUBLIC
from tests.support.certificates import private_authority
from tests.support.chart import CHART, MODES, Document, containers, of_kind, one, pod_specs, render

_SECRETS = {
    "DATABASE_URL": "mysql://u:p@h/n",
    "GITLAB_TOKEN": "made-up-token",
    "GITLAB_READ_TOKEN": "made-up-token",
    "WEBHOOK_TOKENS": "made-up-token-0123456789",
    "WEBHOOK_SIGNING_KEYS": "whsec_" + base64.b64encode(bytes(32)).decode(),
    "API_TOKENS": f"portal:read:{'0' * 64}",
    "NOTIFY_SECRET": "whsec_" + base64.b64encode(bytes(32)).decode(),
}
_PARTITIONS = "partitions: {p: {project: 1, target_branch: main}}"


@pytest.mark.parametrize(
    "mode", [mode for mode in MODES if "nothing" not in mode.name], ids=lambda path: path.name
)
def test_the_service_reads_its_settings_from_what_is_mounted(mode: Path, tmp_path: Path) -> None:
    """With files where the chart mounts them `serve` and `migrate` would start."""
    pods = [pod for pod in pod_specs(render(mode)) if "helm.sh/hook" not in str(pod.get("metadata", {}))]
    assert pods
    ca_pem = private_authority(tmp_path / "authority").ca_file.read_text(encoding="utf-8")
    for pod in pods:
        _mount(pod, tmp_path, _SECRETS | {"ca.crt": ca_pem, "partitions.yaml": _PARTITIONS})
        for container in containers(pod):
            if "args" in container and container["name"] != "test":
                environ = _environment(container, tmp_path)
                load_settings(environ, need=_need(container["args"]))


def test_every_variable_is_a_setting_and_every_setting_can_be_set() -> None:
    """A setting that is added to the service gets a value in the chart, or its reason here."""
    known = {PREFIX + variable.name for variable in _VARIABLES}
    text = "".join(path.read_text(encoding="utf-8") for path in CHART.glob("templates/*.tpl"))
    told = set(re.findall(rf"name: ({PREFIX}[A-Z_]+)$", text, re.MULTILINE))
    told |= {PREFIX + name for name in re.findall(r'"variable" "([A-Z_]+)"', text)}
    assert {name.removesuffix("_FILE") if name not in known else name for name in told} == known


def test_the_partitions_of_the_values_are_read(tmp_path: Path) -> None:
    """Large numbers too: printed by Go, 2592000 would become 2.592e+06."""
    partitions = {"p": {"project": 123456789, "target_branch": "main", "deadline_s": 2_592_000}}
    file = tmp_path / "partitions.yaml"
    (made,) = of_kind(render({"partitions": partitions}), "ConfigMap")
    file.write_text(made["data"]["partitions.yaml"], encoding="utf-8")
    loaded = load_partitions(file)["p"]
    assert (loaded.project, loaded.deadline_s) == (123456789, 2_592_000)


def test_settings_in_seconds_are_printed_as_numbers(tmp_path: Path) -> None:
    """The smallest and the largest that the service takes."""
    for seconds in (0.05, 86400):
        (deployment,) = of_kind(render({"settings": {"pollIntervalSeconds": seconds}}), "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        (variable,) = [one for one in container["env"] if one["name"].endswith("POLL_INTERVAL_S")]
        assert float(variable["value"]) == seconds
        assert "e" not in variable["value"]


def test_roles_are_those_of_the_service() -> None:
    """One Deployment has them all; two share them out."""
    everything = ",".join(Role)
    assert _roles(one(render({}), "Deployment")) == everything
    split = render({"topology": "split"})
    assert _roles(one(split, "Deployment")) == Role.HTTP
    assert _roles(one(split, "Deployment", "-worker")) == everything.removeprefix("http,")


def test_probes_ask_paths_that_are_served_on_that_port() -> None:
    """Probes and metrics have a port of their own, which no Service for callers leads to."""
    documents = render({"metrics": {"serviceMonitor": {"enabled": True}}})
    (container,) = one(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    served = {endpoint.path for endpoint in PROBES}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in served
        assert container[probe]["httpGet"]["port"] == "management"
    (endpoint,) = one(documents, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["path"] in served
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    environ = {each["name"]: each["value"] for each in container["env"]}
    assert environ[f"{PREFIX}LISTEN"].endswith(f":{ports['http']}")
    assert environ[f"{PREFIX}MANAGEMENT_LISTEN"].endswith(f":{ports['management']}")
    assert [port["targetPort"] for port in one(documents, "Service")["spec"]["ports"]] == ["http"]


def test_the_narrow_routes_lead_to_the_webhook_and_nowhere_else() -> None:
    """Exactly the path that is served; sizes are let through that the service takes, and no larger ones."""
    (path,) = {endpoint.path for endpoint in PUBLIC if "/hooks/" in endpoint.path}
    documents = render(
        {
            "ingress": {"enabled": True, "hosts": [{"host": "a.example.org"}]},
            "webhookIngress": {"enabled": True, "host": "b.example.org"},
            "webhookHttpRoute": {"enabled": True, "parentRefs": [{"name": "edge"}]},
        }
    )
    narrow = one(documents, "Ingress", "-webhook")
    ((rule,), (route,)) = narrow["spec"]["rules"], one(documents, "HTTPRoute", "-webhook")["spec"]["rules"]
    assert [(each["path"], each["pathType"]) for each in rule["http"]["paths"]] == [(path, "Exact")]
    assert route["matches"] == [{"path": {"type": "Exact", "value": path}, "method": "POST"}]
    size = "nginx.ingress.kubernetes.io/proxy-body-size"
    assert narrow["metadata"]["annotations"][size] == f"{HOOK_LIMITS.size_bytes >> 20}m"
    wide = one(documents, "Ingress")
    assert wide["metadata"]["annotations"][size] == f"{SUBMIT_LIMITS.size_bytes >> 20}m"
    (prefix,) = [each["path"] for each in wide["spec"]["rules"][0]["http"]["paths"]]
    assert all(endpoint.path.startswith(prefix) for endpoint in PUBLIC if endpoint.path != path)


def test_a_pod_has_time_to_drain() -> None:
    """The pause and the longest stop there is, with seconds to spare."""
    pod = one(render({}), "Deployment")["spec"]["template"]["spec"]
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    stop = STOP_LIMIT_S + LAST_CHANCE_S
    assert pod["terminationGracePeriodSeconds"] >= pause + stop + 10
    assert DRAIN_S + COMMIT_LIMIT_S + HAND_BACK_S + POOL_SIZE * QUIT_LIMIT_S <= STOP_LIMIT_S
    assert KEPT_S + LAST_HEAD_S + GRACE_S <= DRAIN_S
    (least,) = re.findall(
        r"the (\d+) s of a stop", (CHART / "templates/_refuse.tpl").read_text(encoding="utf-8")
    )
    assert int(least) > stop


def _roles(deployment: Document) -> str:
    serve, option, roles = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert (serve, option) == ("serve", "--roles")
    return str(roles)


def _need(arguments: list[str]) -> Need:
    return {"serve": Need.SERVE, "migrate": Need.DATABASE_ONLY}.get(arguments[0], Need.ENGINE)


def _environment(container: dict[str, Any], root: Path) -> dict[str, str]:
    """The variables, with paths below `root` for paths of mounts."""
    environ = {each["name"]: each["value"] for each in container["env"]}
    mounts = tuple(mount["mountPath"] + "/" for mount in container["volumeMounts"])
    return {name: f"{root}{text}" if text.startswith(mounts) else text for name, text in environ.items()}


def _mount(pod: Document, root: Path, contents: dict[str, str]) -> None:
    """Write the file of every projected secret and configuration to where the containers mount it."""
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    for container in containers(pod):
        for mount in container["volumeMounts"]:
            for name in _files(volumes[mount["name"]]):
                file = Path(f"{root}{mount['mountPath']}", name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(contents[name], encoding="utf-8")


def _files(volume: dict[str, Any]) -> list[str]:
    sources = [source["secret"] for source in volume.get("projected", {}).get("sources", [])]
    sources += [volume[kind] for kind in ("secret", "configMap") if kind in volume]
    return [item["path"] for source in sources for item in source["items"]]
