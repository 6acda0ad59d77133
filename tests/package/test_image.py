"""The image, without a builder of images: its steps are run here, and what comes out starts as it would."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gitlab_sync.cli.serve import STOP_LIMIT_S
from gitlab_sync.setting_values import parse_database_url
from gitlab_sync.settings import _VARIABLES, PREFIX
from tests.support.chart import of_kind, render
from tests.support.commands import service_environment
from tests.support.dockerfile import ROOT, Step, run_steps, stages
from tests.support.servers import RunningServer

LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Guest:
    """Who starts what was installed, and by which interpreter; uid None: the same user as the tests."""

    python: str
    uid: int | None

    def start(self, command: list[str], environ: dict[str, str]) -> subprocess.Popen[str]:
        """Start a command as the guest, at `/`."""
        others: dict[str, Any] = {}
        if self.uid is not None:
            others = {"user": self.uid, "group": self.uid, "extra_groups": []}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd="/", env=environ, **pipes, **others)


@pytest.fixture(scope="module")
def guest(last_stage: dict[str, Step]) -> Guest:
    """The image's own user where that is possible here."""
    uid = int(last_stage["USER"].text.partition(":")[0])
    if os.geteuid() != 0:
        print("not root: what was installed is started by the same user")
        return Guest(sys.executable, None)
    for python in ("/usr/bin/python3", sys.executable):
        if _works_for(Guest(python, uid)):
            return Guest(python, uid)
    print("no interpreter with venv that others may execute: it is started by root, who may write everywhere")
    return Guest(sys.executable, None)


@pytest.fixture(scope="module")
def root(guest: Guest) -> Iterator[Path]:
    """What the first stage leaves behind, in a folder that others may enter and nobody may write to."""
    folder = Path(tempfile.mkdtemp(prefix="gitlab-sync-image-"))
    try:
        run_steps(stages()[0], folder, guest.python)
        subprocess.run(["chmod", "-R", "a-w,a+rX", str(folder)], check=True)
        yield folder
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def last_stage() -> dict[str, Step]:
    """The steps of the stage that runs, by their word."""
    return {step.word: step for step in stages()[1]}


def test_what_is_installed_is_what_is_locked_and_ours(root: Path) -> None:
    """Nothing came along without a hash; no pip and no other tool for a guest to use."""
    (site,) = (root / "opt/gitlab-sync/lib").glob("python3.*/site-packages")
    found = {
        canonicalize_name(each.metadata["Name"]): each.version for each in distributions(path=[str(site)])
    }
    assert found.pop(canonicalize_name("gitlab-sync-service"))
    needed = {one.name: one.version for one in _locked("run") if one.is_for_here}
    assert found == needed
    assert not list((root / "opt/gitlab-sync/bin").glob("pip*"))


def test_nothing_has_to_be_compiled_when_it_starts(root: Path, last_stage: dict[str, Step]) -> None:
    """Nobody may write there: what is not compiled in the image would be compiled again at each start."""
    (site,) = (root / "opt/gitlab-sync/lib").glob("python3.*/site-packages")
    packages = ("gitlab_sync", "hooks", "sql", "starlette", "pydantic", "gitlab", "uvicorn", "aiomysql")
    sources = [path for name in packages for path in (site / name).rglob("*.py")]
    compiled = {
        path: list((path.parent / "__pycache__").glob(f"{path.stem}.cpython-*.pyc")) for path in sources
    }
    assert len(sources) > 100
    assert [path for path, found in compiled.items() if len(found) != 1] == []
    unchecked_hash = (1).to_bytes(4, "little")
    assert {found.read_bytes()[4:8] for (found,) in compiled.values()} == {unchecked_hash}
    assert "compileall" in last_stage["RUN"].text
    assert "stdlib" in last_stage["RUN"].text


