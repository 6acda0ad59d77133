"""RECOVERY.md where nothing may work: the lines for a cluster, run word for word with a played `kubectl`.

What it shows is the chart as it is rendered, and it finds by labels as the real one does. So the lines reach
every Deployment and schedule there is, and the pod that they make is one that Kubernetes takes, with the
replicas' settings. That the pod then runs needs a cluster.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.chart import MODES, Document, check_strictly, of_kind, one, render
from tests.support.dockerfile import ROOT
from tests.support.guide import sections

SECTION: Final = "Stop everything, and run commands meanwhile"
PLAYED: Final = Path(__file__).with_name("played_kubectl.py")
SCHEDULED: Final = {
    "topology": "split",
    "partitions": {"access-prod": {"project": "platform/access", "target_branch": "main"}},
    "cronJobs": {"rounds": {"enabled": True}, "reconcile": {"enabled": True}},
}
every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda path: path.stem)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is there, and what was done to it."""

    folder: Path

    def run(self, script: str) -> str:
        """Type what stands in a fence."""
        path = f"{self.folder}:{Path(_jq()).parent}:/usr/bin:/bin"
        done = subprocess.run(
            ["/bin/bash", "-eo", "pipefail", "-c", script],
            cwd=self.folder, env={"PATH": path}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stderr}"
        return done.stdout

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Each call: its arguments, what it found, what it was fed with."""
        noted = (self.folder / "calls").read_text(encoding="utf-8")
        return [json.loads(line) for line in noted.splitlines()]

    def found_by(self, verb: str) -> set[str]:
        """The names that the calls of a verb found or named."""
        return {name for call in self.calls if call["verb"] == verb for name in call["found"]}


def installed(folder: Path, documents: list[Document]) -> Cluster:
    """A release called gitlab-sync: the chart's tests render one by another name."""
    text = json.dumps(documents).replace('"rel-gitlab-sync', '"gitlab-sync').replace('"rel"', '"gitlab-sync"')
    (folder / "documents").write_text(text, encoding="utf-8")
    (folder / "kubectl").write_text(f'#!/bin/sh\nexec {sys.executable} {PLAYED} "$@"\n', encoding="utf-8")
    (folder / "kubectl").chmod(0o755)
    return Cluster(folder)


def fences(having: str) -> str:
    """The one fence of the section that holds this."""
    (found,) = (text for kind, text in sections("guides/RECOVERY.md")[SECTION].fences if having in text)
    return found


def tools_pod(folder: Path, values: Mapping[str, Any] | Path) -> tuple[Document, Document]:
    """The pod that step 3 makes, and the Deployment that it is made from, called as in the guide."""
    given = yaml.safe_load(values.read_text(encoding="utf-8")) or {} if isinstance(values, Path) else values
    cluster = installed(folder, render({**given, "fullnameOverride": "gitlab-sync"}))
    cluster.run(fences("jq"))
    (fed,) = (call["fed"] for call in cluster.calls if call["verb"] == "apply")
    deployment = one(json.loads((folder / "documents").read_text()), "Deployment")
    return json.loads(fed), deployment


@every_mode
def test_the_pod_for_commands_is_one_and_has_what_the_replicas_have(mode: Path, tmp_path: Path) -> None:
    """Image, settings, secrets, mounts and rights are theirs; it serves and migrates nothing, and stays."""
    pod, deployment = tools_pod(tmp_path, mode)
    check_strictly([pod])
    template = deployment["spec"]["template"]["spec"]
    (container,) = (each for each in pod["spec"]["containers"] if each["name"] == "gitlab-sync")
    (replica,) = (each for each in template["containers"] if each["name"] == "gitlab-sync")
    for same in ("image", "env", "envFrom", "volumeMounts", "securityContext", "resources"):
        assert container.get(same) == replica.get(same), same
    for same in ("volumes", "serviceAccountName", "securityContext", "imagePullSecrets"):
        assert pod["spec"].get(same) == template.get(same), same
    assert container["command"] == ["sleep", "infinity"]
    assert not {"args", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} & set(container)
    assert not {"migrate", "wait-for-schema"} & {each["name"] for each in pod["spec"]["initContainers"]}


