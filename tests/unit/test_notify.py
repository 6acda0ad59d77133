"""The form of a notification, what answers mean, and when the next attempt is."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from gitlab_sync.notify import (
    LONGEST_WAIT_S,
    MOST_ATTEMPTS,
    MOST_REFUSALS,
    Again,
    Attempt,
    Message,
    NoMore,
    Result,
    headers,
    judge,
    message,
    retry_after_s,
    visible,
    what_follows,
)
from gitlab_sync.secret import Secret
from gitlab_sync.setting_values import signing_key_bytes
from tests.support.sink import SECRET

KEY = signing_key_bytes(Secret(SECRET))
CREATED = datetime(2026, 3, 4, 5, 6, 7, 89)  # noqa: DTZ001  naive UTC, as the driver hands it over
FAILED = Attempt(Result.UNAVAILABLE)
REFUSED = Attempt(Result.REFUSED)


def signed(body: Message, at_s: int) -> dict[str, str]:
    """The headers of an attempt."""
    return headers(body, KEY, at_s)


def middle() -> float:
    """Dice that spread nothing."""
    return 0.5


def test_an_independent_library_finds_the_signature_good() -> None:
    """Receivers verify with the standard's own libraries, over the bytes that were sent."""
    sent = message(7, "request.merged", CREATED, {"subject": "user:Ä🙂", "reason": None})
    found = Webhook(SECRET).verify(sent.body, signed(sent, int(time.time())))
    assert found == {
        "type": "request.merged",
        "timestamp": "2026-03-04T05:06:07.000089Z",
        "data": {"subject": "user:Ä🙂", "reason": None},
    }
    assert sent.id == "msg_7"


@pytest.mark.parametrize("part", ["webhook-id", "webhook-timestamp", "body"])
def test_a_changed_part_is_not_what_was_signed(part: str) -> None:
    """The signature covers id, timestamp and body: none of them can be swapped on the way."""
    sent, now_s = message(7, "request.merged", CREATED, {}), int(time.time())
    received = signed(sent, now_s)
    body = sent.body
    if part == "body":
        body = body.replace(b"merged", b"failed")
    else:
        received[part] = {"webhook-id": "msg_8", "webhook-timestamp": str(now_s + 1)}[part]
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body, received)


def test_the_body_of_a_row_is_the_same_in_each_attempt() -> None:
    """A receiver may compare bodies of one id."""
    first, again = (message(7, "batch.failed", CREATED, {"b": 1, "a": [2]}) for _ in range(2))
    assert first == again
    assert json.loads(first.body)["data"] == {"a": [2], "b": 1}


@pytest.mark.parametrize(
    ("statuses", "result"),
    [
        ((200, 201, 202, 204, 299), Result.DELIVERED),
        ((408, 409, 425, 429, 500, 502, 503, 504, 599), Result.UNAVAILABLE),
        ((300, 301, 302, 307, 308, 400, 401, 403, 404, 410, 413, 422, 451), Result.REFUSED),
    ],
)
def test_each_status_means_one_thing(statuses: tuple[int, ...], result: Result) -> None:
    """A redirect is a refusal: it is not followed."""
    assert {judge(status) for status in statuses} == {result}


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("30", 30.0),
        (" 0 ", 0.0),
        ("9" * 30, LONGEST_WAIT_S),
        ("Wed, 04 Mar 2026 05:07:07 GMT", 60.0),
        ("Wed, 04 Mar 2026 05:00:00 GMT", 0.0),
        ("Fri, 04 Mar 2050 05:00:00 GMT", LONGEST_WAIT_S),
        ("soon", None),
        ("-5", None),
        ("²", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_both_forms_and_capped(value: str | None, wait_s: float | None) -> None:
    """Nonsense is as good as nothing, and nobody is believed for longer than the cap."""
    at = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC).timestamp()
    assert retry_after_s(value, at) == wait_s


def test_a_receiver_in_trouble_is_tried_for_about_a_day() -> None:
    """The first waits are seconds, the later ones an hour; then the notification is a dead letter."""
    waits = []
    for attempts in range(1, MOST_ATTEMPTS):
        follows = what_follows(FAILED, attempts, 0, middle)
        assert isinstance(follows, Again)
        waits.append(follows.delay_s)
    assert waits[:4] == [5, 10, 20, 40]
    assert max(waits) == LONGEST_WAIT_S
    assert 23 <= sum(waits) / 3600 <= 26
    assert what_follows(FAILED, MOST_ATTEMPTS, 0, middle) == NoMore()


def test_a_refusal_has_few_successors() -> None:
    """Long enough to mend a wrong address, and it does not matter how often nobody was there before."""
    waits = [what_follows(REFUSED, 9 + turn, turn, middle) for turn in range(1, MOST_REFUSALS)]
    assert waits == [Again(60), Again(120), Again(240), Again(480)]
    assert what_follows(REFUSED, 9 + MOST_REFUSALS, MOST_REFUSALS, middle) == NoMore()


@given(st.integers(1, 10**6), st.floats(0, 1), st.floats(0, LONGEST_WAIT_S))
def test_a_wait_that_was_asked_for_is_kept(attempts: int, roll: float, asked_s: float) -> None:
    """Whatever the dice say, nobody comes back sooner; nor much later than the longest wait."""
    follows = what_follows(Attempt(Result.UNAVAILABLE, "", asked_s), attempts, 0, lambda: roll)
    if attempts >= MOST_ATTEMPTS:
        assert follows == NoMore()
        return
    assert isinstance(follows, Again)
    assert asked_s <= follows.delay_s <= 1.2 * LONGEST_WAIT_S


@given(st.text(max_size=2000))
def test_what_a_receiver_says_fits_its_column_and_steers_no_terminal(text: str) -> None:
    """It is stored, logged and shown to an operator."""
    shown = visible(text)
    assert len(shown) <= 500
    assert shown.isprintable()
