"""API tokens: who is let in, to what, and that a refusal tells nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from gitlab_sync.secret import Secret
from gitlab_sync.setting_values import ApiToken, Scope
from hooks.auth import LONGEST_TOKEN_BYTES, TokenBook
from hooks.table import PUBLIC
from tests.support.edge import ALL_SCOPES, TOKENS, bearer, client_of, stand_in_engine

TOKEN = b"the-token"
BOOK = TokenBook([ApiToken("portal", frozenset({Scope.READ}), Secret(hashlib.sha256(TOKEN).hexdigest()))])
GUARDED = [
    (endpoint.method, endpoint.path, endpoint.scope) for endpoint in PUBLIC if endpoint.scope is not None
]


@pytest.fixture
def client() -> Iterator[TestClient]:
    """A client on the application; anything that gets past the scopes meets a missing database."""
    with client_of(stand_in_engine()) as client:
        yield client


def test_the_one_known_token_names_its_caller() -> None:
    """The scheme's letter case does not matter, the token's does."""
    for value in (b"Bearer the-token", b"bearer the-token", b"BEARER  the-token"):
        caller = BOOK.find([(b"authorization", value)])
        assert caller is not None
        assert caller.name == "portal"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Bearer The-Token")],
        [(b"authorization", b"Basic dGhlLXRva2Vu")],
        [(b"authorization", b"the-token")],
        [(b"authorization", b"Bearer the-token, Bearer other")],
        [(b"authorization", "Bearer ключ".encode())],
        [(b"authorization", b"Bearer \xff")],
        [(b"authorization", b"Bearer " + b"x" * (LONGEST_TOKEN_BYTES + 1))],
        [(b"authorization", b"Bearer the-token"), (b"authorization", b"Bearer other")],
        [(b"authorization", b"Bearer the-token"), (b"Authorization", b"Bearer the-token")],
        [(b"x-gitlab-token", TOKEN)],
    ],
)
def test_everything_else_names_nobody(headers: list[tuple[bytes, bytes]]) -> None:
    """Missing, doubled, misspelt, other bytes: no caller and no crash."""
    assert BOOK.find(headers) is None


@pytest.mark.parametrize(("method", "path", "scope"), GUARDED)
def test_every_endpoint_of_the_api_asks_for_exactly_its_scope(
    client: TestClient, method: str, path: str, scope: Scope
) -> None:
    """No token: 401. Each other scope: 403 that names the one needed. Its own: past the door."""
    path = path.format(operation_id="0" * 32, batch_id="1", key="p")
    assert client.request(method, path).status_code == 401
    for other in Scope:
        answer = client.request(method, path, headers=bearer(TOKENS[other]))
        if other is scope:
            assert answer.status_code not in {401, 403}
        else:
            assert (answer.status_code, answer.json()["needed_scope"]) == (403, scope)


def test_the_scopes_are_those_of_the_documentation() -> None:
    """A change of one is a change of the promise."""
    table = {(method, path.removeprefix("/api/v1")): scope for method, path, scope in GUARDED}
    assert table == {
        ("POST", "/requests"): Scope.SUBMIT,
        ("GET", "/requests"): Scope.READ,
        ("GET", "/requests/{operation_id}"): Scope.READ,
        ("POST", "/requests/{operation_id}/approve"): Scope.APPROVE,
        ("POST", "/requests/{operation_id}/reject"): Scope.APPROVE,
        ("POST", "/requests/{operation_id}/close"): Scope.SUBMIT,
        ("POST", "/requests/{operation_id}/retry"): Scope.SUBMIT,
        ("GET", "/batches"): Scope.READ,
        ("GET", "/batches/{batch_id}"): Scope.READ,
        ("POST", "/batches/{batch_id}/retry"): Scope.OPERATE,
        ("POST", "/batches/{batch_id}/fail"): Scope.OPERATE,
        ("GET", "/partitions"): Scope.READ,
        ("POST", "/partitions/{key}/rounds"): Scope.OPERATE,
        ("POST", "/partitions/{key}/pause"): Scope.OPERATE,
        ("POST", "/partitions/{key}/resume"): Scope.OPERATE,
    }


def test_a_refusal_is_the_same_whatever_was_wrong(client: TestClient) -> None:
    """An unknown token, no token, a malformed header: one answer, and never the token."""
    answers = [
        client.get("/api/v1/requests"),
        client.get("/api/v1/requests", headers=bearer("unknown-token-canary")),
        client.get("/api/v1/requests", headers={"Authorization": "nonsense"}),
    ]
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].headers["WWW-Authenticate"].startswith("Bearer")
    assert "canary" not in answers[1].text


def test_the_body_of_an_unknown_caller_is_never_judged(client: TestClient) -> None:
    """401 before 413, 415 or 422."""
    huge = client.post("/api/v1/requests", content=b"x" * 10, headers={"Content-Length": "999999999"})
    odd = client.post("/api/v1/requests", content=b"x", headers={"Content-Encoding": "gzip"})
    assert (huge.status_code, odd.status_code) == (401, 401)


def test_probes_and_metrics_are_open(client: TestClient) -> None:
    """Kubelets and Prometheus carry no token of ours."""
    for path in ("/livez", "/readyz", "/metrics", "/openapi.json"):
        assert client.get(path).status_code == 200


def test_a_token_may_have_several_scopes(client: TestClient) -> None:
    """Past every door with one token."""
    for method, template, _ in GUARDED:
        path = template.format(operation_id="0" * 32, batch_id="1", key="p")
        assert client.request(method, path, headers=bearer(ALL_SCOPES)).status_code not in {401, 403}
