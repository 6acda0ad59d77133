"""The chart's installation, played on loopback: a process for each workload, Prometheus where monitors lead.

The workloads come from the rendered chart (`topology: split`: one answers HTTP, one works), with the roles
that stand in their arguments, and so do rules and scrape settings (`prometheus_config`). GitLab is the
simulator, with a webhook that leads to the pod with HTTP. Two partitions, each with a project of its own, so
that one can be blocked while the other lands.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from gitlab_sync.sandbox.demo.children import Child
from gitlab_sync.sandbox.simulator import Running
from tests.support.alertmanager import Pager, running_alertmanager
from tests.support.chart import Document, one, render
from tests.support.commands import BOT, COMMAND, Ran, run_here, service_environment
from tests.support.prometheus import Prometheus, running_prometheus, until
from tests.support.prometheus_config import Pod, hurried_rules, pods_of, prometheus_settings
from tests.support.quick_gitlab import sound_gitlab
from tests.support.replica import HOOK_TOKEN, create_hook
from tests.support.sink import SECRET, listening

ACCESS: Final = "access-prod"
DNS: Final = "dns-zones"
PROJECTS: Final = {ACCESS: "platform/access", DNS: "platform/dns"}
RUNBOOK: Final = "https://runbooks.example.org/gitlab-sync"
HTTP_POD: Final = "rel-gitlab-sync"
WORKER_POD: Final = "rel-gitlab-sync-worker"
VALUES: Final = {
    "topology": "split",
    "metrics": {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True, "runbookUrl": RUNBOOK},
    },
}
_TOKEN: Final = "portal-token-of-the-tests"


class PlayedPod:
    """A pod as a process: ended as by its node, started again where it was."""

    def __init__(self, pod: Pod, folder: Path, environ: dict[str, str]) -> None:
        self.pod = pod
        self.management = _free_address()
        self.url = ""
        self._log = folder / f"{pod.name}.log"
        self._environ = environ | {"GITLAB_SYNC_MANAGEMENT_LISTEN": self.management}
        self._child: Child | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._log.unlink(missing_ok=True)
        self._child = Child(self.pod.name, [*COMMAND, *self.pod.arguments], self._log, self._environ)
        self._child.wait_for_line("face", "management")
        if "http" in self.pod.ports:
            address = self._child.wait_for_line("face", "public")["address"]
            self._environ["GITLAB_SYNC_LISTEN"] = address
            self.url = f"http://{address}"

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        child, self._child = self._child, None
        if child is not None:
            if child.exit_code() is None:
                os.kill(child.pid, signal.SIGKILL)
            child.stop()  # reaps it


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that runs, and what a person does with it."""

    pods: dict[str, PlayedPod]
    gitlab: Running
    prometheus: Prometheus
    pager: Pager
    environ: dict[str, str]
    began: float

    def submit(self, partition: str, *names: str) -> list[str]:
        """Ask for a file for each name, in one call; the ids of the operations."""
        answer = httpx2.post(
            f"{self.pods[HTTP_POD].url}/api/v1/requests",
            json=[_request(partition, name) for name in names],
            headers={"Authorization": f"Bearer {_TOKEN}"},
            timeout=30,
        )
        assert answer.status_code == 201, answer.text
        return [str(each["operation_id"]) for each in answer.json()]

    def command(self, *arguments: str) -> Ran:
        """Run `gitlab-sync` as the operator does."""
        ran = run_here(*arguments, environ=self.environ)
        assert ran.exit_code == 0, ran
        return ran

    def until_blocked(self, partition: str) -> dict[str, Any]:
        """Wait for the partition's batch to be blocked; the batch."""

        def blocked() -> dict[str, Any] | None:
            batches = self._batches(partition)
            return next((batch for batch in batches if batch["status"] == "BLOCKED"), None)

        return until(blocked, f"the batch of {partition} is blocked")

    def until_landed(self, partition: str, members: int) -> None:
        """Wait until that many requests of a partition have landed, all in all."""
        until(lambda: self.landed(partition) >= members, f"{members} requests of {partition} have landed")

    def landed(self, partition: str) -> int:
        """How many requests of a partition have landed, all in all."""
        batches = self._batches(partition)
        return sum(int(batch["members"]) for batch in batches if batch["status"] == "SUCCEEDED")

    def _batches(self, partition: str) -> list[dict[str, Any]]:
        answer = httpx2.get(
            f"{self.pods[HTTP_POD].url}/api/v1/batches?partition={partition}",
            headers={"Authorization": f"Bearer {_TOKEN}"},
            timeout=30,
        )
        items: list[dict[str, Any]] = answer.json()["items"]
        return items