@every_mode
def test_no_service_leads_to_the_pod_for_commands(mode: Path, tmp_path: Path) -> None:
    """A webhook or a portal must not be sent to a pod that only sleeps; its network is a command's."""
    pod, _ = tools_pod(tmp_path, mode)
    labels = pod["metadata"]["labels"].items()
    documents = json.loads((tmp_path / "documents").read_text())
    for service in of_kind(documents, "Service"):
        assert not service["spec"]["selector"].items() <= labels, service["metadata"]["name"]
    assert labels >= {
        ("app.kubernetes.io/component", "command"),
        ("app.kubernetes.io/instance", "gitlab-sync"),
    }


def test_a_proxy_beside_the_service_comes_along(tmp_path: Path) -> None:
    """Where the way to the database is a container of its own, commands need it too."""
    proxy = {"name": "proxy", "image": "proxy:1"}
    first = proxy | {"name": "proxy-first", "restartPolicy": "Always"}
    pod, _ = tools_pod(tmp_path, {"sidecars": [proxy], "initContainers": [first]})
    assert [each["name"] for each in pod["spec"]["containers"]] == ["gitlab-sync", "proxy"]
    assert [each["name"] for each in pod["spec"]["initContainers"]] == ["proxy-first"]


def test_nothing_is_forgotten_when_everything_is_stopped(tmp_path: Path) -> None:
    """Both Deployments and every schedule; and everything that was stopped is started again."""
    documents = render(SCHEDULED)
    cluster = installed(tmp_path, documents)
    deployments = {each["metadata"]["name"][4:] for each in of_kind(documents, "Deployment")}
    schedules = {"cronjob.batch/" + each["metadata"]["name"][4:] for each in of_kind(documents, "CronJob")}
    assert (len(deployments), len(schedules)) == (2, 2)
    cluster.run(fences("--replicas=0"))
    assert cluster.found_by("scale") == deployments
    assert cluster.found_by("patch") == schedules
    (cluster.folder / "calls").unlink()
    cluster.run(fences("kubectl wait pod --for=delete"))
    assert cluster.found_by("wait") == deployments  # the played one names a pod by what makes it
    assert cluster.found_by("delete") == {name.partition("/")[2] for name in schedules}
    (cluster.folder / "calls").unlink()
    cluster.run(fences("--replicas=2"))
    assert cluster.found_by("scale") == deployments
    assert cluster.found_by("patch") == schedules


def test_where_nothing_is_scheduled_nothing_is_patched(tmp_path: Path) -> None:
    """The lines work without a CronJob too."""
    cluster = installed(tmp_path, render({}))
    cluster.run(fences("--replicas=0"))
    assert cluster.found_by("patch") == set()
    assert cluster.found_by("scale") == {"gitlab-sync"}


def test_the_address_for_migrations_takes_the_place_of_the_services_own(tmp_path: Path) -> None:
    """It goes by standard input into the environment of one command: both settings together are refused."""
    cluster = installed(tmp_path, render({}))
    (tmp_path / "migrations-url").write_text("mysql://migrator@db.example/name\n")
    (tmp_path / "gitlab-sync").write_text(
        '#!/bin/sh\necho "$*" "$GITLAB_SYNC_DATABASE_URL" "$GITLAB_SYNC_DATABASE_URL_FILE"\n'
    )
    (tmp_path / "gitlab-sync").chmod(0o755)
    printed = cluster.run(f"export GITLAB_SYNC_DATABASE_URL_FILE=/there\n{fences('migrations-url')}")
    assert printed.split() == ["migrate", "--if-needed", "mysql://migrator@db.example/name"]


def test_the_image_has_what_the_pod_for_commands_runs() -> None:
    """`sleep` and `sh` come with Debian, on which the image's Python is built."""
    (argument,) = re.findall(r"^ARG PYTHON_IMAGE=(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", argument)
    (last,) = re.findall(r"^FROM (?!.* AS )(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert last == "${PYTHON_IMAGE}"


def _jq() -> str:
    """The path of jq; with CI set it must be there."""
    found = shutil.which("jq")
    if found is None:
        remedy = "jq is not on PATH: install it, the lines of guides/RECOVERY.md pipe through it"
        if os.environ.get("CI"):
            pytest.fail(remedy)
        pytest.skip(remedy)
    return found
