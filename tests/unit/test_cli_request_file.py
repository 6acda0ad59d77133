"""Files of requests: the same members as the API, judged for form with the place of every problem."""

from __future__ import annotations

import uuid
from datetime import datetime
from pathlib import Path

import pytest

from gitlab_sync.cli.request_file import KEY_MEMBER, MEMBERS, parse_requests, read_request_file
from gitlab_sync.errors import InvalidRequest
from gitlab_sync.states import Action
from hooks.api.incoming import RequestIn

ONE = b"""\
partition: access-prod
subject: user:alice
target: db-orders
action: apply
title: alice reads db-orders
requested_by: alice
edits:
  - op: merge
    path: access/db-orders.yaml
    patch: {members: {alice: {role: reader, since: 2026-01-02}}}
"""


def problems(content: bytes) -> list[str]:
    """What is said of a file that is refused."""
    with pytest.raises(InvalidRequest) as refused:
        parse_requests(content, name="f.yaml")
    return [f"{one.pointer}: {one.message}" for one in refused.value.problems]


def test_a_file_takes_the_members_of_the_api_and_a_key() -> None:
    """A member added to one of the two and forgotten in the other would be noticed by nobody else."""
    assert set(MEMBERS) - {KEY_MEMBER} == set(RequestIn.model_fields)
    required = {name for name, field in RequestIn.model_fields.items() if field.is_required()}
    assert {name for name, member in MEMBERS.items() if member.is_required} == required


def test_one_request_is_read_and_dates_in_edits_stay_text() -> None:
    """YAML would make a date of `since`; JSON has none, so it stays what it looks like."""
    (filed,) = parse_requests(ONE, name="f.yaml")
    assert filed.place == "f.yaml"
    assert (filed.request.action, filed.request.subject) == (Action.APPLY, "user:alice")
    assert filed.request.edits[0]["patch"]["members"]["alice"]["since"] == "2026-01-02"


def test_a_derived_key_is_the_same_for_the_same_file_and_differs_by_position() -> None:
    """Submitting a file twice adds nothing; two like requests in one file are still two."""
    indented = b"- " + ONE.replace(b"\n", b"\n  ").strip(b" ")
    twice = indented + indented
    first, second = parse_requests(twice, name="f.yaml")
    again, _ = parse_requests(twice, name="elsewhere.yaml")
    assert first.idempotency == again.idempotency
    assert first.idempotency.key != second.idempotency.key
    assert first.idempotency.body_hash == second.idempotency.body_hash
    assert (first.place, second.place) == ("f.yaml/0", "f.yaml/1")


def test_a_key_of_ones_own_survives_an_edit_of_the_file() -> None:
    """The body is what the key stands for: the key itself is not part of it."""
    (plain,) = parse_requests(ONE, name="f.yaml")
    (named,) = parse_requests(ONE + b"idempotency_key: ticket-7\n", name="f.yaml")
    assert named.idempotency.key == "ticket-7"
    assert named.idempotency.body_hash == plain.idempotency.body_hash


def test_times_become_utc_and_ids_are_kept() -> None:
    """`expires_at` carries an offset; `operation_id` is the client's own."""
    own = uuid.uuid4()
    more = f"expires_at: 2026-12-31T23:00:00+02:00\noperation_id: '{own}'\npriority: 3\n".encode()
    (filed,) = parse_requests(ONE + more, name="f.yaml")
    assert filed.request.expires_at == datetime(2026, 12, 31, 21)  # noqa: DTZ001 naive UTC by design
    assert (filed.request.operation_id, filed.request.priority) == (own, 3)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[]", "f.yaml: holds no request"),
        (b"- just text", "f.yaml/0: is no mapping"),
        (ONE + b"labels: []\n", "f.yaml/labels: is no member of a request"),
        (ONE.replace(b"target: db-orders\n", b""), "f.yaml/target: is missing"),
        (ONE.replace(b"apply", b"destroy"), "f.yaml/action: is unknown"),
        (ONE.replace(b"alice reads db-orders", b"7"), "f.yaml/title: is no text"),
        (ONE + b"priority: high\n", "f.yaml/priority: is no whole number"),
        (ONE + b"priority: true\n", "f.yaml/priority: is no whole number"),
        (ONE + b"expires_at: 2026-12-31\n", "f.yaml/expires_at: has no offset"),
        (ONE + b"expires_at: soon\n", "f.yaml/expires_at: is no time"),
        (ONE + b"operation_id: seven\n", "f.yaml/operation_id: is no UUID"),
        (ONE + b"idempotency_key: ''\n", "f.yaml/idempotency_key: is no key"),
        (ONE.replace(b"2026-01-02", b"!!set {a}"), "f.yaml/edits: holds a set"),
        (ONE.replace(b"alice: {", b"7: {"), "f.yaml/edits: has a key that is no text"),
        (ONE + b"title: again\n", "f.yaml: line 11, column 1: is not valid YAML"),
        (ONE + b"x: !!python/object:os.system {}\n", "is not valid YAML"),
        (b"a: [", "is not valid YAML"),
        (b"[" * 500, "brackets are nested deeper"),
        (b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_a_malformed_file_is_refused_with_place_and_remedy(content: bytes, said: str) -> None:
    """Nothing is guessed or repaired."""
    assert any(said in problem for problem in problems(content)), problems(content)


def test_all_problems_are_told_at_once() -> None:
    """Two bad members of one request, and one of another."""
    bad = b"- {partition: p}\n- {subject: 4}\n"
    assert len([one for one in problems(bad) if "is missing" in one]) == 12
    assert "f.yaml/1/subject: is no text; put it in quotes" in problems(bad)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """No traceback for a typing error."""
    with pytest.raises(InvalidRequest, match=r"nowhere\.yaml: cannot be read"):
        read_request_file(tmp_path / "nowhere.yaml")
