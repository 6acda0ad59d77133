"""Everything secret is a canary, everybody talks as much as they can, and no output holds one.

Two real replicas at `debug`, one logs JSON, one for a terminal. GitLab quotes tokens in its errors and
redirects, the receiver in its answers, clients send them in every header. All that comes out is searched.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from gitlab_sync.sandbox.demo.children import Child
from hooks.table import ALL
from tests.support.canaries import token
from tests.support.canary_stage import Planted, planted_stage
from tests.support.commands import COMMAND, PARTITION, PROJECT, request_body
from tests.support.log_lines import lines_of
from tests.support.servers import RunningServer

LIMIT_S: Final = 60.0


@pytest.fixture
def planted(tmp_path: Path, server: RunningServer, database_url: str) -> Iterator[Planted]:
    """The stage on a migrated schema."""
    with planted_stage(tmp_path, server, database_url) as stage:
        yield stage


@contextmanager
def replica(stage: Planted, folder: Path, log_format: str) -> Iterator[tuple[Child, str]]:
    """A replica that answers; what it has said is an output afterwards."""
    log = folder / f"{log_format}.log"
    child = Child("the replica", [*COMMAND, "serve"], log, stage.settings(LOG_FORMAT=log_format))
    try:
        yield child, f"http://{_address(child, log)}"
    finally:
        child.stop()
        stage.outputs[f"the log as {log_format}"] = log.read_text()


def _address(child: Child, log: Path) -> str:
    def said() -> str | None:
        for line in log.read_text().splitlines():
            if " serving " in line or '"serving"' in line:
                return line.partition("127.0.0.1:")[2].partition("'")[0].partition('"')[0]
        assert child.exit_code() is None, log.read_text()
        return None

    return f"127.0.0.1:{until(said)}"


def until(ask: Callable[[], Any]) -> Any:
    """Ask again until there is an answer."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if (answer := ask()) is not None:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"not within {LIMIT_S:g} s")


class Portal:
    """Calls a replica; every answer is an output."""

    def __init__(self, stage: Planted, url: str) -> None:
        self._stage = stage
        self._bearer = {"Authorization": f"Bearer {stage.secret('API token')}"}
        self._client = httpx2.Client(base_url=url, trust_env=False, timeout=30)

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        """With the right token."""
        return self.raw(method, path, self._bearer | headers, body)

    def raw(self, method: str, path: str, headers: dict[str, str], body: Any = None) -> httpx2.Response:
        """With these headers alone."""
        answer = self._client.request(method, path, headers=headers, json=body)
        place = f"answer {len(self._stage.outputs)} to {method} {path.partition('?')[0]}"
        self._stage.outputs[place] = f"{answer.status_code} {answer.headers.multi_items()} {answer.text}"
        return answer

    def close(self) -> None:
        self._client.close()


def test_no_output_holds_a_secret(tmp_path: Path, planted: Planted) -> None:
    """Logs, answers, metrics, rows, merge requests, commits, notifications, process titles."""
    with ExitStack() as stack:
        children, portals = [], []
        for log_format in ("json", "console"):
            child, url = stack.enter_context(replica(planted, tmp_path, log_format))
            children.append(child)
            portals.append(Portal(planted, url))
            stack.callback(portals[-1].close)
        land_through_every_mishap(planted, portals)
        for portal in portals:
            call_everything(planted, portal)
        planted.dump_tables()
        planted.dump_gitlab()
        for child in children:
            planted.outputs[f"process {child.pid}"] = titles_of(child.pid)
    lines_of(planted.outputs["the log as json"])
    planted.require_no_leak()
    require_something_was_seen(planted)


def land_through_every_mishap(stage: Planted, portals: list[Portal]) -> None:
    """One batch is blocked by a refusal and by a redirect, both full of tokens, and lands after all."""
    control, portal = stage.gitlab.control, portals[0]
    quoted, secret = " ".join(stage.known()), stage.secret("GitLab token")
    refusal = json.dumps({"message": {"base": [f"not with {quoted}"], quoted: [quoted]}})
    opening = {"method": "POST", "path": "/merge_requests$"}
    control.add_fault("status", **opening, status=422, body=refusal)
    operation_id = portal("POST", "/api/v1/requests", request_body(1)).json()["operation_id"]
    batch = blocked_batch(portal)
    control.clear_faults()
    location = f"https://oauth2:{secret}@other.invalid/{secret}?private_token={secret}#token={secret}"
    control.add_fault("status", **opening, status=302, headers={"Location": location})
    retry(portal, batch)
    batch = blocked_batch(portals[1], after=batch)
    stage.dump_tables("while it is blocked")
    control.clear_faults()
    for status in (401, 500, 502):
        control.add_fault(
            "status", method="GET", path="/merge_requests/", status=status, body=quoted, count=1
        )
    retry(portals[1], batch)
    until(lambda: landed(portal, operation_id))
    control.clear_faults()
    until(lambda: all_told(portal, stage))