def test_it_starts_as_another_user_on_a_read_only_tree(
    root: Path, guest: Guest, server: RunningServer, database_url: str, last_stage: dict[str, Step]
) -> None:
    """Healthy by its own check and by `helm test`, with GitLab away; exit 0 when told to stop."""
    dsn = server.tcp_address.dsn(parse_database_url(database_url).name)
    with tempfile.TemporaryDirectory(prefix="gitlab-sync-run-") as folder:
        Path(folder).chmod(0o755)
        environ = _environment(root, Path(folder), dsn, last_stage["ENV"])
        process = guest.start([*last_stage["ENTRYPOINT"].items, *last_stage["CMD"].items], environ)
        try:
            ports = _ports(process)
            port = ports["management"]
            check = [word.replace(":8081/", f":{port}/") for word in last_stage["HEALTHCHECK"].items]
            assert check != last_stage["HEALTHCHECK"].items
            healthy = guest.start(check, environ)
            assert (healthy.wait(LIMIT_S), healthy.communicate()[0]) == (0, "")
            tested = guest.start(_helm_test(ports), environ)
            assert (tested.wait(LIMIT_S), "401" in tested.communicate()[0]) == (0, True)
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=LIMIT_S)[0]
            assert process.returncode == 0, said
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("name", ["run", "build"])
def test_a_lock_has_a_hash_for_everything_and_no_address(name: str) -> None:
    """Whoever builds takes it from wherever they trust, and gets the same files."""
    text = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
    assert not re.search(r"https?:|file:|--(extra-)?index-url|--find-links", text)
    entries = re.split(r"\n(?=[a-z])", text.partition("\n")[2])
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_locks_are_of_what_the_project_asks_for() -> None:
    """A dependency that is added or raised needs `make requirements`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for name, wanted in (
        ("run", project["project"]["dependencies"]),
        ("build", project["build-system"]["requires"]),
    ):
        locked = {one.name: one.version for one in _locked(name)}
        for requirement in map(Requirement, wanted):
            assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement
    asked = [line for line in (ROOT / "requirements/build.in").read_text().splitlines() if line[0] != "#"]
    assert asked == project["build-system"]["requires"]


def test_the_linter_of_dockerfiles_has_nothing_to_say() -> None:
    """hadolint, with every rule."""
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_chart_runs_the_image_as_it_is_made(last_stage: dict[str, Step]) -> None:
    """Same user, same ports."""
    values = yaml.safe_load((ROOT / "helm/values.yaml").read_text(encoding="utf-8"))
    context = values["podSecurityContext"]
    assert last_stage["USER"].text == f"{context['runAsUser']}:{context['runAsGroup']}"
    pods = (ROOT / "helm/templates/_workload.tpl").read_text(encoding="utf-8")
    assert last_stage["EXPOSE"].text.split() == re.findall(r"containerPort: (\d+)", pods)


def test_everything_that_is_copied_gets_past_the_ignore_file() -> None:
    """What .dockerignore keeps out cannot be copied; nothing else is let in."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {word for step in stages()[0] if step.word == "COPY" for word in step.text.split()[:-1]}
    assert {re.sub(r"requirements/.*", "requirements/*.txt", word) for word in copied} == let_in


def test_the_trial_is_as_restricted_as_the_chart_and_knows_the_settings(last_stage: dict[str, Step]) -> None:
    """compose.yaml: read-only, no capabilities, time to drain, MySQL 8.4, and no variable that is unknown."""
    services: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert services["database"]["image"] == "mysql:8.4"
    known = {PREFIX + variable.name for variable in _VARIABLES}
    for name in ("migrate", "gitlab-sync"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["init"] is True
        assert set(services[name]["environment"]) <= known
    assert services["migrate"]["stop_grace_period"] == "30m"
    assert int(services["gitlab-sync"]["stop_grace_period"].removesuffix("s")) > STOP_LIMIT_S
    assert set(last_stage["ENV"].variables) & {f"{PREFIX}LISTEN", f"{PREFIX}MANAGEMENT_LISTEN"}


@dataclass(frozen=True, slots=True)
class Locked:
    """One distribution of a lock; for this interpreter and platform, or for others."""

    name: str
    version: str
    is_for_here: bool


def _locked(name: str) -> list[Locked]:
    text = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
    lines = [line.removesuffix("\\").strip() for line in text.splitlines() if line[0].isalpha()]
    found = [Requirement(line) for line in lines]
    return [
        Locked(
            canonicalize_name(each.name),
            next(iter(each.specifier)).version,
            each.marker is None or each.marker.evaluate(),
        )
        for each in found
    ]


def _works_for(guest: Guest) -> bool:
    environ = {"PATH": os.environ["PATH"]}
    new_enough = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"
    try:
        process = guest.start([guest.python, "-c", new_enough], environ)
    except OSError:
        return False
    process.communicate()
    return process.returncode == 0


def _environment(root: Path, folder: Path, dsn: str, image: Step) -> dict[str, str]:
    """The image's variables and the settings; ports that are free here."""
    settings = service_environment(folder, dsn, "http://127.0.0.1:9", MANAGEMENT_LISTEN="127.0.0.1:0")
    ours = {name: text for name, text in settings.items() if name.startswith(PREFIX)}
    mine = image.variables | {"PATH": f"{root}/opt/gitlab-sync/bin:/usr/bin:/bin"}
    return mine | ours


def _ports(process: subprocess.Popen[str]) -> dict[str, str]:
    """The port of each face, as the log tells them."""
    assert process.stdout is not None
    said: list[str] = []
    ports: dict[str, str] = {}
    for line in process.stdout:
        said.append(line)
        if '"serving"' in line:
            entry = json.loads(line)
            ports[entry["face"]] = entry["address"].rpartition(":")[2]
        if {"public", "management"} <= set(ports):
            return ports
    raise AssertionError(f"it ended: {''.join(said)}")


def _helm_test(ports: dict[str, str]) -> list[str]:
    """The command of the chart's test pod, with the addresses of this replica."""
    (pod,) = of_kind(render({}), "Pod")
    (container,) = pod["spec"]["containers"]
    script, _ready, _hook = container["args"]
    ready, hook = f"127.0.0.1:{ports['management']}/readyz", f"127.0.0.1:{ports['public']}/hooks/gitlab"
    return [*container["command"], script, f"http://{ready}", f"http://{hook}"]
