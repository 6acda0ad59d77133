"""The search for planted secrets finds what is planted: one that finds nothing would prove nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote

import pytest

from tests.support.canaries import Canaries, signing_key, token


@pytest.mark.parametrize(
    "show",
    [
        str,
        lambda secret: secret[:14],
        lambda secret: secret[-14:],
        json.dumps,
        repr,
        lambda secret: json.dumps({"in": json.dumps([secret])}),
        lambda secret: quote(secret, safe=""),
        lambda secret: secret.encode().hex(),
        lambda secret: base64.b64encode(f"user:{secret}".encode()).decode(),
        lambda secret: base64.b64encode(f"us:{secret}".encode()).decode(),
    ],
)
@pytest.mark.parametrize("make", [token, signing_key, lambda: f"w/é+\"'&{token()}"])
def test_a_planted_secret_is_found_however_it_is_shown(
    make: Callable[[], str], show: Callable[[str], str]
) -> None:
    """Whole, half, quoted, encoded; by its name and its place."""
    canaries = Canaries()
    secret = canaries.plant("the secret", make())
    [leak] = canaries.find({"a page": "x" * 200 + show(secret) + "y", "another": "nothing here"})
    assert (leak.secret, leak.place) == ("the secret", "a page")


def test_what_is_not_planted_is_not_found() -> None:
    """Nor is a mask."""
    canaries = Canaries()
    canaries.plant("a", token())
    assert canaries.find({"a page": f"*** {token()} {signing_key()}"}) == []
