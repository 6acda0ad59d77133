"""The replicas that crash tests kill: real processes, forked from one parent that has imported everything.

`python -m tests.support.crash_replica` is that parent: an order a line on stdin (`start` a replica, send it
a `signal`), a report a line on stdout (started, stopped, continued, ended). It has one thread, so a fork
is whole; and it ends its replicas when its own stdin ends.

Races considered:
A  the parent is killed: the kernel kills its replicas with it (parent-death signal).
B  a replica ends between two orders: SIGCHLD wakes the parent, nothing is polled.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gitlab_sync import service
from tests.support.crash_flows import OUTBOX_INTERVAL_S, QUICK, Flow, Journal, partition_of, take_steps
from tests.support.crash_points import How, Trap, Traps
from tests.support.engine import engine_context, gitlab_client
from tests.support.road import BOT_TOKEN
from tests.support.sink import SECRET

_PR_SET_PDEATHSIG: Final = 1
_ORDERS: Final = 0
_REPORTS: Final = 1


async def live(order: dict[str, Any]) -> None:
    """One replica's life: a context with traps, and the steps it was told to take."""
    flow = Flow(order["flow"])
    traps = Traps(*(Trap(one["point"], one["nth"], How(one["how"])) for one in order["traps"]))
    async with (
        gitlab_client(order["gitlab_url"], BOT_TOKEN) as gitlab,
        engine_context(
            order["database_url"],
            partition_of(flow, order["project"]),
            gitlab=gitlab,
            points=traps,
            variables=QUICK | {"NOTIFY_URL": order["notify_url"], "NOTIFY_SECRET": SECRET},
        ) as ctx,
    ):
        await take_steps(ctx, flow, order["steps"], Journal(Path(order["journal"])))


class Parent:
    """Forks replicas and tells what becomes of them. `life` is what one does; its answer is the exit code."""

    def __init__(self, life: Callable[[dict[str, Any]], int]) -> None:
        self._life = life
        self._names: dict[int, str] = {}
        self._bell, self._ringer = os.pipe()
        os.set_blocking(self._ringer, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._ringer)

    def serve(self) -> None:
        """Carry out orders until there will be no more, then end every replica."""
        pending = b""
        report(state="ready", name="", pid=os.getpid())
        while True:
            ready, _, _ = select.select([_ORDERS, self._bell], [], [])
            if self._bell in ready:
                os.read(self._bell, 4096)
                self._reap()
            if _ORDERS in ready:
                piece = os.read(_ORDERS, 65536)
                if not piece:
                    break
                *lines, pending = (pending + piece).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))
        for pid in self._names:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _obey(self, order: dict[str, Any]) -> None:
        if order["do"] == "start":
            self._fork(order)
            return
        for pid, name in self._names.items():
            if name == order["name"]:
                os.kill(pid, order["signal"])

    def _fork(self, order: dict[str, Any]) -> None:
        pid = os.fork()
        if pid:
            self._names[pid] = order["name"]
            report(state="running", name=order["name"], pid=pid)
            return
        try:
            self._become_a_replica(order)
            exit_code = self._life(order)
        except BaseException:  # noqa: BLE001  whatever it was: this copy of the parent must not go on
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(exit_code)

    def _become_a_replica(self, order: dict[str, Any]) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(old, new)

    def _reap(self) -> None:
        while self._names:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not pid:
                return
            if os.WIFSTOPPED(status):
                report(state="stopped", name=self._names[pid], pid=pid)
            elif os.WIFCONTINUED(status):
                report(state="running", name=self._names[pid], pid=pid)
            else:
                code = os.waitstatus_to_exitcode(status)
                report(state="ended", name=self._names.pop(pid), pid=pid, code=code)


def report(**fields: Any) -> None:
    """One line to whoever ordered, with the moment of it."""
    os.write(_REPORTS, json.dumps(fields | {"at": time.monotonic()}).encode() + b"\n")


def _take_steps(order: dict[str, Any]) -> int:
    asyncio.run(live(order))
    return 0


if __name__ == "__main__":
    service.OUTBOX_INTERVAL_S = OUTBOX_INTERVAL_S  # type: ignore[misc]  # a test does not wait for the next turn
    Parent(_take_steps).serve()