@contextmanager
def observed(folder: Path, database_url: str) -> Iterator[Observed]:
    """A whole installation on an empty schema, scraped and watched; nothing of it is left afterwards."""
    documents = render(VALUES)
    with ExitStack() as stack:
        told = stack.enter_context(listening())
        gitlab = stack.enter_context(sound_gitlab(folder / "repositories"))
        for project in PROJECTS.values():
            gitlab.control.add_project(project, {"README.md": "# here\n"}, merge_level=30)
            gitlab.control.set_plan(project, "success", duration_s=0.05)
        environ = _environment(folder, database_url, gitlab, told.url)
        pods = {pod.name: PlayedPod(pod, folder, environ) for pod in pods_of(documents)}
        for pod in pods.values():
            stack.callback(pod.kill)
        with ThreadPoolExecutor() as pool:
            list(pool.map(PlayedPod.start, pods.values()))
        for project in PROJECTS.values():
            create_hook(gitlab, pods[HTTP_POD].url, project, BOT)
        prometheus, pager = stack.enter_context(_watched(folder, documents, pods))
        yield Observed(pods, gitlab, prometheus, pager, environ, time.time())


@contextmanager
def _watched(
    folder: Path, documents: list[Document], pods: dict[str, PlayedPod]
) -> Iterator[tuple[Prometheus, Pager]]:
    with ExitStack() as stack:
        sink = stack.enter_context(listening())
        alertmanager = stack.enter_context(running_alertmanager(folder / "alertmanager", sink))
        settings = prometheus_settings(
            documents,
            one(documents, "ServiceMonitor"),
            addresses={name: played.management for name, played in pods.items()},
            alertmanager=alertmanager.removeprefix("http://"),
        )
        rules = hurried_rules(one(documents, "PrometheusRule"))
        prometheus = stack.enter_context(running_prometheus(folder / "prometheus", settings, rules))
        until(lambda: prometheus.health() == dict.fromkeys(pods, "up"), "both pods are scraped")
        yield prometheus, Pager(sink)


def _environment(folder: Path, database_url: str, gitlab: Running, notify_url: str) -> dict[str, str]:
    environ = service_environment(
        folder,
        database_url,
        gitlab.base_url,
        API_TOKENS=f"portal:read+submit+operate:{hashlib.sha256(_TOKEN.encode()).hexdigest()}",
        WEBHOOK_TOKENS=HOOK_TOKEN,
        NOTIFY_URL=notify_url,
        NOTIFY_SECRET=SECRET,
    )
    lines = [f"  {key}: {{project: {project}, target_branch: main}}\n" for key, project in PROJECTS.items()]
    Path(environ["GITLAB_SYNC_PARTITIONS"]).write_text("partitions:\n" + "".join(lines), encoding="utf-8")
    return environ


def _request(partition: str, name: str) -> dict[str, Any]:
    return {
        "partition": partition,
        "subject": f"user:{name}",
        "target": "orders",
        "action": "apply",
        "edits": [{"op": "put", "path": f"data/{name}.txt", "content": f"{name}\n"}],
        "title": f"{name} reads orders",
        "requested_by": name,
    }


def _free_address() -> str:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
