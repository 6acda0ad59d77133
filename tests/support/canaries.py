"""Secrets to plant, and a search that finds them in whatever spelling, or only a part of one.

Knows nothing of how the service masks: the spellings are made here a second time. A random secret of 24 signs
is found by any run of twelve of them, so half of one is found too. What is made here is never a real secret,
and is different in each run.
"""

from __future__ import annotations

import base64
import html
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, quote_plus

WINDOW: Final = 12


def token(prefix: str = "") -> str:
    """A fresh secret that nothing else looks like."""
    return prefix + secrets.token_hex(14)


def signing_key() -> str:
    """A fresh Standard Webhooks key."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


@dataclass(frozen=True, slots=True)
class Leak:
    """A secret in a place where it must not be."""

    secret: str
    place: str
    around: str

    def __str__(self) -> str:
        return f"{self.secret} in {self.place}: …{self.around}…"


@dataclass(slots=True)
class Canaries:
    """What was planted, by name; `find` looks for all of it."""

    planted: dict[str, str] = field(default_factory=dict)

    def plant(self, name: str, text: str) -> str:
        """Remember a secret; it comes back as it is."""
        self.planted[name] = text
        return text

    def find(self, outputs: Mapping[str, str]) -> list[Leak]:
        """Every secret in every output, each once a place."""
        runs = {run: name for name, secret in self.planted.items() for run in _runs(secret)}
        return [leak for place, text in outputs.items() for leak in _leaks(runs, place, text)]


def _leaks(runs: Mapping[str, str], place: str, text: str) -> Iterator[Leak]:
    seen: set[str] = set()
    for at in range(len(text) - WINDOW + 1):
        name = runs.get(text[at : at + WINDOW])
        if name is not None and name not in seen:
            seen.add(name)
            yield Leak(name, place, text[max(0, at - 80) : at + 60])


def _runs(secret: str) -> Iterator[str]:
    """Every run of WINDOW signs of every spelling."""
    for spelling in _spellings(secret):
        for first in range(len(spelling) - WINDOW + 1):
            yield spelling[first : first + WINDOW]


def _spellings(secret: str) -> Iterable[str]:
    raw = secret.encode()
    once = json.dumps(secret)[1:-1]
    found = [
        secret,
        secret.removeprefix("whsec_"),
        once,
        json.dumps(once)[1:-1],
        repr(secret)[1:-1],
        repr(raw)[2:-1],
        html.escape(secret),
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        quote(secret, safe="").lower(),
        raw.hex(),
        raw.hex().upper(),
        base64.b32encode(raw).decode().rstrip("="),
    ]
    for shift in range(3):
        encoded = base64.b64encode(b"x" * shift + raw).decode().rstrip("=")
        inner = encoded[4 if shift else 0 : -2]
        found += [inner, inner.replace("+", "-").replace("/", "_")]
    return dict.fromkeys(found)
