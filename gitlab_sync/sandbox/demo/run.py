"""The story of the demo, from the first sentence to the last: stage, waves of requests, summary, addresses.

Races considered:
A  Ctrl-C or SIGTERM at any moment: it becomes an exception at once, everything that runs is stopped in
   order on the way out, and a second one is not needed: children cannot outlive us.
B  a replica dies: it is said, the other one carries on; the run is judged by what landed.
C  the simulator or both replicas die: the demo says so, with the end of the log, and fails.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import httpx2
import pymysql

from gitlab_sync.errors import GitLabSyncError
from gitlab_sync.logs import configure_logging
from gitlab_sync.sandbox.database import PrivateDatabaseError
from gitlab_sync.sandbox.demo.children import Child
from gitlab_sync.sandbox.demo.failure import DemoFailed
from gitlab_sync.sandbox.demo.options import DemoOptions, Ending, pace_of
from gitlab_sync.sandbox.demo.progress import Progress
from gitlab_sync.sandbox.demo.screen import Screen
from gitlab_sync.sandbox.demo.stage import Stage, set_stage
from gitlab_sync.sandbox.demo.summary import sum_up
from gitlab_sync.sandbox.demo.weather import (
    DOUBLED_SHARE,
    LOST_SHARE,
    SEED,
    Weather,
    make_climate,
    make_weather,
    waves_of,
)
from gitlab_sync.sandbox.demo.wishes import Wish, wish
from gitlab_sync.sandbox.simulator import ControlRefused
from gitlab_sync.setting_values import LogFormat, LogLevel

LOOK_S: Final = 0.2
CALL_SIZE: Final = 5
LIMIT_S: Final = 240.0
LIMIT_EACH_S: Final = 0.5
DONE, FAILED = 0, 1
_EXPECTED: Final = (
    DemoFailed,
    PrivateDatabaseError,
    ControlRefused,
    GitLabSyncError,
    httpx2.HTTPError,
    pymysql.MySQLError,
    OSError,
)


class Stopped(BaseException):
    """Somebody wants us to end."""


def run_demo(options: DemoOptions) -> int:
    """Run the demo; the exit code: 0 only if everything landed and no invariant is violated."""
    configure_logging(LogFormat.CONSOLE, LogLevel.WARNING)  # what this process does itself is not the story
    with Screen() as screen, _stoppable():
        try:
            return _Demo(options, screen).run()
        except Stopped:
            screen.stop_table()
            screen.say("Stopped before the end; nothing is left running.")
        except _EXPECTED as error:
            screen.stop_table()
            print(f"The demo failed: {str(error) or type(error).__name__}", file=sys.stderr)
        return FAILED


class _Demo:
    """One run."""

    def __init__(self, options: DemoOptions, screen: Screen) -> None:
        self._options = options
        self._screen = screen
        self._pace = pace_of(options.ending)
        self._progress = Progress()
        self._wishes: dict[str, Wish] = {}
        self._mourned: set[str] = set()
        self._deadline = time.monotonic() + LIMIT_S + LIMIT_EACH_S * options.requests

    def run(self) -> int:
        screen = self._screen
        screen.say(
            "gitlab-sync demo: many requests, few merge requests. Everything runs on this machine only.\n"
        )
        with set_stage(self._options, self._pace, screen.tell) as stage:
            make_climate(stage.control)
            screen.tell(
                f"On purpose {LOST_SHARE:.0%} of the webhooks get lost and {DOUBLED_SHARE:.0%} come twice "
                f"(seed {SEED})."
            )
            self._submit_in_waves(stage)
            self._until_idle(stage)
            screen.stop_table()
            summary = sum_up(stage, self._wishes, time.monotonic() - screen.started_at)
            screen.say(f"\n{summary.as_text()}\n")
            if self._options.ending is Ending.WHEN_TOLD:
                self._keep_serving(stage)
        screen.say("Everything is stopped.")
        if self._options.ending is Ending.AFTER_SUMMARY:
            screen.say(summary.as_json())
        return DONE if summary.is_good else FAILED

    def _submit_in_waves(self, stage: Stage) -> None:
        waves = waves_of(self._options.requests)
        for number, (weather, numbers) in enumerate(waves, start=1):
            make_weather(stage.control, weather, number)
            self._screen.tell(
                f"Wave {number} of {len(waves)}: {_requests(len(numbers))} submitted; {weather}."
            )
            self._submit(stage, numbers)
            if weather is Weather.SILENT:
                self._until_idle(stage)
            elif number < len(waves):
                self._watch(stage, self._pace.wave_gap_s)

    def _submit(self, stage: Stage, numbers: range) -> None:
        """A few in each call, as portals do; the calls go to both replicas in turn."""
        for first in range(numbers.start, numbers.stop, CALL_SIZE):
            wishes = [wish(number) for number in numbers if first <= number < first + CALL_SIZE]
            ids = stage.service.submit([one.body for one in wishes], key=f"demo-{first}")
            self._wishes |= dict(zip(ids, wishes, strict=True))

    def _watch(self, stage: Stage, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._look(stage)
            time.sleep(LOOK_S)

    def _until_idle(self, stage: Stage) -> None:
        """Until nothing waits and nothing is at work, or somebody is needed for that."""
        self._look(stage)
        while not self._progress.is_idle:
            if time.monotonic() > self._deadline:
                raise DemoFailed(_stuck(self._progress, stage))
            time.sleep(LOOK_S)
            self._look(stage)

    def _look(self, stage: Stage) -> None:
        self._mourn(stage.children)
        for sentence in self._progress.see(stage.service.partitions(), stage.service.newest_batches()):
            self._screen.tell(sentence)
        self._screen.show(self._progress.rows)

    def _mourn(self, children: Sequence[Child]) -> None:
        """Say which process has ended. Raises DemoFailed if the run cannot go on without it."""
        dead = [child for child in children if child.exit_code() is not None]
        for child in dead:
            if child.name not in self._mourned:
                self._mourned.add(child.name)
                self._screen.tell(f"{child.name} has ended unexpectedly (exit code {child.exit_code()}).")
        simulator, *replicas = children
        for child in dead:
            if child is simulator or all(one in dead for one in replicas):
                raise DemoFailed(
                    f"without {child.name} it cannot go on; the end of its log:\n{child.last_words()}"
                )

    def _keep_serving(self, stage: Stage) -> None:
        self._screen.say(_addresses(stage))
        try:
            while True:
                self._mourn(stage.children)
                time.sleep(LOOK_S)
        except Stopped:
            self._screen.say("Stopping everything …")


def _stuck(progress: Progress, stage: Stage) -> str:
    """What was still to do when time was up, and the ends of the logs: they go with the folder."""
    left = "; ".join(
        f"{row.partition}: {row.waiting} waiting, at work: {row.at_work}" for row in progress.rows
    )
    words = "\n".join(f"{child.name} said last:\n{child.last_words()}" for child in stage.children)
    return f"not everything had landed in time ({left}).\n{words}"


def _command() -> str:
    """The command line of this installation, as short as it can be typed."""
    command = Path(sys.executable).with_name("gitlab-sync")
    return f"{command.relative_to(Path.cwd())}" if command.is_relative_to(Path.cwd()) else f"{command}"


def _requests(count: int) -> str:
    return "1 request is" if count == 1 else f"{count} requests are"


def _addresses(stage: Stage) -> str:
    first = stage.service.replicas[0].url
    bearer = f"-H 'Authorization: Bearer {stage.reader_token}'"
    return "\n".join(
        [
            "It keeps running; Ctrl-C ends it. Look around (from another terminal):",
            "",
            f"  curl {bearer} {first}/api/v1/batches",
            f"  curl {bearer} '{first}/api/v1/requests?status=merged'",
            *(f"  curl {replica.url}/metrics" for replica in stage.service.replicas),
            f"  curl {first}/openapi.json",
            f"  . {stage.folder}/environment && {_command()} batches list",
            f"  less {stage.folder}/*.log",
            "",
        ]
    )


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP end the demo in order; further ones are ignored meanwhile."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        raise Stopped

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
