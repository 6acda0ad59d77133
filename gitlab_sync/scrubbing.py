"""Masks secrets in texts that are about to be seen: known ones in their spellings, others by their form.

Known are the secrets that somebody hands over, whole or as a part of something longer. They are looked for as
they are and as JSON, URLs, forms, Python's repr, base64, base32 and hex would spell them. Others, such as a
person's token in an error of GitLab's, are known by their form: GitLab's prefixes, userinfo of a URL, what
stands behind `private_token=` or `Bearer`.

A known secret of fewer than SHORTEST characters is not looked for: it would mask half of every line, and a
mask that shows where the letters of a password are tells more than it hides. Such a one is kept out by its
type alone (`secret.Secret`); `serve` says at its start that there are some. Nor is a part of a secret: sweep
before cutting (`scrub_and_cut`). Pure.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from gitlab_sync.secret import MASK, Secret
from gitlab_sync.setting_values import SIGNING_KEY_PREFIX

SHORTEST: Final = 6
_LONGEST_FORM: Final = 512  # a stranger's secret that is longer may lose its end at a cut
_PREFIXES: Final = ("pat", "dt", "rt", "cbt", "ptt", "ft", "imt", "agent", "soat", "ffct", "oas", "rtr")
_GITLAB: Final = re.compile(rf"\bgl(?:{'|'.join(_PREFIXES)})-[\w.=-]{{16,}}|\bGR1348941[\w-]{{16,}}")
_SIGNING: Final = re.compile(r"\bwhsec_[A-Za-z0-9+/=_-]{8,}")
_USERINFO: Final = re.compile(r"(?<=://)[^\s/?#@'\"]+@")
_NAMED: Final = re.compile(
    r"(?i)(?P<name>\b(?:private[-_]token|access[-_]token|job[-_]token|x-gitlab-token|password|passwd|api[-_]key"
    r"|client[-_]secret)\\*[\"']?\s*(?:=|:|%3D)\s*\\*[\"']?)(?P<value>[^\s\"'\\&;,]{6,})"
)
_BEARER: Final = re.compile(r"(?i)\b(?P<scheme>Bearer|Basic)\s+(?P<token>[\w.~+/=-]{16,})")
#: Each form, and a word in lower case without which it cannot be there: looking for words costs little.
_FORMS: Final = (
    (_GITLAB, MASK, (*(f"gl{prefix}-" for prefix in _PREFIXES), "gr1348941")),
    (_SIGNING, MASK, ("whsec_",)),
    (_USERINFO, f"{MASK}@", ("://",)),
    (_NAMED, rf"\g<name>{MASK}", ("token", "passw", "secret", "api-key", "api_key")),
    (_BEARER, rf"\g<scheme> {MASK}", ("bearer", "basic")),
)


class Scrubber:
    """Masks `secrets` and what has the form of one."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        texts = {secret.reveal() for secret in secrets}
        spellings = {one for text in texts for one in _spellings(text)}
        # Longest first: a spelling may hold another one.
        self._spellings = sorted(spellings, key=len, reverse=True)
        self._longest = len(self._spellings[0]) if self._spellings else 0
        self.too_short = sum(0 < len(text) < SHORTEST for text in texts)

    def is_clean(self, text: str) -> bool:
        """Whether `scrub` would leave `text` as it is."""
        return not any(spelling in text for spelling in self._spellings) and scrub_forms(text) == text

    def scrub(self, text: str) -> str:
        """`text` with a mask in the place of each secret."""
        for spelling in self._spellings:
            if spelling in text:
                text = text.replace(spelling, MASK)
        return scrub_forms(text)

    def scrub_and_cut(self, text: str, most: int) -> str:
        """`text` with masks, cut behind `most` characters; what lies far behind the cut is not swept.

        Masks are short, so a text full of secrets shrinks, and the half one at its end may come into sight.
        """
        far = 2 * most + max(self._longest, _LONGEST_FORM)
        swept = self.scrub(text[:far])
        if len(text) > far:
            return f"{self._without_half(swept)[:most]}…"
        return swept if len(swept) <= most else f"{swept[:most]}…"

    def _without_half(self, swept: str) -> str:
        """`swept` without a spelling that is begun at its end, and without its last word: a form may be."""
        for at in range(max(0, len(swept) - self._longest), len(swept)):
            rest = swept[at:]
            if any(spelling.startswith(rest) for spelling in self._spellings):
                swept = swept[:at]
                break
        end = swept[-_LONGEST_FORM:]
        return swept if end[-1:].isspace() else swept.removesuffix((end.split() or [""])[-1])

    def scrub_all(self, said: object) -> object:
        """The same for every text in what a library hands over: bytes, lists and fields in fields."""
        match said:
            case str():
                return self.scrub(said)
            case bytes():
                return self.scrub(said.decode("utf-8", "replace"))
            case list() | tuple():
                return [self.scrub_all(one) for one in said]
            case dict():
                return {self.scrub_all(key): self.scrub_all(one) for key, one in said.items()}
            case _:
                return said


def scrub_forms(text: str) -> str:
    """Mask what looks like a secret of whomever."""
    lower = text.lower()
    for form, mask, words in _FORMS:
        if any(word in lower for word in words):
            text = form.sub(mask, text)
    return text


def _spellings(text: str) -> Iterator[str]:
    """Every spelling that is long enough to be nothing else."""
    parts = {text, text.removeprefix(SIGNING_KEY_PREFIX)}
    for part in parts:
        if len(part) >= SHORTEST:
            yield from (one for one in _spelt(part) if len(one) >= SHORTEST)


def _spelt(text: str) -> Iterator[str]:
    raw = text.encode()
    yield text
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield json.dumps(json.dumps(text)[1:-1])[1:-1]  # a line inside a line
    yield repr(text)[1:-1]
    yield repr(raw)[2:-1]
    yield quote(text, safe="")
    yield quote(text)
    yield quote_plus(text)
    yield _lower_escapes(quote(text, safe=""))
    yield raw.hex()
    yield raw.hex().upper()
    yield base64.b32encode(raw).decode().rstrip("=")
    yield from _base64_anywhere(raw)


def _lower_escapes(quoted: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda found: found.group().lower(), quoted)


def _base64_anywhere(raw: bytes) -> Iterator[str]:
    """How base64 spells `raw` behind 0, 1 or 2 other bytes, as in `user:password`, without shared edges."""
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        first = (0, 2, 3)[shift]
        last = len(encoded) - (1 if (shift + len(raw)) % 3 else 0)
        inner = encoded[first:last]
        if len(inner) >= SHORTEST:
            yield inner
            yield inner.replace("+", "-").replace("/", "_")
