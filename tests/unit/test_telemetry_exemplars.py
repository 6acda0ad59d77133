"""Exemplars: ids of ours only, never a stranger's text, never more than the standard's 128 characters."""

from __future__ import annotations

import string
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.contextvars import bound_contextvars

from gitlab_sync.telemetry.exemplars import LONGEST, exemplar

RANDOM = "0b1c2d3e-4f50-4a1b-8c2d-3e4f5a6b7c8d"


def test_ids_of_ours_are_shown() -> None:
    """Numbers of rows, operations, and request ids as this service makes them."""
    operation_id = uuid.uuid5(uuid.NAMESPACE_URL, "made-by-a-client")
    assert exemplar(batch_id=12) == {"batch_id": "12"}
    assert exemplar(operation_id=operation_id) == {"operation_id": str(operation_id)}
    made_here = uuid.uuid4().hex
    assert exemplar(request_id=made_here) == {"request_id": made_here}
    assert exemplar(request_id=RANDOM) == {"request_id": RANDOM}


@pytest.mark.parametrize(
    "text",
    [
        "glpat-not-a-real-token",
        "d" * 32,  # has the length of one, and is no random UUID
        "e" * 64,
        RANDOM.upper(),
        RANDOM + "\n",
        RANDOM.replace("-4a1b", "-1a1b"),
        RANDOM.replace("-", "", 1),
        'x"} 1 # {trace="',
        "名前",
        "",
    ],
)
def test_what_a_stranger_can_write_is_not_shown(text: str) -> None:
    """A request id that comes with a call may be anything, a token by mistake among them."""
    assert exemplar(request_id=text, delivery_id=text) is None


@pytest.mark.parametrize("value", [None, True, -1, 1.5, 2**63, b"x", object()])
def test_what_is_no_id_is_not_shown(value: object) -> None:
    """Nothing breaks, nothing is told."""
    assert exemplar(batch_id=value) is None


def test_what_the_task_is_bound_to_is_told_too() -> None:
    """A call to GitLab knows no batch; the look that makes it does."""
    with bound_contextvars(batch_id=3, request_id=RANDOM, token="of nobody"):
        assert exemplar() == {"batch_id": "3", "request_id": RANDOM}
        assert exemplar(batch_id=4) == {"batch_id": "4", "request_id": RANDOM}
    assert exemplar() is None


@given(
    st.dictionaries(
        st.sampled_from(["operation_id", "batch_id", "request_id", "delivery_id", "other_id"]),
        st.one_of(st.uuids(), st.integers(), st.text(), st.just(RANDOM)),
    )
)
def test_no_exemplar_breaks_the_standard(ids: dict[str, object]) -> None:
    """At most 128 characters of names and values, and plain signs only: the library would raise."""
    shown = exemplar(**ids) or {}
    assert sum(len(name) + len(value) for name, value in shown.items()) <= LONGEST
    assert set("".join(shown.values())) <= set(string.hexdigits + "-")
