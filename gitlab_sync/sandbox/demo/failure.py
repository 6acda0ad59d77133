"""How the demo fails: one sentence for the person at the terminal."""

from __future__ import annotations


class DemoFailed(RuntimeError):
    """The demo cannot go on; the message says why and where to look."""
