"""The service against a pure model of it, in whatever order Hypothesis finds: answers, tables, invariants.

`STATE_MACHINE_EXAMPLES=n` for the long form, which looks for violated invariants after every call; the short
one after every eighth and at each end. A failure prints its steps as a program and a blob that repeats it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pymysql
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import MakeConnection
from tests.support.guards import weaken_statement
from tests.support.service_machine import ServiceMachine
from tests.support.service_stage import Stage

EXAMPLES: Final = int(os.environ.get("STATE_MACHINE_EXAMPLES", "40"))
INVARIANTS_EVERY: Final = 1 if "STATE_MACHINE_EXAMPLES" in os.environ else 8
STEPS: Final = 40


@contextmanager
def staged(database_url: str, connection: pymysql.Connection[Any]) -> Iterator[Stage]:
    """One stage for all examples of a test."""
    stage = Stage(database_url, connection, invariants_every=INVARIANTS_EVERY)
    try:
        yield stage
    finally:
        stage.close()


def drive(stage: Stage, examples: int, **changes: Any) -> None:
    """Run the machine; whatever it finds is raised."""
    wanted = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        **changes,
    )
    make: Any = lambda: ServiceMachine(stage)  # noqa: E731  typed as a class, used as a factory
    run_state_machine_as_test(make, settings=wanted)


@pytest.mark.timeout(max(600, EXAMPLES * 10))
def test_the_service_does_what_its_model_says(database_url: str, connect: MakeConnection) -> None:
    """Submits, moves, rounds, looks, hooks, operators, time, deaths: never another state than the model's."""
    began = time.monotonic()
    with staged(database_url, connect()) as stage:
        drive(stage, EXAMPLES)
        print(f"{EXAMPLES} examples of up to {STEPS} steps in {time.monotonic() - began:.1f} s")
        print("met:", ", ".join(f"{what} {times}" for what, times in sorted(stage.tally.items())))


def test_the_machine_finds_a_service_in_which_nobody_has_to_approve(
    database_url: str, connect: MakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its guard the waiting set takes requests that are still PENDING."""
    weaken_statement(monkeypatch, "request_insert_moved", " AND o.status = 2")
    with staged(database_url, connect()) as stage, pytest.raises(AssertionError) as found:
        drive(stage, 100, phases=(Phase.generate,), database=None)
    assert "waiting:" in str(found.value)
