"""POST /hooks/gitlab: what is taken, what is ignored, what is refused, and what each answer tells GitLab."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from gitlab_sync.edge_values import DeliveryAnswer
from gitlab_sync.errors import CommitUnknown, DatabaseBusy, DatabaseDefect, DatabaseUnavailable
from hooks import receiver
from tests.support.edge import HOOK_TOKEN, StandInEngine, client_of, stand_in_engine

HEADERS = {"X-Gitlab-Token": HOOK_TOKEN, "Content-Type": "application/json"}
MERGED = {
    "object_kind": "merge_request",
    "object_attributes": {"iid": 7, "target_project_id": 42, "action": "merge"},
}


@pytest.fixture
def engine() -> StandInEngine:
    """An engine that takes every delivery."""
    return stand_in_engine()


@pytest.fixture
def client(engine: StandInEngine) -> Any:
    """A client on the application over `engine`."""
    with client_of(engine) as client:
        yield client


def counted(engine: StandInEngine, event: str, result: str) -> float | None:
    """How often a delivery ended so."""
    labels = {"event": event, "result": result}
    return engine.ctx.metrics.registry.get_sample_value("gitlab_sync_webhooks_total", labels)


def test_an_authentic_merge_event_is_taken_as_a_hint(client: TestClient, engine: StandInEngine) -> None:
    """Project, number and branch travel on; nothing else of the payload does."""
    key = {"Idempotency-Key": "f5e5f430-f57b-4e6e-9fac-d9128cd7232f"}
    answer = client.post("/hooks/gitlab", headers=HEADERS | key, content=json.dumps(MERGED))
    assert (answer.status_code, answer.json()["result"]) == (202, "taken")
    [delivery] = engine.deliveries
    assert (delivery.project_id, delivery.mr_iid, delivery.source_branch) == (42, 7, None)
    assert (delivery.key, delivery.event) == (key["Idempotency-Key"], "merge_request")
    assert counted(engine, "merge_request", "taken") == 1


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (DeliveryAnswer.DUPLICATE, 200),
        (DeliveryAnswer.NOT_OURS, 200),
        (DeliveryAnswer.CONFLICT, 400),
    ],
)
def test_gitlab_is_answered_2xx_for_everything_authentic(
    client: TestClient, engine: StandInEngine, answer: DeliveryAnswer, status: int
) -> None:
    """Only a key that came with another body counts against the hook."""
    engine.answer = answer
    assert client.post("/hooks/gitlab", headers=HEADERS, json=MERGED).status_code == status
    assert counted(engine, "merge_request", answer.value) == 1


def test_without_a_key_the_same_body_has_the_same_delivery_key(
    client: TestClient, engine: StandInEngine
) -> None:
    """GitLab before 17.4, and other tools."""
    for _ in range(2):
        client.post("/hooks/gitlab", headers=HEADERS, json=MERGED)
    client.post("/hooks/gitlab", headers=HEADERS, json={**MERGED, "x": 1})
    first, second, third = (delivery.key for delivery in engine.deliveries)
    assert first == second != third


@pytest.mark.parametrize("key", [b"", b"x" * 256, "ключ".encode(), b"tab\there"])
def test_a_key_that_cannot_be_stored_is_replaced_by_the_hash(
    client: TestClient, engine: StandInEngine, key: bytes
) -> None:
    """An odd header must not make a delivery fail."""
    headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    answer = client.post("/hooks/gitlab", headers=[*headers, (b"Idempotency-Key", key)], json=MERGED)
    assert answer.status_code == 202
    assert engine.deliveries[0].key.startswith("sha256:")


def test_kinds_of_no_use_are_ignored_without_touching_the_database(
    client: TestClient, engine: StandInEngine
) -> None:
    """Errors would disable the hook."""
    for body in ({"object_kind": "push"}, {"event_name": "project_create"}, {}, {"object_kind": 7}):
        answer = client.post("/hooks/gitlab", headers=HEADERS, json=body)
        assert (answer.status_code, answer.json()["result"]) == (200, "ignored")
    assert engine.deliveries == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "JSON value"),
        (b"not json", "JSON value"),
        (b"\xff\xfe", "UTF-8"),
        (b"[]", "no JSON object"),
        (b'{"a": 1, "a": 2}', "'a'"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "64 bits"),
        (b'{"a": 18446744073709551616}', "64 bits"),
        (b'{"a": -9223372036854775809}', "64 bits"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b"[" * 100_000, "deeper"),
        (b"[" * 70 + b"]" * 70, "deeper"),
        (b'{"a":' * 100_000, "deeper"),
        (b'{"object_kind": "merge_request"}', "object_attributes"),
        (b'{"object_kind": "merge_request", "object_attributes": []}', "object_attributes"),
        (b'{"object_kind": "merge_request", "object_attributes": {"iid": 1}}', "project"),
        (b'{"object_kind": "merge_request", "object_attributes": {"target_project_id": 1}}', "iid"),
        (
            b'{"object_kind": "merge_request", "object_attributes": {"iid": true, "target_project_id": 1}}',
            "object_attributes.iid",
        ),
        (
            b'{"object_kind": "merge_request", "object_attributes": {"iid": 1, "target_project_id": "42"}}',
            "target_project_id",
        ),
        (b'{"object_kind": "pipeline", "object_attributes": {"ref": 7}}', "object_attributes.ref"),
    ],
)
def test_a_body_that_cannot_be_read_is_answered_400_and_never_500(
    client: TestClient, engine: StandInEngine, body: bytes, field: str
) -> None:
    """The answer names what could not be read and what to send."""
    answer = client.post("/hooks/gitlab", headers=HEADERS, content=body)
    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert field in answer.json()["detail"]
    assert "send" in answer.json()["detail"]
    assert counted(engine, "unread", "malformed") == 1
    assert engine.deliveries == []


@pytest.mark.parametrize(
    "failure", [DatabaseUnavailable("gone"), DatabaseBusy("full"), CommitUnknown("lost")]
)
def test_a_database_that_is_away_is_answered_503(
    client: TestClient, engine: StandInEngine, failure: Exception
) -> None:
    """GitLab will not send it again; the poller repairs, and the answer says nothing of our inside."""
    engine.failure = failure
    answer = client.post("/hooks/gitlab", headers=HEADERS, json=MERGED)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert str(failure) not in answer.text
    assert counted(engine, "merge_request", "unavailable") == 1


def test_a_database_that_is_slow_is_answered_503_before_gitlab_hangs_up(
    client: TestClient, engine: StandInEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen database used to hold the delivery for 45 s, long after GitLab had given up at 10."""
    assert receiver.ANSWER_LIMIT_S < 10
    monkeypatch.setattr(receiver, "ANSWER_LIMIT_S", 0.05)
    engine.is_stuck = True
    answer = client.post("/hooks/gitlab", headers=HEADERS, json=MERGED)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert counted(engine, "merge_request", "unavailable") == 1


