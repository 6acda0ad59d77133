"""A secret is masked in every spelling in which something may show it, and nothing else is."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitlab_sync.scrubbing import SHORTEST, Scrubber, scrub_forms
from gitlab_sync.secret import MASK, Secret
from gitlab_sync.setting_secrets import mask_address, secrets_in_address

AWKWARD: Final = "pä§s w0rd/+&=?#\"'\\%"
SPELLINGS: Final[dict[str, Callable[[str], str]]] = {
    "plain": str,
    "json": json.dumps,
    "json with all signs": lambda text: json.dumps(text, ensure_ascii=False),
    "json in json": lambda text: json.dumps(json.dumps({"a": text})),
    "repr": repr,
    "repr of bytes": lambda text: repr(text.encode()),
    "url": lambda text: quote(text, safe=""),
    "path": quote,
    "form": quote_plus,
    "query": lambda text: urlencode({"token": text}),
    "lower escapes": lambda text: re.sub("%..", lambda found: found.group().lower(), quote(text, safe="")),
    "hex": lambda text: text.encode().hex(),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for urls": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "basic auth": lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
    "basic auth of x": lambda text: base64.b64encode(f"x:{text}@y".encode()).decode(),
    "base32": lambda text: base64.b32encode(text.encode()).decode(),
}


@pytest.mark.parametrize("secret", [AWKWARD, "abcdefghijkl", "0123456789", "tab\tand\nbreak", "ключ-к-базе"])
@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
def test_a_secret_is_masked_in_every_spelling(secret: str, spell: Callable[[str], str]) -> None:
    """In the middle of a text, whatever stands beside it."""
    spelt = spell(secret)
    inside = spelt[4:-4]  # the edges of base64 belong to the neighbours too
    scrubber = Scrubber([Secret(secret)])
    cleaned = scrubber.scrub(f"before {spelt} after")
    assert inside not in cleaned
    assert cleaned.startswith("before ")
    assert cleaned.endswith(" after")
    assert MASK in cleaned
    assert not scrubber.is_clean(f"before {spelt} after")


@given(st.text(min_size=SHORTEST, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_no_secret_of_whatever_signs_survives(secret: str, before: str, after: str) -> None:
    """What is known to be secret is looked for as it is, not as it should look."""
    cleaned = Scrubber([Secret(secret)]).scrub(before + secret + after)
    assert secret not in cleaned or secret in MASK * 3 + before + after


def test_a_secret_that_is_a_part_of_another_one_does_not_uncover_it() -> None:
    """The longer one goes first."""
    scrubber = Scrubber([Secret("abcdef"), Secret("abcdef-and-more")])
    assert scrubber.scrub("x abcdef-and-more y") == f"x {MASK} y"


def test_a_short_secret_is_counted_and_not_looked_for() -> None:
    """A mask in every word would tell its letters; it is kept out by its type alone, and `serve` says so."""
    scrubber = Scrubber([Secret("abc"), Secret("a" * SHORTEST), Secret("")])
    assert scrubber.too_short == 1
    assert scrubber.scrub("abc aaaaaa") == f"abc {MASK}"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("token glpat-AAAAbbbbCCCCddddEEEE was revoked", f"token {MASK} was revoked"),
        ("gldt-AAAAbbbbCCCCddddEEEE", MASK),
        ("key whsec_AAECAwQFBgcICQoL", f"key {MASK}"),
        ("mysql://user:p%40ss@host/name", f"mysql://{MASK}@host/name"),
        ("https://host/x?private_token=abcdefgh&b=1", f"https://host/x?private_token={MASK}&b=1"),
        ('{"access_token": "abcdefgh"}', f'{{"access_token": "{MASK}"}}'),
        ("Authorization: Bearer abcdefghijklmnop", f"Authorization: Bearer {MASK}"),
        ("authorization: basic dXNlcjpwYXNzd29yZA==", f"authorization: basic {MASK}"),
        ("PRIVATE-TOKEN: abcdefgh", f"PRIVATE-TOKEN: {MASK}"),
    ],
)
def test_a_strangers_secret_is_known_by_its_form(text: str, left: str) -> None:
    """GitLab may quote the token of a person who is none of ours."""
    assert scrub_forms(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "Access denied for user 'sync'@'10.0.0.1' (using password: YES)",
        "redirected to https://gitlab.example.com/users/sign_in: set GITLAB_SYNC_GITLAB_URL",
        "send one header `Authorization: Bearer TOKEN` with a token from GITLAB_SYNC_API_TOKENS",
        "branch gitlab-sync/access-prod/17-0123456789ab holds 0123456789abcdef0123456789abcdef01234567",
        "gitlab_sync/reconcile.py:120 _look < gitlab_sync/looks.py:66 _serve",
        "401 Unauthorized; 403 insufficient_scope",
        "glance, global, gldt- and glpat- are words",
    ],
)
def test_ordinary_words_are_left_alone(text: str) -> None:
    """A log that masks what it should say helps nobody."""
    assert scrub_forms(text) == text


def test_a_chat_services_address_is_a_secret_by_its_path() -> None:
    """Whoever has it may post."""
    url = "https://chat.example/services/T0000/AAAAbbbbCCCCddddEEEEffff"
    assert mask_address(url) == f"https://chat.example/services/T0000/{MASK}"
    assert [secret.reveal() for secret in secrets_in_address(url)] == ["AAAAbbbbCCCCddddEEEEffff"]
    assert mask_address("https://sink.example/hooks/gitlab-sync") == "https://sink.example/hooks/gitlab-sync"


def test_a_library_s_whole_answer_is_swept() -> None:
    """Errors of GitLab come as texts, lists and fields of fields."""
    scrubber = Scrubber([Secret("abcdefgh")])
    said = {"message": {"base": ["is abcdefgh"]}, "abcdefgh": b"abcdefgh", "count": 3}
    assert scrubber.scrub_all(said) == {"message": {"base": [f"is {MASK}"]}, MASK: MASK, "count": 3}


def test_a_secret_is_not_written_down_by_accident() -> None:
    """A copy is the same object, a pickle is refused."""
    secret = Secret("abcdefgh")
    assert copy.deepcopy([secret])[0] is secret
    assert copy.copy(secret) is secret
    with pytest.raises(TypeError, match="stays in this process"):
        pickle.dumps(secret)
