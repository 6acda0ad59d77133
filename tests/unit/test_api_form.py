"""The form of API bodies, times, cursors and the OpenAPI document: refused by name, or read exactly."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from starlette.datastructures import QueryParams
from starlette.testclient import TestClient

from hooks.api.cursors import read_cursor, write_cursor
from hooks.api.incoming import RequestIn
from hooks.api.times import read_rfc3339, rfc3339
from hooks.problems import PROBLEMS
from hooks.strict_json import BadJson, body_hash, read_json
from hooks.table import ALL
from tests.support.api import body
from tests.support.edge import ALL_SCOPES, bearer, client_of, stand_in_engine


@pytest.fixture
def client() -> Iterator[TestClient]:
    """A client with every scope on an application whose database must not be reached."""
    with client_of(stand_in_engine()) as client:
        client.headers.update(bearer(ALL_SCOPES))
        yield client


@pytest.mark.parametrize(
    ("changes", "pointer", "remedy"),
    [
        ({"partition": None}, "/partition", "JSON string"),
        ({"subject": 7}, "/subject", "JSON string"),
        ({"action": "APPLY"}, "/action", "'apply', 'amend' or 'remove'"),
        ({"edits": {}}, "/edits", "JSON array"),
        ({"edits": ["put"]}, "/edits/0", "JSON object"),
        ({"priority": "1"}, "/priority", "without quotes"),
        ({"priority": True}, "/priority", "without quotes"),
        ({"priority": 1.5}, "/priority", "without quotes"),
        ({"operation_id": "42"}, "/operation_id", "leave it out"),
        ({"operation_id": 42}, "/operation_id", "leave it out"),
        ({"expires_at": 1767225600}, "/expires_at", "RFC 3339"),
        ({"expires_at": "2026-12-31"}, "/expires_at", "RFC 3339"),
        ({"expires_at": "2026-12-31T10:00:00"}, "/expires_at", "with an offset"),
        ({"expires_at": "2026-02-30T10:00:00Z"}, "/expires_at", "does not exist"),
        ({"callback_url": "http://x"}, "/callback_url", "remove it"),
        ({"a/b~c": 1}, "/a~1b~0c", "remove it"),
    ],
)
def test_a_member_of_the_wrong_form_is_named_by_pointer_and_remedy(
    client: TestClient, changes: dict[str, Any], pointer: str, remedy: str
) -> None:
    """For a single object from its own root, in a list with the index before it."""
    for sent, prefix in ((body(**changes), ""), ([body(1), body(2, **changes)], "/1")):
        answer = client.post("/api/v1/requests", json=sent)
        assert answer.status_code == 422
        [problem] = answer.json()["errors"]
        assert problem["pointer"] == prefix + pointer
        assert remedy in problem["detail"]


def test_all_missing_members_are_told_at_once(client: TestClient) -> None:
    """One round trip, not seven."""
    answer = client.post("/api/v1/requests", json={})
    pointers = {problem["pointer"] for problem in answer.json()["errors"]}
    assert pointers == {f"/{name}" for name in body()}


@pytest.mark.parametrize("sent", [[], [body()] * 1_001, 7, "text", None, [[]], [None]])
def test_a_body_that_is_neither_a_request_nor_a_list_of_them_is_refused(
    client: TestClient, sent: Any
) -> None:
    """An empty list and one too many as well."""
    answer = client.post(
        "/api/v1/requests", content=json.dumps(sent), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422
    assert "send" in answer.json()["errors"][0]["detail"]


def test_a_list_of_a_thousand_bad_members_has_a_bounded_answer(client: TestClient) -> None:
    """The first hundred problems are enough to begin with."""
    answer = client.post("/api/v1/requests", json=[{}] * 1_000)
    assert len(answer.json()["errors"]) == 100


@pytest.mark.parametrize("key", [b"", b" ", b"x" * 256, b"tab\there", "ключ".encode()])
def test_an_idempotency_key_that_cannot_be_kept_is_refused(client: TestClient, key: bytes) -> None:
    """Silently dropping it would make a repeat a second request."""
    answer = client.post("/api/v1/requests", json=body(), headers=[(b"Idempotency-Key", key)])
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "Idempotency-Key"


def test_a_doubled_idempotency_key_is_refused(client: TestClient) -> None:
    """Which of the two would count is nothing to guess."""
    headers = [(b"Idempotency-Key", b"a"), (b"Idempotency-Key", b"b")]
    assert client.post("/api/v1/requests", json=body(), headers=headers).status_code == 422


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-31T23:59:59Z", datetime(2026, 12, 31, 23, 59, 59)),  # noqa: DTZ001  naive UTC inside
        ("2026-12-31t23:59:59.5z", datetime(2026, 12, 31, 23, 59, 59, 500_000)),  # noqa: DTZ001
        ("2026-12-31 23:59:59.1234567+02:00", datetime(2026, 12, 31, 21, 59, 59, 123_456)),  # noqa: DTZ001
    ],
)
def test_times_are_read_with_their_offset(text: str, expected: datetime) -> None:
    """No silent loss of the offset, no rounding into the future."""
    assert read_rfc3339(text) == expected


@given(st.datetimes(min_value=datetime(1000, 1, 1), max_value=datetime(9999, 12, 31)))  # noqa: DTZ001
def test_a_time_survives_its_way_out_and_in(moment: datetime) -> None:
    """Microseconds always, so that texts sort like times."""
    text = rfc3339(moment)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", text)
    assert read_rfc3339(text) == moment


@given(st.text())
def test_no_text_makes_a_time_break(text: str) -> None:
    """A time, or a ValueError with the remedy."""
    try:
        read_rfc3339(text)
    except ValueError as refusal:
        message = str(refusal)
    else:
        return
    assert "RFC 3339" in message


def test_times_at_the_ends_of_the_calendar_are_refused_and_no_crash() -> None:
    """An offset can lead out of the years that exist."""
    for text in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-01-01T00:00:00+99:99"):
        with pytest.raises(ValueError, match="does not exist"):
            read_rfc3339(text)


@given(st.text(st.characters(codec="ascii"), max_size=100))
def test_a_cursor_survives_its_way_out_and_in(position: str) -> None:
    """Opaque and safe in a URL."""
    cursor = write_cursor(position)
    assert cursor is not None
    assert re.fullmatch(r"[A-Za-z0-9_-]*", cursor)
    assert read_cursor(QueryParams({"cursor": cursor})) == position


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_plain_json_is_read_as_it_was_written(value: Any) -> None:
    """Strictness costs no lawful value."""
    assert read_json(json.dumps(value).encode()) == value
    assert read_json(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.binary() | st.text().map(str.encode))
def test_no_bytes_make_reading_break(data: bytes) -> None:
    """A value, or BadJson with the remedy; never anything else."""
    message = "send nothing"
    try:
        read_json(data)
    except BadJson as refusal:
        message = str(refusal)
    assert "send" in message


def test_the_body_hash_sees_the_content_and_not_the_spelling() -> None:
    """Key order and blanks are spelling; a list's order, a type, an object or a list of one are content."""
    assert body_hash(read_json(b'{"a": 1, "b": [1, 2]}')) == body_hash(read_json(b'{"b":[1,2],"a":1}'))
    different = [
        b'{"a":1}',
        b'{"a":"1"}',
        b'{"a":1.0}',
        b'{"a":true}',
        b'[{"a":1}]',
        b'{"a":[1,2]}',
        b'{"a":[2,1]}',
    ]
    assert len({body_hash(read_json(text)) for text in different}) == len(different)


