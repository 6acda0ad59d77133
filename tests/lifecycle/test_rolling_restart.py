"""Three replicas behind nginx are restarted one after the other, twice around, under load: no call fails."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any, Final

import pytest

from gitlab_sync.db.limits import CALL_LIMIT_S
from gitlab_sync.sandbox.simulator import Running
from hooks.api.bodies import SUBMIT_LIMITS
from hooks.server import KEEP_ALIVE_S
from tests.support.commands import BOT, PROJECT, simulated_gitlab
from tests.support.installation import Installation, Replica, installed
from tests.support.landings import landings_in
from tests.support.nginx import EXAMPLE, nginx
from tests.support.replica import HOOK_TOKEN, create_hook
from tests.support.road import until
from tests.support.rolling_load import SIGNING_KEY, Load, load_on
from tests.support.sink import listening

NAMES: Final = ("one", "two", "three")
ROUNDS: Final = 2
MORE: Final = 20  # acknowledged submits between two restarts
# What nginx says when an answer was lost, unlike a refused connection, which it may pass on.
LOST: Final = re.compile(r"prematurely closed|reset by peer|Broken pipe|timed out|no live upstreams")


@pytest.mark.timeout(300)
async def test_three_replicas_are_restarted_twice_around_and_no_call_fails(
    one_database_url: str, tmp_path: Path
) -> None:
    """Submits, reads, signed webhooks, writes without a key: all answered; all that was taken lands, once."""
    with (
        simulated_gitlab(tmp_path) as gitlab,
        listening() as sink,
        installed(tmp_path / "service", one_database_url, gitlab, sink, names=()) as house,
    ):
        house.set(WEBHOOK_TOKENS=HOOK_TOKEN, WEBHOOK_SIGNING_KEYS=SIGNING_KEY)
        for name in NAMES:
            await asyncio.to_thread(house.start, name)
        addresses = [replica.url.removeprefix("http://") for replica in house.replicas]
        with nginx(tmp_path / "nginx", addresses) as url:
            await asyncio.to_thread(create_hook, gitlab, url, PROJECT, BOT)
            async with load_on(url) as load:
                await _restart_around(house, load)
            said = (tmp_path / "nginx" / "error.log").read_text()
        assert load.failed == [], said[-3000:]
        assert LOST.findall(said) == []
        assert said.count("Connection refused") >= ROUNDS, "nobody met a replica that was away"
        assert min(load.answered[kind] for kind in ("submit", "list", "read", "hook", "round")) > MORE
        await _require_all_landed_once(house, load, gitlab)


async def _restart_around(house: Installation, load: Load) -> None:
    for replica in house.replicas * ROUNDS:
        wanted = len(load.acknowledged) + MORE

        async def is_loaded(wanted: int = wanted) -> bool:
            return len(load.acknowledged) >= wanted

        await until(is_loaded, f"{MORE} more submits", 60)
        await asyncio.to_thread(house.restart, replica.name)  # exit code 0, or it fails
        await until(lambda replica=replica: _is_ready(replica), f"{replica.name} is ready")  # type: ignore[misc]


async def _is_ready(replica: Replica) -> bool:
    return await asyncio.to_thread(replica.ready) == 200


async def _require_all_landed_once(house: Installation, load: Load, gitlab: Running) -> None:
    await asyncio.to_thread(house.until_landed)
    (kept,) = house.rows("SELECT COUNT(*) FROM operation")
    assert kept == (len(load.acknowledged),)
    assert len(await asyncio.to_thread(house.files)) == len(load.acknowledged)
    landings = landings_in(gitlab.control.log(PROJECT))
    assert set(landings.values()) == {1}
    checked = await asyncio.to_thread(house.cli, "doctor", "--invariants")
    assert checked.exit_code == 0, checked.out
    deliveries: list[dict[str, Any]] = gitlab.control.deliveries()
    assert deliveries, "GitLab told nothing"


def test_the_example_for_nginx_fits_the_service() -> None:
    """Whoever sends closes first; nothing that the service takes is cut, or given up before it answers."""
    text = EXAMPLE.read_text(encoding="utf-8")

    def number(name: str) -> int:
        (found,) = re.findall(rf"^\s*{name} (\d+)[sm];", text, re.MULTILINE)
        return int(found)

    assert number("keepalive_timeout") < KEEP_ALIVE_S
    assert number("proxy_read_timeout") > CALL_LIMIT_S
    assert number("client_max_body_size") << 20 >= SUBMIT_LIMITS.size_bytes
    assert number("client_body_timeout") >= SUBMIT_LIMITS.deadline_s
