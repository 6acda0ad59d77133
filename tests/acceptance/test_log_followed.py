"""The log of real replicas: every line keeps the contract, and a request is followed by ids to its end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from gitlab_sync.log_words import Event, Unit
from gitlab_sync.sandbox.simulator import Running
from tests.support.commands import (
    BOT,
    PARTITION,
    PROJECT,
    request_body,
    service_environment,
    serving,
    simulated_gitlab,
)
from tests.support.log_lines import Line, events, lines_of, units
from tests.support.replica import HOOK_TOKEN, create_hook
from tests.support.sink import SECRET, SinkServer, listening
from tests.support.waiting import until

PORTAL: Final = "a-token-of-the-portal"
ALONE: Final = 3
TOGETHER: Final = 4


@pytest.fixture
def gitlab(tmp_path: Path) -> Iterator[Running]:
    """A simulated instance."""
    with simulated_gitlab(tmp_path) as running:
        yield running


@pytest.fixture
def sink() -> Iterator[SinkServer]:
    """A receiver that takes everything."""
    with listening() as receiver:
        yield receiver


def settings_of(folder: Path, database_url: str, gitlab: Running, **more: str) -> dict[str, str]:
    """A service whose portal may submit, with the log for machines."""
    folder.mkdir(exist_ok=True)
    digest = hashlib.sha256(PORTAL.encode()).hexdigest()
    tokens = {"API_TOKENS": f"portal:read+submit+operate:{digest}", "WEBHOOK_TOKENS": HOOK_TOKEN}
    return service_environment(folder, database_url, gitlab.base_url, **tokens, **more)


def submit(client: httpx2.Client, url: str, request_id: str, body: Any) -> list[str]:
    """The ids of the operations that a call has brought."""
    headers = {"Authorization": f"Bearer {PORTAL}", "X-Request-Id": request_id}
    answer = client.post(f"{url}/api/v1/requests", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    items = answer.json()
    return [one["operation_id"] for one in (items if isinstance(items, list) else [items])]


def land_some(
    folder: Path, database_url: str, gitlab: Running, sink: SinkServer
) -> tuple[dict[str, list[str]], list[Line]]:
    """Requests through two replicas: which call brought which operations, and both logs in one."""
    brought: dict[str, list[str]] = {}
    logs = []
    with ExitStack() as stack:
        urls = []
        for name in ("one", "two"):
            settings = settings_of(
                folder / name,
                database_url,
                gitlab,
                LOG_LEVEL="debug",
                NOTIFY_URL=sink.url,
                NOTIFY_SECRET=SECRET,
            )
            child, url = stack.enter_context(serving(folder / name, settings))
            urls.append(url)
            logs.append(child.log)
        create_hook(gitlab, urls[0], PROJECT, BOT)
        client = stack.enter_context(httpx2.Client(trust_env=False, timeout=30))
        for number in range(ALONE):
            brought[f"alone-{number}"] = submit(
                client, urls[number % 2], f"alone-{number}", request_body(number)
            )
        several = [request_body(ALONE + number) for number in range(TOGETHER)]
        brought["together"] = submit(client, urls[1], "together", several)
        until(lambda: _all_told(sink), "every request is told as merged")
    return brought, lines_of("".join(log.read_text() for log in logs))


def _all_told(sink: SinkServer) -> bool:
    return sink.types.count("request.merged") == ALONE + TOGETHER


def test_every_line_keeps_the_contract_and_each_request_is_followed_by_ids_alone(
    tmp_path: Path, database_url: str, gitlab: Running, sink: SinkServer
) -> None:
    """From the call to the batch to the settlement to the notification, across two replicas."""
    brought, lines = land_some(tmp_path, database_url, gitlab, sink)
    for request_id, operation_ids in brought.items():
        [call] = units(lines, Unit.HTTP_REQUEST, request_id=request_id)
        assert (call["status"], call["outcome"], call["actor"]) == (201, "done", "portal")
        assert call["partition"] == PARTITION
        assert operations_of(call, lines) == operation_ids
        for operation_id in operation_ids:
            follow_to_the_end(operation_id, lines)
    require_one_line_for_each_unit(lines)


def operations_of(call: Line, lines: list[Line]) -> list[str]:
    """What a call has brought: on its own line, or for a list on lines with its id."""
    if call["operation_id"] is not None:
        return [call["operation_id"]]
    told = events(lines, Event.ADMITTED, request_id=call["request_id"])
    return [operation_id for line in told for operation_id in line["operation_ids"]]


def follow_to_the_end(operation_id: str, lines: list[Line]) -> None:
    """Nothing but ids leads on."""
    told = [one for one in events(lines, Event.BATCH_MEMBERS) if operation_id in one["operation_ids"]]
    batch_id = told[-1]["batch_id"]
    [claim] = units(lines, Unit.ROUND, batch_id=batch_id, outcome="claimed")
    [settlement] = units(lines, Unit.SETTLEMENT, batch_id=batch_id, outcome="won")
    assert (claim["partition"], settlement["edge"]) == (PARTITION, "RUNNING->SUCCEEDED")
    assert settlement["mr_iid"] is not None
    assert settlement["merged"] >= 1
    assert settlement["db_transactions"] == 1
    published = units(lines, Unit.PUBLISH, batch_id=batch_id, outcome="published")
    assert [line["mr_iid"] for line in published] == [settlement["mr_iid"]]
    looks = units(lines, Unit.LOOK, batch_id=batch_id, outcome="settled")
    assert len(looks) == 1
    assert looks[0]["gitlab_calls"] >= 1
    [merged] = units(lines, Unit.NOTIFICATION, operation_id=operation_id, type="request.merged")
    assert (merged["batch_id"], merged["outcome"]) == (batch_id, "delivered")


def require_one_line_for_each_unit(lines: list[Line]) -> None:
    """Every kind was there, each once for what it stands for, and causes are carried on."""
    seen = {line["event"] for line in lines} & set(Unit)
    idle = {Unit.REBUILD, Unit.INVARIANTS}
    assert set(Unit) - idle <= seen, set(Unit) - seen
    answered = [line["request_id"] for line in units(lines, Unit.HTTP_REQUEST) + units(lines, Unit.WEBHOOK)]
    assert len(answered) == len(set(answered))
    hooks = units(lines, Unit.WEBHOOK, outcome="taken")
    assert hooks
    assert all(line["delivery_id"] and line["batch_id"] for line in hooks)
    caused = [line for line in units(lines, Unit.LOOK, via="webhook") if line["delivery_id"]]
    assert {line["delivery_id"] for line in caused} <= {line["delivery_id"] for line in hooks}
    assert caused
    assert not [line for line in lines if line["level"] in ("error", "critical")]
    assert not [line for line in lines if line["level"] == "info" and line["event"] == Unit.LOOP_STEP]


def test_an_idle_replica_says_nothing(tmp_path: Path, database_url: str, gitlab: Running) -> None:
    """Loops turn, probes and scrapes come, and after the start the log at `info` stays as it is."""
    settings = settings_of(tmp_path, database_url, gitlab, ROUND_INTERVAL_S="0.05", POLL_INTERVAL_S="0.3")
    with serving(tmp_path, settings) as (child, url), httpx2.Client(trust_env=False, timeout=30) as client:
        before = child.log.read_text()

        def has_turned() -> bool:
            client.get(f"{url}/livez")
            client.get(f"{url}/readyz")
            counted = client.get(f"{url}/metrics").text.splitlines()
            rounds = [line for line in counted if 'transactions_total{name="round_peek"' in line]
            return bool(rounds) and float(rounds[0].rpartition(" ")[2]) >= 30

        until(has_turned, "the loops have turned thirty times")
        assert child.log.read_text() == before


def test_a_service_that_cannot_start_says_so_in_its_log(tmp_path: Path, gitlab: Running) -> None:
    """Whoever collects lines of JSON learns it from one, and no other line comes."""
    from tests.support.commands import run_command

    url = "mysql://somebody@127.0.0.1:9/nothing"
    ran = run_command("serve", environ=settings_of(tmp_path, url, gitlab))
    assert ran.exit_code == 1
    [failed] = events(lines_of(ran.err), Event.SERVE_FAILED)
    assert failed["error"] == "DatabaseUnavailable"
    assert ran.out == ""