def test_the_document_tells_every_path_and_every_reference_resolves(client: TestClient) -> None:
    """What is served and what is told come from one table."""
    document = client.get("/openapi.json").json()
    told = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    assert told == {(endpoint.path, endpoint.method) for endpoint in ALL}
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert references == set(document["components"]["schemas"])
    types = document["components"]["schemas"]["ProblemOut"]["properties"]["type"]["enum"]
    assert len(types) == len(set(types)) == len(PROBLEMS)


def test_the_documented_example_of_a_request_is_taken_as_it_stands() -> None:
    """The README's JSON is a promise."""
    example = {
        "partition": "access-prod",
        "subject": "user:alice",
        "target": "db-orders",
        "action": "apply",
        "edits": [
            {
                "op": "merge",
                "path": "access/db-orders.yaml",
                "patch": {"members": {"alice": {"role": "reader"}}},
            }
        ],
        "title": "alice reads db-orders",
        "requested_by": "alice",
        "expires_at": None,
        "priority": 0,
    }
    request = TypeAdapter(RequestIn).validate_python(example).to_request()
    assert request.edits == tuple(example["edits"])  # type: ignore[arg-type]
    assert isinstance(request.operation_id, uuid.UUID)
    later = RequestIn.model_validate({**example, "expires_at": "2026-01-01T00:00:00+01:00"}).to_request()
    assert later.expires_at == (datetime(2026, 1, 1, tzinfo=UTC) - timedelta(hours=1)).replace(tzinfo=None)
