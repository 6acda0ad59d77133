"""Stands in for python-gitlab's own functional conftest: the fixtures its tests ask for, over the simulator.

Copied beside those tests as their `conftest.py`; here it is never loaded by pytest. Their clock is the
simulated one: where they sleep, simulated time passes and no other.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gitlab
import pytest
from gitlab.v4.objects import (
    CurrentUser,
    Group,
    Project,
    ProjectFile,
    ProjectMergeRequest,
    ProjectMilestone,
    User,
)

from gitlab_sync.sandbox.simulator import Running, SimConfig, running_simulator

TOKEN = "root-token"
OUTCOMES = "outcomes.jsonl"
CI_FILE = "test:\n  script:\n    - sleep 24h\n"
UNDECIDED = {"preparing", "unchecked", "checking"}


@dataclass(frozen=True, slots=True)
class GitlabVersion:
    """What the instance says it is, as numbers."""

    major: int
    minor: int
    patch: str
    revision: str


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down the outcome of each phase that decides something."""
    if report.when == "call" or report.outcome != "passed":
        line = {"test": report.nodeid, "when": report.when, "outcome": report.outcome}
        line["reason"] = report.longreprtext.strip().splitlines()[-1] if report.longreprtext else ""
        with Path(OUTCOMES).open("a") as file:
            file.write(json.dumps(line) + "\n")


@pytest.fixture(scope="session")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One instance with an administrator for the whole run."""
    config = SimConfig(tmp_path_factory.mktemp("simulator") / "repositories", "sim-token")
    with running_simulator(config) as running:
        running.control.add_token("root", TOKEN)
        yield running
        report = running.control.audit()
        assert report["failures"] == []
        assert {project["fsck"] for project in report["projects"].values()} <= {""}


@pytest.fixture(scope="session", autouse=True)
def simulated_time(simulator: Running) -> Iterator[None]:
    """Let simulated seconds pass instead of real ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", lambda seconds: simulator.control.advance_clock(float(seconds)))
        yield


@pytest.fixture(scope="session")
def gitlab_url(simulator: Running) -> str:
    """Where the instance is."""
    return simulator.base_url


@pytest.fixture(scope="session")
def gitlab_token() -> str:
    """The administrator's token."""
    return TOKEN


@pytest.fixture(scope="session")
def temp_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the configuration file."""
    return tmp_path_factory.mktemp("configuration")


@pytest.fixture(scope="session")
def fixture_dir(pytestconfig: pytest.Config) -> Path:
    """Where the library keeps the files its tests upload."""
    return pytestconfig.rootpath / "tests" / "functional" / "fixtures"


@pytest.fixture(scope="session")
def gitlab_config(gitlab_url: str, gitlab_token: str, temp_dir: Path) -> Path:
    """A configuration file that names the instance."""
    file = temp_dir / "python-gitlab.cfg"
    server = f"[sim]\nurl = {gitlab_url}\nprivate_token = {gitlab_token}\napi_version = 4\n"
    file.write_text(f"[global]\ndefault = sim\ntimeout = 60\n\n{server}")
    return file


@pytest.fixture(scope="session")
def gl(gitlab_url: str, gitlab_token: str) -> gitlab.Gitlab:
    """A client of the administrator."""
    client = gitlab.Gitlab(gitlab_url, private_token=gitlab_token, timeout=60)
    client.auth()
    assert isinstance(client.user, CurrentUser)
    return client


@pytest.fixture(scope="session")
def gitlab_version(gl: gitlab.Gitlab) -> GitlabVersion:
    """The instance's version in parts."""
    version, revision = gl.version()
    major, minor, patch = version.split(".")
    return GitlabVersion(int(major), int(minor), patch, revision)


@pytest.fixture(scope="module")
def group(gl: gitlab.Gitlab) -> Iterator[Group]:
    """A group for one file of tests."""
    name = f"group-{uuid.uuid4().hex}"
    made = gl.groups.create({"name": name, "path": name})
    assert isinstance(made, Group)
    yield made
    made.delete()


@pytest.fixture(scope="module")
def project(gl: gitlab.Gitlab, simulator: Running) -> Iterator[Project]:
    """An empty project for one file of tests; its pipelines, if any, run for ever."""
    made = gl.projects.create(
        {"name": f"project-{uuid.uuid4().hex}", "remove_source_branch_after_merge": False}
    )
    assert isinstance(made, Project)
    yield made
    made.delete()


@pytest.fixture
def make_merge_request(project: Project, simulator: Running) -> Iterator[Callable[..., ProjectMergeRequest]]:
    """Make a branch with a new file and a merge request of it, and wait until GitLab has an opinion of it."""
    made: list[tuple[ProjectMergeRequest, str]] = []

    def make(*, source_branch: str, create_pipeline: bool = False) -> ProjectMergeRequest:
        project.refresh()
        project.branches.create({"branch": source_branch, "ref": project.default_branch})
        files = {f"README.{source_branch}": "Initial content"}
        if create_pipeline:
            files[".gitlab-ci.yml"] = CI_FILE
            simulator.control.set_plan(project.id, "running")
        for path, content in files.items():
            change = {"branch": source_branch, "commit_message": f"Add {path}", "content": content}
            project.files.create({"file_path": path, **change})
        mr = project.mergerequests.create(
            {
                "source_branch": source_branch,
                "target_branch": project.default_branch,
                "title": "A change",
                "remove_source_branch": True,
            }
        )
        assert isinstance(mr, ProjectMergeRequest)
        made.append((mr, source_branch))
        return decided(project, mr.iid)

    yield make
    for mr, branch in made:
        project.mergerequests.delete(mr.iid)
        if branch in {row.name for row in project.branches.list(get_all=True)}:
            project.branches.delete(branch)


def decided(project: Project, iid: int) -> ProjectMergeRequest:
    """Read until the merge request is no longer being prepared or checked."""
    for _ in range(60):
        mr = project.mergerequests.get(iid)
        if mr.detailed_merge_status not in UNDECIDED:
            return mr
        time.sleep(1)
    raise TimeoutError(f"!{iid} stays undecided")


@pytest.fixture
def merge_request(make_merge_request: Callable[..., ProjectMergeRequest]) -> ProjectMergeRequest:
    """A merge request without a pipeline."""
    return make_merge_request(source_branch=f"branch-{uuid.uuid4().hex}")


@pytest.fixture
def merge_request_with_pipeline(
    make_merge_request: Callable[..., ProjectMergeRequest],
) -> ProjectMergeRequest:
    """A merge request whose pipeline runs and does not end."""
    return make_merge_request(source_branch=f"branch-{uuid.uuid4().hex}", create_pipeline=True)


@pytest.fixture(scope="module")
def user(gl: gitlab.Gitlab) -> Iterator[User]:
    """A user for one file of tests."""
    name = f"user{uuid.uuid4().hex}"
    person = {"email": f"{name}@example.com", "username": name, "name": name, "password": uuid.uuid4().hex}
    made = gl.users.create(person)
    assert isinstance(made, User)
    yield made
    made.delete()


@pytest.fixture(scope="module")
def milestone(project: Project) -> ProjectMilestone:
    """A milestone of the project."""
    made = project.milestones.create({"title": f"milestone-{uuid.uuid4().hex}"})
    assert isinstance(made, ProjectMilestone)
    return made


@pytest.fixture(scope="module")
def project_file(project: Project) -> ProjectFile:
    """A first file on the main branch."""
    change = {"branch": "main", "commit_message": "First", "content": "Initial content"}
    made = project.files.create({"file_path": "README", **change})
    assert isinstance(made, ProjectFile)
    return made
