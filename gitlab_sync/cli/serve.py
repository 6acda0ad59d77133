"""`serve`: one replica. Checks the database, runs the engine's loops and the edge, stops on a signal.

The one place below `hooks` that knows it: the command line is where the parts are put together, so here,
inside the command, the engine meets its edge. A second signal during the stop ends the process at once.

Races considered:
A  a signal before everything runs: the stop is noticed by whatever starts next; nothing was taken on yet.
B  the edge dies (address taken, or later): the engine is stopped in order too, and the reason is told.
C  a webhook arrives while the engine drains: it is committed before it is answered, so the batch is due for
   whoever runs next.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gitlab_sync.errors import ConfigError
from gitlab_sync.settings import Need, Settings, load_settings

if TYPE_CHECKING:
    from gitlab_sync.service import Engine, Role
    from gitlab_sync.setting_values import Address
    from hooks.app import Face


def serve(
    roles: Annotated[
        str, typer.Option(help="What this replica does, comma-separated.", metavar="ROLE,…")
    ] = "http,rounds,poller,outbox,janitor",
) -> None:
    """Run the service: webhooks, API, rounds, poller, outbox, janitor. SIGTERM or Ctrl-C stops it."""
    from gitlab_sync.logs import configure_logging

    wanted = _roles(roles)
    settings = load_settings(need=Need.SERVE)
    configure_logging(settings.log_format, settings.log_level, settings.revealed)
    asyncio.run(_serve(settings, wanted))


def _roles(text: str) -> frozenset[Role]:
    from gitlab_sync.service import Role

    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in set(Role)]
    if unknown or not words:
        said = f"{unknown[0]!r} is no role" if unknown else "it names no role"
        raise ConfigError([f"--roles: {said}; choose from {', '.join(Role)}"])
    return frozenset(Role(word) for word in words)


async def _serve(settings: Settings, roles: frozenset[Role]) -> None:
    from gitlab_sync.assembly import open_context
    from gitlab_sync.service import Engine
    from gitlab_sync.startup import check_database

    stop = asyncio.Event()
    _stop_on_signals(stop)
    async with open_context(settings, Need.SERVE) as ctx:
        facts = await check_database(ctx.db)
        ctx.log.info("database fits", server=facts.version)
        engine = Engine(ctx, roles)
        await _until_stopped(stop, [engine.run(stop), *_edge(engine, settings, roles, stop)])
        ctx.log.info("stopped")


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def begin(number: signal.Signals) -> None:
        stop.set()
        loop.remove_signal_handler(number)  # the next one ends the process

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, begin, number)


async def _until_stopped(stop: asyncio.Event, parts: list[Coroutine[Any, Any, None]]) -> None:
    """Run the parts; the first that ends stops the others in order. Raises what a part has raised."""
    tasks = [asyncio.create_task(part) for part in parts]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await asyncio.wait(tasks)
    for task in tasks:
        task.result()


def _edge(
    engine: Engine, settings: Settings, roles: frozenset[Role], stop: asyncio.Event
) -> list[Coroutine[Any, Any, None]]:
    """The servers of this replica. Without the role `http` probes and metrics are still served."""
    from gitlab_sync.service import Role
    from hooks.app import Face

    management = settings.management_listen
    if Role.HTTP not in roles:
        faces = {Face.MANAGEMENT: management or settings.listen}
    elif management is None:
        faces = {Face.ALL: settings.listen}
    else:
        faces = {Face.PUBLIC: settings.listen, Face.MANAGEMENT: management}
    return [_answer(engine, face, address, stop) for face, address in faces.items()]


async def _answer(engine: Engine, face: Face, address: Address, stop: asyncio.Event) -> None:
    """Answer on one address until `stop`; the log says which one it became."""
    from hooks.app import create_app_for
    from hooks.server import Listening
    from hooks.server import serve as listen_on

    listening = Listening()

    async def tell() -> None:
        await listening.started.wait()
        engine.ctx.log.info("serving", face=face, address=str(listening.address))

    telling = asyncio.create_task(tell())
    try:
        await listen_on(create_app_for(engine, face), address, stop, listening=listening)
    finally:
        telling.cancel()
