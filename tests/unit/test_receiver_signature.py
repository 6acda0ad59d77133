"""Webhook credentials: tokens, signatures, rotation, and every way to be refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from gitlab_sync.secret import Secret
from hooks.signature import TOLERANCE_S, Accepted, Pending, Refused, WebhookSecrets
from tests.support.edge import HOOK_TOKEN, SIGNING_KEY, client_of, environment, stand_in_engine

NOW = 1_767_225_600
OTHER_KEY = "whsec_Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA="
BODY = b'{"object_kind":"push"}'

RawHeaders = list[tuple[bytes, bytes]]


def secrets(*, tokens: tuple[str, ...] = (), keys: tuple[str, ...] = (), now: float = NOW) -> WebhookSecrets:
    """Configured secrets with a clock that stands."""
    return WebhookSecrets([Secret(text) for text in tokens], [Secret(text) for text in keys], now=lambda: now)


def signed(body: bytes = BODY, *, key: str = SIGNING_KEY, at: int = NOW, delivery: str = "d-1") -> RawHeaders:
    """The three headers as an independent library signs them."""
    signature = Webhook(key).sign(delivery, datetime.fromtimestamp(at, UTC), body.decode())
    return [
        (b"webhook-id", delivery.encode()),
        (b"webhook-timestamp", str(at).encode()),
        (b"webhook-signature", signature.encode()),
    ]


def is_authentic(configured: WebhookSecrets, headers: RawHeaders, body: bytes = BODY) -> bool:
    """Both steps of the check."""
    credentials = configured.examine(headers)
    return isinstance(credentials, Accepted) or (
        isinstance(credentials, Pending) and credentials.verify(body)
    )


def test_the_recorded_delivery_of_gitlab_verifies() -> None:
    """A vector that an independent library confirmed."""
    data = Path(__file__).parents[1] / "contract" / "data" / "hook_signature_vector.json"
    vector = json.loads(data.read_text())
    headers = [(name.lower().encode(), value.encode()) for name, value in vector["headers"].items()]
    configured = secrets(keys=(vector["signing_token"],))
    assert is_authentic(configured, headers, vector["body"].encode())
    assert not is_authentic(configured, headers, vector["body"].encode() + b" ")


def test_any_of_several_tokens_and_keys_passes_during_rotation() -> None:
    """Old and new side by side."""
    configured = secrets(tokens=("old-token", "new-token"), keys=(OTHER_KEY, SIGNING_KEY))
    assert is_authentic(configured, [(b"x-gitlab-token", b"old-token")])
    assert is_authentic(configured, [(b"X-Gitlab-Token", b"new-token")])
    assert is_authentic(configured, signed())
    assert is_authentic(configured, signed(key=OTHER_KEY))


def test_one_of_several_signatures_in_the_header_is_enough() -> None:
    """The sender may sign with an old and a new key; unknown versions are passed over."""
    headers = signed()
    good = headers[2][1]
    headers[2] = (b"webhook-signature", b"v2,xxxx v1,AAAA " + good)
    assert is_authentic(secrets(keys=(SIGNING_KEY,)), headers)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"x-gitlab-token", b"")],
        [(b"x-gitlab-token", b"wrong")],
        [(b"x-gitlab-token", HOOK_TOKEN.encode() + b" ")],
        [(b"x-gitlab-token", "ключ".encode())],
        [(b"x-gitlab-token", b"\xff\xfe")],
        [(b"x-gitlab-token", HOOK_TOKEN.encode()), (b"x-gitlab-token", b"wrong")],
        [(b"x-gitlab-token", HOOK_TOKEN.encode()), (b"X-Gitlab-Token", HOOK_TOKEN.encode())],
        [(b"x-gitlab-token", b"x" * 100_000)],
    ],
)
def test_a_token_that_is_not_exactly_one_known_token_is_refused(headers: RawHeaders) -> None:
    """One good and one bad is bad; other bytes are no crash."""
    assert isinstance(secrets(tokens=(HOOK_TOKEN,)).examine(headers), Refused)


@pytest.mark.parametrize(
    "changes",
    [
        {b"webhook-signature": b""},
        {b"webhook-signature": b"v1,"},
        {b"webhook-signature": b"v1"},
        {b"webhook-signature": b"v2,abc"},
        {b"webhook-signature": b"v1,\xff\xff"},
        {b"webhook-signature": b"v1,AAAA"},
        {b"webhook-id": b""},
        {b"webhook-id": b"d-2"},
        {b"webhook-timestamp": b""},
        {b"webhook-timestamp": b"soon"},
        {b"webhook-timestamp": b"-1"},
        {b"webhook-timestamp": b"9" * 400},
        {b"webhook-timestamp": str(NOW + 1).encode()},
        {b"webhook-timestamp": b"\xb2\xb3"},
    ],
)
def test_a_signature_with_anything_changed_is_refused(changes: dict[bytes, bytes]) -> None:
    """And none of it raises; the right token beside it does not help."""
    headers = [(name, changes.get(name, value)) for name, value in signed()]
    configured = secrets(tokens=(HOOK_TOKEN,), keys=(SIGNING_KEY,))
    assert not is_authentic(configured, [*headers, (b"x-gitlab-token", HOOK_TOKEN.encode())])


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_signature_that_lacks_a_header_does_not_fall_back_to_the_token(missing: int) -> None:
    """Leaving one header out must not weaken the check."""
    headers = [header for index, header in enumerate(signed()) if index != missing]
    headers.append((b"x-gitlab-token", HOOK_TOKEN.encode()))
    assert not is_authentic(secrets(tokens=(HOOK_TOKEN,), keys=(SIGNING_KEY,)), headers)


def test_doubled_signature_headers_are_refused() -> None:
    """Which of the two would count is nothing to guess."""
    configured = secrets(keys=(SIGNING_KEY,))
    for header in signed():
        assert not is_authentic(configured, [*signed(), header])


@pytest.mark.parametrize(
    ("late_s", "passes"),
    [(0, True), (TOLERANCE_S, True), (TOLERANCE_S + 1, False), (-TOLERANCE_S - 1, False)],
)
def test_an_old_or_early_signature_is_refused(late_s: int, passes: bool) -> None:  # noqa: FBT001  a table's column
    """Five minutes in either direction."""
    assert is_authentic(secrets(keys=(SIGNING_KEY,), now=NOW + late_s), signed()) is passes


def test_unsigned_deliveries_need_a_configured_token() -> None:
    """With signing keys alone an unsigned delivery is refused; signatures without keys are passed over."""
    token: RawHeaders = [(b"x-gitlab-token", HOOK_TOKEN.encode())]
    assert not is_authentic(secrets(keys=(SIGNING_KEY,)), token)
    assert is_authentic(secrets(keys=(SIGNING_KEY,), tokens=(HOOK_TOKEN,)), token)
    assert is_authentic(secrets(tokens=(HOOK_TOKEN,)), [*signed(key=OTHER_KEY), *token])
    assert not is_authentic(secrets(tokens=(HOOK_TOKEN,)), signed())


@given(st.lists(st.tuples(st.sampled_from([name for name, _ in signed()]), st.binary()), max_size=4))
def test_no_header_makes_the_check_break(headers: RawHeaders) -> None:
    """Arbitrary bytes are refused, never an error."""
    assert not is_authentic(secrets(tokens=(HOOK_TOKEN,), keys=(SIGNING_KEY,)), headers)


def test_the_receiver_checks_the_signature_over_the_raw_bytes() -> None:
    """Through the application: the signed id is the delivery's key; a changed blank is refused."""
    now = int(datetime.now(UTC).timestamp())
    body = b'{"object_kind": "merge_request", "object_attributes": {"iid": 1, "target_project_id": 2}}'
    headers = {name.decode(): value.decode() for name, value in signed(body, at=now)}
    headers |= {"Content-Type": "application/json", "Idempotency-Key": "another"}
    engine = stand_in_engine(environment(WEBHOOK_TOKENS=None, WEBHOOK_SIGNING_KEYS=SIGNING_KEY))
    with client_of(engine) as client:
        answers: list[Any] = [
            client.post("/hooks/gitlab", headers=headers, content=body),
            client.post("/hooks/gitlab", headers=headers, content=body + b" "),
            client.post("/hooks/gitlab", headers={"X-Gitlab-Token": HOOK_TOKEN}, content=body),
        ]
    assert [answer.status_code for answer in answers] == [202, 401, 401]
    assert [delivery.key for delivery in engine.deliveries] == ["d-1"]
    assert answers[1].json() == answers[2].json()