def blocked_batch(portal: Portal, after: dict[str, Any] | None = None) -> dict[str, Any]:
    """The batch that waits for a person, with a version later than `after`."""

    def blocked() -> dict[str, Any] | None:
        items = portal("GET", "/api/v1/batches?status=BLOCKED").json()["items"]
        is_new = items and (after is None or items[0]["version"] > after["version"])
        return items[0] if is_new else None

    found: dict[str, Any] = until(blocked)
    portal("GET", f"/api/v1/batches/{found['id']}")
    return found


def retry(portal: Portal, batch: dict[str, Any]) -> None:
    """Let it go on; somebody else may have been quicker."""
    answer = portal("POST", f"/api/v1/batches/{batch['id']}/retry", {"version": batch["version"]})
    assert answer.status_code in (202, 409), answer.text


def landed(portal: Portal, operation_id: str) -> bool | None:
    """Whether the request has landed; what is blocked meanwhile is let go."""
    shown = portal("GET", f"/api/v1/requests/{operation_id}").json()
    for batch in portal("GET", "/api/v1/batches?status=BLOCKED").json()["items"]:
        retry(portal, batch)
    return True if shown["status"] == "MERGED" else None


def all_told(portal: Portal, stage: Planted) -> bool | None:
    """The receiver failed at first: its words were written down by then."""
    told = portal("GET", "/metrics").text
    return True if len(stage.sink.received) > 5 and "gitlab_sync_outbox_pending 0.0" in told else None


def call_everything(stage: Planted, portal: Portal) -> None:
    """Every route, by strangers who send secrets wherever one can be sent."""
    for each in ALL:
        path = each.path.replace("{operation_id}", f"{uuid.uuid4()}").replace("{batch_id}", "4711")
        path = path.replace("{key}", PARTITION)
        for number, headers in enumerate(hostile_headers(stage)):
            secret = stage.canaries.plant(f"query of {each.path} {number}", token())
            portal.raw(each.method, f"{path}?private_token={secret}&access_token={secret}", headers, {})
    lost = stage.canaries.plant("end of a path", token())
    portal.raw("POST", f"/hooks/gitlab/{lost}", {})
    portal.raw("GET", f"/{lost}", {})
    for accept in ("text/plain", "application/openmetrics-text; version=1.0.0"):
        portal.raw("GET", "/metrics", {"Accept": accept})
    known = {"X-Gitlab-Token": stage.secret("webhook token")}
    field = stage.canaries.plant("a field of a delivery", token())
    portal.raw("POST", "/hooks/gitlab", known, {"object_kind": "merge_request", "object_attributes": field})
    portal("POST", "/api/v1/requests", {"token": stage.canaries.plant("a member of a body", token())})


def hostile_headers(stage: Planted) -> Iterator[dict[str, str]]:
    """Right tokens in wrong headers, wrong ones in right headers, doubled and odd spellings."""

    def fresh(name: str) -> str:
        return stage.canaries.plant(f"{name} {len(stage.canaries.planted)}", token())

    yield {"Authorization": f"Bearer {fresh('wrong bearer')}"}
    yield {"Authorization": "Basic " + base64.b64encode(f"user:{fresh('basic')}".encode()).decode()}
    yield {"Authorization": fresh("a bare header"), "Cookie": f"session={fresh('cookie')}"}
    yield {
        "Private-Token": stage.secret("GitLab token"),
        "X-Gitlab-Token": fresh("wrong hook token"),
        "Referer": f"https://host.invalid/?token={fresh('referer')}",
        "User-Agent": fresh("user agent"),
        "X-Forwarded-For": fresh("forwarded for"),
    }
    yield {
        "webhook-id": "id",
        "webhook-timestamp": f"{int(time.time())}",
        "webhook-signature": "v1," + base64.b64encode(fresh("signature").encode()).decode(),
    }
    yield {
        "X-Request-Id": stage.canaries.plant(f"request id {len(stage.canaries.planted)}", token("glpat-")),
        "Idempotency-Key": fresh("a key of nobody"),
        "traceparent": fresh("trace"),
    }


def titles_of(pid: int) -> str:
    """What anybody on the machine may read of a process and of what it has started."""
    said = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if pid in (int(folder.name), parent):
                said.append((folder / "cmdline").read_text() + (folder / "comm").read_text())
        except OSError:  # it has ended meanwhile
            continue
    return "\n".join(said)


def require_something_was_seen(stage: Planted) -> None:
    """That nothing was found counts only where secrets came by: masks stand where they were."""
    for log_format in ("json", "console"):
        assert "***" in stage.outputs[f"the log as {log_format}"], log_format
        assert "blocked" in stage.outputs[f"the log as {log_format}"]
    assert "***" in stage.outputs["table merge_batch while it is blocked"]
    assert PROJECT in stage.outputs["gitlab"]
    assert "serve" in "".join(text for place, text in stage.outputs.items() if place.startswith("process"))
