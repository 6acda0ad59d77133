"""Two thousand hostile webhook bodies with a genuine secret: no 500, no traceback, no batch believes them.

A thousand on each server, made by Hypothesis out of GitLab's own recorded bodies and of nothing at all. They
go over real HTTP to the real engine with one running batch, and many name that batch.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.test_hook_receiver import PROJECT, Hooked, event, hooked
from tests.support.edge import HOOK_TOKEN
from tests.support.engine import require_no_violations
from tests.support.log_lines import logging_restored

BODIES: Final = 1_000
SAMPLES: Final = Path(__file__).parent.parent / "contract" / "data"
EXPECTED: Final = frozenset({200, 202, 400, 413, 415})
IID: Final = 7

numbers = (
    st.sampled_from([0, -1, IID, PROJECT, 2**63 - 1, 2**63, 2**64, 10**30]) | st.integers() | st.floats()
)
texts = st.text(max_size=40) | st.sampled_from(
    ["", "\x00", "\ud800", "'; DROP TABLE merge_batch; --", "gitlab-sync/", "%s%(id)s", "merged", "A" * 5_000]
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def recorded() -> list[dict[str, Any]]:
    """GitLab's own bodies."""
    bodies = [json.loads(path.read_text()) for path in sorted(SAMPLES.glob("hook_*.json"))]
    return [body for body in bodies if "object_kind" in body]


@st.composite
def bent(draw: st.DrawFn, bodies: list[dict[str, Any]]) -> bytes:
    """A genuine body with a few of its values replaced, removed or put elsewhere."""
    body = json.loads(json.dumps(draw(st.sampled_from(bodies))))
    for _ in range(draw(st.integers(1, 4))):
        holder = body
        while draw(st.booleans()):
            inner: list[dict[str, Any]] = [v for v in holder.values() if isinstance(v, dict) and v]
            holder = draw(st.sampled_from(inner or [holder]))
        name = draw(st.sampled_from(sorted(holder)) | texts)
        if draw(st.booleans()) or draw(st.booleans()):
            holder[name] = draw(values)
        else:
            holder.pop(name, None)
        if not body:
            break
    return json.dumps(body).encode("utf-8", "surrogatepass")


def broken(whole: bytes, cut: int, junk: bytes) -> bytes:
    """A body that ends early and goes on with something else."""
    return whole[: cut % (len(whole) + 1)] + junk


@dataclass(slots=True)
class Town:
    """One loop with the service on it, so that each example may be a plain function."""

    loop: asyncio.Runner
    house: Hooked
    statuses: dict[int, int]
    lines: list[str]

    def send(self, body: bytes, kind: str) -> httpx2.Response:
        headers = {"X-Gitlab-Token": HOOK_TOKEN, "Content-Type": kind, "X-Gitlab-Event": "Merge Request Hook"}
        answer = self.loop.run(self.house.client.post("/hooks/gitlab", headers=headers, content=body))
        self.statuses[answer.status_code] = self.statuses.get(answer.status_code, 0) + 1
        return answer


@pytest.fixture
def town(database_url: str) -> Iterator[Town]:
    """The service with one running batch; its log is kept."""
    lines: list[str] = []

    def keep(_logger: object, _method: str, line: MutableMapping[str, Any]) -> Any:
        lines.append(repr(line))
        raise structlog.DropEvent

    with asyncio.Runner() as loop:
        opened = hooked(database_url)
        house = loop.run(opened.__aenter__())
        try:
            with logging_restored():
                structlog.configure(processors=[keep])
                yield Town(loop, house, {}, lines)
        finally:
            loop.run(opened.__aexit__(None, None, None))


def test_two_thousand_hostile_bodies_change_nothing_and_break_nothing(town: Town) -> None:
    """Each is answered 2xx or refused with a remedy; then the genuine one is still taken."""
    before = town.loop.run(town.house.batch())
    branch = town.loop.run(town.house.branch())
    ours = [event(branch, iid=IID), event("main", iid=IID), {**event(branch), "object_kind": "pipeline"}]
    hostile = (
        bent(recorded() + ours)
        | values.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass"))
        | st.binary(max_size=200)
        | st.builds(broken, bent(ours), st.integers(0, 400), st.binary(max_size=8))
        | st.integers(2, 100_000).map(lambda depth: b"[" * depth)
    )
    kinds = st.sampled_from(["application/json"] * 9 + ["text/plain", "application/json; charset=utf-16"])

    @settings(max_examples=BODIES, suppress_health_check=list(HealthCheck), database=None)
    @given(hostile, kinds)
    def each(body: bytes, kind: str) -> None:
        answer = town.send(body, kind)
        assert answer.status_code in EXPECTED, (answer.status_code, answer.text)
        assert isinstance(answer.json(), dict), answer.text
        assert "Traceback" not in answer.text

    each()
    after = town.loop.run(town.house.batch())
    assert (after.status, after.version, after.mr_iid) == (before.status, before.version, before.mr_iid)
    assert sum(town.statuses.values()) >= BODIES, town.statuses
    assert town.statuses.keys() >= {200, 202, 400}, town.statuses
    assert len(town.lines) >= BODIES, "the log was not kept"
    assert not [line for line in town.lines if "Traceback" in line or "exc_info" in line][:3]
    genuine = town.loop.run(town.house.send(event(branch), "genuine-key"))
    assert genuine[0] in (200, 202), genuine
    town.loop.run(require_no_violations(town.house.engine.ctx))
