"""Every documented endpoint the simulator has: called once, each field and status of its answer published."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
import requests

from gitlab_sync.sandbox.simulator import app
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call
from gitlab_sync.sandbox.simulator.params import Params
from gitlab_sync.sandbox.simulator.routes import API_ROUTES
from tests.contract.conftest import MakeHouse, watcher
from tests.contract.document import NEWER_PARAMETERS, PREFIX, Document, published
from tests.contract.hook_receiver import HookReceiver
from tests.contract.house import PATH, House

READING = {"page", "per_page"}
_PROJECT, _REPO = "/projects/platform%2Faccess", "/projects/platform%2Faccess/repository"
_FILE, _MR = f"{_REPO}/files/notes%2Fa.md", f"{_PROJECT}/merge_requests/1"
CREATE = {"branch": "b/1", "start_branch": "main", "commit_message": "m"}
ACTION = {"action": "create", "file_path": "b.txt", "content": "x"}
WRITE = {"branch": "b/1", "commit_message": "m", "content": "text"}

# In the order in which one builds on the other: method, path, body, status. `{receiver}` is filled in.
CALLS: tuple[tuple[str, str, Mapping[str, Any], int], ...] = (
    ("GET", "/version", {}, 200),
    ("GET", "/metadata", {}, 200),
    ("GET", _PROJECT, {}, 200),
    ("PUT", _PROJECT, {"description": "d"}, 200),
    ("POST", f"{_REPO}/commits", {**CREATE, "actions": [ACTION]}, 201),
    ("POST", f"{_REPO}/commits", {**CREATE, "actions": []}, 400),
    ("GET", f"{_REPO}/commits", {}, 200),
    ("GET", f"{_REPO}/commits/b%2F1", {}, 200),
    ("GET", f"{_REPO}/commits/b%2F1/diff", {}, 200),
    ("GET", f"{_REPO}/commits/b%2F1/refs", {}, 200),
    ("GET", f"{_REPO}/commits/b%2F9", {}, 404),
    ("POST", f"{_REPO}/branches", {"branch": "b/2", "ref": "main"}, 201),
    ("POST", f"{_REPO}/branches", {"branch": "b/2", "ref": "main"}, 400),
    ("GET", f"{_REPO}/branches", {}, 200),
    ("GET", f"{_REPO}/branches/b%2F1", {}, 200),
    ("HEAD", f"{_REPO}/branches/b%2F1", {}, 204),
    ("HEAD", f"{_REPO}/branches/b%2F9", {}, 404),
    ("DELETE", f"{_REPO}/branches/b%2F2", {}, 204),
    ("POST", _FILE, WRITE, 201),
    ("PUT", _FILE, {**WRITE, "content": "more"}, 200),
    ("GET", f"{_FILE}?ref=b%2F1", {}, 200),
    ("HEAD", f"{_FILE}?ref=b%2F1", {}, 200),
    ("GET", f"{_FILE}/raw?ref=b%2F1", {}, 200),
    ("DELETE", _FILE, WRITE, 204),
    ("GET", f"{_REPO}/tree", {}, 200),
    ("GET", f"{_PROJECT}/protected_branches", {}, 200),
    ("POST", f"{_PROJECT}/protected_branches", {"name": "stable"}, 201),
    ("POST", f"{_PROJECT}/protected_branches", {"name": "stable"}, 409),
    ("GET", f"{_PROJECT}/protected_branches/stable", {}, 200),
    ("PATCH", f"{_PROJECT}/protected_branches/stable", {"allow_force_push": True}, 200),
    ("DELETE", f"{_PROJECT}/protected_branches/stable", {}, 204),
    (
        "POST",
        f"{_PROJECT}/merge_requests",
        {"source_branch": "b/1", "target_branch": "main", "title": "t", "labels": "x,y"},
        201,
    ),
    (
        "POST",
        f"{_PROJECT}/merge_requests",
        {"source_branch": "b/1", "target_branch": "main", "title": "t"},
        409,
    ),
    ("POST", f"{_PROJECT}/merge_requests", {"source_branch": "a", "target_branch": "a", "title": "t"}, 422),
    ("GET", f"{_PROJECT}/merge_requests?state=all&iids[]=1&iids[]=2", {}, 200),
    ("GET", _MR, {}, 200),
    ("GET", f"{_MR}?include_rebase_in_progress=true&include_diverged_commits_count=true", {}, 200),
    ("GET", f"{_PROJECT}/merge_requests/99", {}, 404),
    ("PUT", _MR, {"title": "u"}, 200),
    ("PUT", _MR, {}, 400),
    ("GET", f"{_MR}/approvals", {}, 200),
    ("GET", f"{_MR}/approval_state", {}, 200),
    ("POST", f"{_MR}/approve", {}, 201),
    ("POST", f"{_MR}/unapprove", {}, 201),
    ("GET", f"{_MR}/participants", {}, 200),
    ("GET", f"{_MR}/commits", {}, 200),
    ("GET", f"{_MR}/diffs", {}, 200),
    ("GET", f"{_MR}/pipelines", {}, 200),
    ("POST", f"{_MR}/pipelines", {}, 201),
    ("GET", f"{_PROJECT}/pipelines", {}, 200),
    ("GET", f"{_PROJECT}/pipelines/1", {}, 200),
    ("GET", f"{_MR}/merge_ref", {}, 200),
    ("PUT", f"{_MR}/rebase", {}, 202),
    ("POST", f"{_MR}/cancel_merge_when_pipeline_succeeds", {}, 406),
    ("PUT", f"{_MR}/merge", {"sha": "0" * 40}, 409),
    ("PUT", f"{_MR}/merge", {}, 200),
    ("PUT", f"{_MR}/merge", {}, 405),
    ("GET", f"{_REPO}/commits/main/merge_requests", {}, 200),
    ("POST", f"{_PROJECT}/hooks", {"url": "{receiver}", "merge_requests_events": True, "token": "t"}, 201),
    ("POST", f"{_PROJECT}/hooks", {"url": "nonsense"}, 422),
    ("GET", f"{_PROJECT}/hooks", {}, 200),
    ("GET", f"{_PROJECT}/hooks/1", {}, 200),
    ("PUT", f"{_PROJECT}/hooks/1", {"pipeline_events": True}, 200),
    ("POST", f"{_PROJECT}/hooks/1/test/merge_requests_events", {}, 201),
    ("POST", f"{_PROJECT}/hooks/1/test/seances", {}, 400),
    ("GET", f"{_PROJECT}/hooks/1/events", {}, 200),
    ("POST", f"{_PROJECT}/hooks/1/events/1/resend", {}, 201),
    ("DELETE", f"{_PROJECT}/hooks/1", {}, 204),
    ("DELETE", f"{_PROJECT}/pipelines/1", {}, 204),
    ("DELETE", _MR, {}, 204),
    ("DELETE", _PROJECT, {}, 202),
)


@pytest.fixture
def document() -> Document:
    """The published document with fresh notes."""
    return published()


@pytest.fixture
def session(document: Document) -> Iterator[requests.Session]:
    """An HTTP session of the administrator, watched by the document."""
    with requests.Session() as opened:
        opened.headers["PRIVATE-TOKEN"] = "root-token"
        opened.hooks["response"].append(watcher(document))
        yield opened


def walk(house: House, session: requests.Session, receiver: HookReceiver) -> list[str]:
    """Make every call; return those that were not answered as expected."""
    house.control.add_token("root", "root-token")
    house.control.set_plan(PATH, "running")
    wrong = []
    for method, path, body, expected in CALLS:
        if path == f"{_MR}/merge" and body == {}:
            house.wait_for(1, lambda mr: mr.merge_status == "can_be_merged" or mr.state == "merged")
        filled = {name: receiver.url if value == "{receiver}" else value for name, value in body.items()}
        answer = session.request(method, f"{house.url}{PREFIX}{path}", json=filled or None, timeout=20)
        if answer.status_code != expected:
            wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}, not {expected}")
    return wrong


def test_every_field_and_status_is_published(
    house: House, session: requests.Session, document: Document, receiver: HookReceiver
) -> None:
    """And no documented endpoint of ours is left out of the walk."""
    assert walk(house, session, receiver) == []
    assert document.problems == []
    ours = {
        (method, template)
        for method, route, _ in API_ROUTES
        if (template := document.template_of(method, PREFIX + _filled(route)))
    }
    assert ours - document.seen == set()
    documented = {(m.upper(), path) for path, methods in document.paths.items() for m in methods}
    missing = {f"{method} {path.rpartition('/')[2]}" for method, path in documented - document.seen}
    # Changing the rules of one merge request's approvals is a paid plan's.
    assert missing == {"POST approvals"}


def test_every_parameter_that_is_read_is_published(
    make_house: MakeHouse, session: requests.Session, receiver: HookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the simulator looks for in a call, GitLab documents, or it is newer than the copy."""
    read: dict[tuple[str, str], set[str]] = {}
    routes = [
        (method, route, _noting(handler, read.setdefault((method, route), set())))
        for method, route, handler in API_ROUTES
    ]
    monkeypatch.setattr(app, "API_ROUTES", routes)
    assert walk(make_house(), session, receiver) == []
    document, unlisted = published(), []
    for (method, route), names in read.items():
        template = document.template_of(method, PREFIX + _filled(route))
        if template is not None:
            extra = names - document.parameters(method, template) - NEWER_PARAMETERS - READING
            unlisted += [f"{method} {route}: {name}" for name in sorted(extra)]
    assert unlisted == []


class _Noting(Params):
    """Parameters that note which of them somebody asks for."""

    def __init__(self, values: Mapping[str, Any], names: set[str]) -> None:
        super().__init__(_Asked(values, names))
        self.values = _Asked(values, names)


class _Asked(dict[str, Any]):
    def __init__(self, values: Mapping[str, Any], names: set[str]) -> None:
        super().__init__(values)
        self._names = names

    def get(self, name: str, default: Any = None) -> Any:
        self._names.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self._names.add(str(name))
        return super().__contains__(name)


def _noting(handler: Callable[[Call], Answer], names: set[str]) -> Callable[[Call], Answer]:
    return lambda call: handler(replace(call, params=_Noting(call.params.values, names)))


def _filled(route: str) -> str:
    return "/".join(quote("x") if part.startswith("{") else part for part in route.split("/"))
