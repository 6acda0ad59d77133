"""What signals mean to a process of ours.

Commands: SIGTERM and SIGHUP end one as Ctrl-C does. What it has under way is cancelled and closed, one line
says so, and the exit code is 128 and the signal's number, as shells have it: 130, 143, 129. What was
committed stays; all of them can be called again.

`serve`: SIGTERM, SIGINT and SIGHUP begin a stop in order, exit code 0 (`serve` says how). A second one, of
whatever kind, ends the process at once by that signal.

SIGQUIT, SIGUSR1 and SIGUSR2 keep what the kernel does: the end, at once. Nothing is lost by that, others
finish what was in hand. There is nothing to reload, so SIGHUP means what it means to a terminal's programs;
a process that was started with `nohup` keeps ignoring it.

`migrate` finishes the file that it has begun before it ends, because a half applied file needs a person.

Races considered:
A  a signal before the handlers are there (the interpreter starts): the kernel's default, 143 and no line.
B  a thread still waits for GitLab when all else is over: `leave_soon` does not wait for it.
C  a stop that hangs all the same: `never_longer_than` ends the process, exit code 1. A process that was
   frozen meanwhile (SIGSTOP) first gets a moment to end in order: its own limits have passed too.
D  SIGINT is ignored (a job in the background of a script): SIGTERM must work without it.
E  we are process 1 of a container: the kernel keeps from it every signal that has no handler of ours
   (pid_namespaces(7)), also one that it sends itself. So there a second signal is answered by an exit code
   (`_ends_at_once`); a signal before the handlers are there (A) is lost, and sent again by nobody: the stop
   then waits for the grace period. An init in front of us (`docker run --init`) has neither limit.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

LEAVE_S: Final = 1.0
LAST_CHANCE_S: Final = 3.0
ORDERLY: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SHELL: Final = 128
_INIT: Final = 1  # the process that a container is
_seen: list[signal.Signals] = []


def end_on_signals() -> None:
    """Let SIGTERM and SIGHUP end the command that runs as Ctrl-C does; a second one ends it at once."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def is_interrupted(exit_code: int) -> bool:
    """Whether a command has ended by a signal; typer's exit code for Ctrl-C says so of each."""
    return exit_code == _SHELL + signal.SIGINT


def tell_interrupted() -> int:
    """Say in one line what ended the command; its exit code."""
    number = _seen[0] if _seen else signal.SIGINT
    said = f"ended by {number.name}; what was written stays, and the same command may be run again"
    print(f"gitlab-sync: {said}", file=sys.stderr)
    return _SHELL + number


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold the first signal back until the block is over: it does what ends too early only in a mess.

    A second one ends the process at once.
    """
    held: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        held.append(number)
        for each in before:
            _ends_at_once(each)

    before = {
        each: signal.getsignal(each) for each in ORDERLY if signal.getsignal(each) is not signal.SIG_IGN
    }
    for each in before:
        signal.signal(each, hold)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if held:
        _interrupt(held[0], None)


def stop_on_signals(begin: Callable[[signal.Signals], None]) -> None:
    """Call `begin` on the running loop at the first signal; the second ends the process."""
    import asyncio

    loop = asyncio.get_running_loop()
    told: list[signal.Signals] = []

    def take(number: signal.Signals) -> None:
        if told:
            _ends_at_once(number)
            os.kill(os.getpid(), number)
            return
        told.append(number)
        begin(number)

    for number in ORDERLY:
        if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue
        loop.add_signal_handler(number, take, number)


def never_longer_than(limit_s: float, tell: Callable[[], None]) -> None:
    """Unless the process has ended before: `tell` after `limit_s`, and end it with 1, whatever still runs."""

    def end() -> None:
        time.sleep(limit_s)
        time.sleep(LAST_CHANCE_S)  # race C
        try:
            tell()
        finally:
            os._exit(1)

    threading.Thread(target=end, name="never-longer-than", daemon=True).start()


def leave_soon(exit_code: int) -> None:
    """End the process with `exit_code` within LEAVE_S, although a thread may wait for somebody's answer."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a reader that went away
            stream.flush()
    timer = threading.Timer(LEAVE_S, os._exit, [exit_code])  # race B
    timer.daemon = True
    timer.start()


def _interrupt(number: int, frame: FrameType | None) -> None:
    _seen.append(signal.Signals(number))
    _ends_at_once(number)
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    if callable(on_ctrl_c):
        on_ctrl_c(signal.SIGINT, frame)  # inside a loop it cancels in order
    else:
        raise KeyboardInterrupt


def _ends_at_once(number: int) -> None:
    """Let the next signal of this kind end the process: by the kernel, or by ourselves (race E)."""
    signal.signal(number, signal.SIG_DFL if os.getpid() != _INIT else _leave)


def _leave(number: int, _frame: FrameType | None) -> None:
    os._exit(_SHELL + number)
