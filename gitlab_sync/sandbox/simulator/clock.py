"""The simulator's clock, its timers and its one lock.

Real time plus an offset that the control plane can push forward. All state is touched under `lock` only;
a timer's action runs under it too. A handler that must wait (`pause`, `wait_for`) gives the lock up
meanwhile.

Races considered:
A  the clock is advanced while timers are due in between: they run in the order of their due times, each
   seeing its own time, so an hour is the same whether it is waited for or skipped.
B  a timer's action fails: the failure is kept for the audit and the clock goes on; one bug must not
   freeze the rest.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import traceback
from collections.abc import Callable

Action = Callable[[], None]


class Clock:
    """Virtual wall clock with timers; start it before use and stop it afterwards."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.failures: list[str] = []
        self._changed = threading.Condition(self.lock)
        self._due: list[tuple[float, int, Action]] = []
        self._order = itertools.count()
        self._offset_s = 0.0
        self._running = False
        self._thread = threading.Thread(target=self._run, name="simulator-clock", daemon=True)

    def start(self) -> None:
        self._running = True
        self._thread.start()

    def stop(self) -> None:
        with self.lock:
            self._running = False
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def now(self) -> float:
        """Return the simulated Unix time in seconds."""
        return time.time() + self._offset_s

    def after(self, delay_s: float, action: Action) -> None:
        """Run `action` under the lock once `delay_s` simulated seconds have passed."""
        with self.lock:
            heapq.heappush(self._due, (self.now() + delay_s, next(self._order), action))
            self._changed.notify_all()

    def pause(self, delay_s: float) -> None:
        """Let `delay_s` simulated seconds pass without holding the lock; returns at once when stopped."""
        if delay_s <= 0:
            return
        end = self.now() + delay_s
        with self.lock:
            while self._running and (left_s := end - self.now()) > 0:
                self._changed.wait(left_s)

    def wait_for(self, reached: Callable[[], bool], limit_s: float) -> bool:
        """Wait, without holding the lock, until `reached()`; False: `limit_s` real seconds went by before."""
        with self.lock:
            return self._changed.wait_for(lambda: reached() or not self._running, limit_s) and reached()

    def changed(self) -> None:
        """Wake those who wait for a state; call it under the lock after changing one."""
        with self.lock:
            self._changed.notify_all()

    def advance(self, seconds: float) -> None:
        """Push the clock forward, running what becomes due on the way in its own time."""
        with self.lock:
            target = self.now() + seconds
            while self._due and self._due[0][0] <= target:
                self._offset_s += max(0.0, self._due[0][0] - self.now())
                self._run_next()
            self._offset_s += max(0.0, target - self.now())
            self._changed.notify_all()

    @property
    def pending(self) -> int:
        """Return how many timers have not fired yet."""
        return len(self._due)

    def _run(self) -> None:
        with self.lock:
            while self._running:
                while self._due and self._due[0][0] <= self.now():
                    self._run_next()
                self._changed.wait(max(0.0, self._due[0][0] - self.now()) if self._due else None)

    def _run_next(self) -> None:
        _, _, action = heapq.heappop(self._due)
        try:
            action()
        except Exception:  # noqa: BLE001 - see race B
            self.failures.append(traceback.format_exc())
        self._changed.notify_all()
