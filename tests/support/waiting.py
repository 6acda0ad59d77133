"""Waiting for a state in tests that are not asynchronous: look again until it is so, within a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

LIMIT_S: Final = 60.0


def until(reached: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
    """Return once it is so."""
    deadline = time.monotonic() + limit_s
    while not reached():
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(0.05)
