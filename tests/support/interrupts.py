"""Ctrl-C reaches what tests start, also where the run itself was started in the background of a script.

A shell without job control lets such a command ignore SIGINT, and whatever it starts inherits that (POSIX,
Shell Command Language, 2.11): processes that were to be ended in order went on, and were waited for in vain.
"""

from __future__ import annotations

import signal


def hear_interrupts() -> None:
    """Take SIGINT as usual in this process, and let every process that it starts do so."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