def test_a_defect_of_ours_is_answered_500_without_its_text(client: TestClient, engine: StandInEngine) -> None:
    """Loud in the log and the metrics, silent to the sender."""
    engine.failure = DatabaseDefect(1064, "secret statement")
    answer = client.post("/hooks/gitlab", headers=HEADERS, json=MERGED)
    assert answer.status_code == 500
    assert "secret statement" not in answer.text
    assert answer.headers["X-Request-Id"]
    assert counted(engine, "merge_request", "failed") == 1


def test_a_trailing_slash_is_not_redirected(client: TestClient) -> None:
    """GitLab counts a redirect as delivered."""
    assert client.post("/hooks/gitlab/", headers=HEADERS, json=MERGED).status_code == 404


def test_an_accepted_delivery_moves_the_hooks_clock(client: TestClient, engine: StandInEngine) -> None:
    """The age of the last accepted delivery is what an alert watches; refusals do not count."""
    name = "gitlab_sync_webhook_last_accepted_timestamp_seconds"
    client.post("/hooks/gitlab", json=MERGED)
    assert engine.ctx.metrics.registry.get_sample_value(name) == 0
    client.post("/hooks/gitlab", headers=HEADERS, json={"object_kind": "push"})
    assert (engine.ctx.metrics.registry.get_sample_value(name) or 0) > 0
