"""`serve`: one replica. Checks the database, runs the engine's loops and the edge, stops on a signal.

The one place below `hooks` that knows it: the command line is where the parts are put together, so here,
inside the command, the engine meets its edge.

A stop, from the signal on:

    at once              unready (`/readyz` says 503, `/livez` 200); nothing is claimed, leased or looked at
                         anew; every answer closes its connection
    DRAIN_WAIT_S         connections are taken as before, so that whoever goes by readiness lets go first
    then                 the listener is closed without losing a connection; kept ones may be used once more
                         until KEPT_S after the signal, running requests have GRACE_S
    beside it, DRAIN_S   loops, looks and deliveries end what they are at; what does not is cancelled
    HAND_BACK_S          batches whose look is owed are due now, for another replica's next poll
    last                 probes and metrics go, GitLab's connections, the pool; exit code 0

Everything together takes DRAIN_WAIT_S and STOP_LIMIT_S at most; mostly a second. After that the process ends
itself, exit code 1. A second signal ends it at once. What signals mean otherwise stands in `signals`.

Races considered:
A  a signal before everything runs, also while the database is waited for: nothing was taken on yet; what is
   under way is cancelled, exit code 0.
B  the edge dies (address taken, or later): the engine is stopped in order too, without the wait, and the
   reason is told.
C  a webhook arrives while the engine drains: it is committed before it is answered, so the batch is due for
   whoever runs next.
D  a call to GitLab hangs: its look is cancelled and handed back; nobody waits for the thread. A write that
   arrives all the same is found by its name, like one whose answer was lost.
E  the database hangs: statements are given up with their loops, a COMMIT on its way is waited for within its
   own limit, and what cannot be handed back is due by time.
F  frozen (SIGSTOP) during the stop: all limits have passed when it goes on, what was in hand is cancelled;
   others have taken over what was due meanwhile, and the guards know.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from gitlab_sync.cli.failures import Failure, explain
from gitlab_sync.cli.signals import never_longer_than, stop_on_signals
from gitlab_sync.errors import ConfigError, GitLabSyncError
from gitlab_sync.log_words import Event
from gitlab_sync.settings import Need, Settings, load_settings

if TYPE_CHECKING:
    from gitlab_sync.context import Context
    from gitlab_sync.service import Engine, Role
    from gitlab_sync.setting_values import Address
    from hooks.app import Face

T = TypeVar("T")
STOP_LIMIT_S: Final = 40.0  # beside DRAIN_WAIT_S: two thirds of it only if database and GitLab hang


@dataclass(frozen=True, slots=True)
class Stop:
    """The three moments of a stop that parts of a replica wait for."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)  # unready, begin nothing
    closing: asyncio.Event = field(default_factory=asyncio.Event)  # take no connections
    over: asyncio.Event = field(default_factory=asyncio.Event)  # nothing is at work: probes may go


def serve(
    roles: Annotated[
        str, typer.Option(help="What this replica does, comma-separated.", metavar="ROLE,…")
    ] = "http,rounds,poller,outbox,janitor",
) -> None:
    """Run the service: webhooks, API, rounds, poller, outbox, janitor. SIGTERM or Ctrl-C stops it."""
    from gitlab_sync.bare_structlog import import_structlog

    import_structlog()
    from gitlab_sync import last_words
    from gitlab_sync.logs import configure_logging

    last_words.begin()
    wanted = _roles(roles)
    settings = load_settings(need=Need.SERVE)
    scrubber = configure_logging(settings.log_format, settings.log_level, settings.revealed)
    try:
        asyncio.run(_serve(settings, wanted, scrubber.too_short))
    except GitLabSyncError as error:
        raise _told(error) from None


def _told(error: GitLabSyncError) -> Failure:
    """Whoever reads the log learns there what has ended the service; nothing else is said on stderr."""
    import structlog

    failure = explain(error)
    for line in failure.lines:
        structlog.get_logger("gitlab_sync").error(Event.SERVE_FAILED, error=type(error).__name__, detail=line)
    return Failure(failure.exit_code, ())


def _roles(text: str) -> frozenset[Role]:
    from gitlab_sync.service import Role

    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in set(Role)]
    if unknown or not words:
        said = f"{unknown[0]!r} is no role" if unknown else "it names no role"
        raise ConfigError([f"--roles: {said}; choose from {', '.join(Role)}"])
    return frozenset(Role(word) for word in words)


async def _serve(settings: Settings, roles: frozenset[Role], short_secrets: int) -> None:
    from gitlab_sync.assembly import open_context
    from gitlab_sync.startup import check_database

    stop = Stop()

    limit_s = settings.drain_wait_s + STOP_LIMIT_S

    def overdue() -> None:
        said = f"the stop was not over within {limit_s:.0f} s"
        ctx.log.error(Event.SERVE_FAILED, error="TooLong", detail=said)

    def begin(number: signal.Signals) -> None:
        never_longer_than(limit_s, overdue)
        ctx.log.info(Event.STOPPING, signal=number.name)
        stop.asked.set()

    async with open_context(settings, Need.SERVE) as ctx:
        stop_on_signals(begin)
        if short_secrets:  # they would mask half of every line: kept out by their type alone
            ctx.log.warning(Event.SHORT_SECRETS, count=short_secrets)
        facts = await _unless_stopped(check_database(ctx.db), stop)
        if facts is not None:
            ctx.log.info(Event.DATABASE_FITS, server=facts.version)
            await _run(ctx, roles, stop)
    ctx.log.info(Event.STOPPED)


async def _unless_stopped(work: Coroutine[Any, Any, T], stop: Stop) -> T | None:
    """What `work` answers; None if a stop was asked for before, which cancels it."""
    working, asked = asyncio.create_task(work), asyncio.create_task(stop.asked.wait())
    await asyncio.wait([working, asked], return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not stop.asked.is_set():
        return working.result()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    return None


async def _run(ctx: Context, roles: frozenset[Role], stop: Stop) -> None:
    """Run the parts until a signal, or until one of them ends; then stop them in their order.

    Raises what a part has raised.
    """
    from gitlab_sync.service import Engine

    engine = Engine(ctx, roles)
    public, probes = _edge(engine, roles, stop)
    edges = [asyncio.create_task(part) for part in public]
    last = [asyncio.create_task(part) for part in probes]
    work = [asyncio.create_task(engine.run(stop.asked)), *edges]
    asked = asyncio.create_task(stop.asked.wait())
    await asyncio.wait([*work, *last, asked], return_when=asyncio.FIRST_COMPLETED)
    if edges and stop.asked.is_set():
        await asyncio.wait(edges, timeout=ctx.settings.drain_wait_s)
    stop.asked.set()
    stop.closing.set()
    await asyncio.wait(work)
    await engine.hand_back()
    stop.over.set()
    await asyncio.wait([*last, asked])
    for task in (*work, *last):
        task.result()


def _edge(
    engine: Engine, roles: frozenset[Role], stop: Stop
) -> tuple[list[Coroutine[Any, Any, None]], list[Coroutine[Any, Any, None]]]:
    """The servers of this replica: what others call, and probes and metrics where they have their own.

    Without the role `http` there are only the latter.
    """
    from gitlab_sync.service import Role
    from hooks.app import Face

    settings = engine.ctx.settings
    management = settings.management_listen
    if Role.HTTP not in roles:
        return [], [_answer(engine, Face.MANAGEMENT, management or settings.listen, stop)]
    if management is None:
        return [_answer(engine, Face.ALL, settings.listen, stop)], []
    return (
        [_answer(engine, Face.PUBLIC, settings.listen, stop)],
        [_answer(engine, Face.MANAGEMENT, management, stop)],
    )


async def _answer(engine: Engine, face: Face, address: Address, stop: Stop) -> None:
    """Answer on one address until its moment comes; the log says which one it became."""
    from hooks.app import Face, create_app_for
    from hooks.server import Farewell, Listening
    from hooks.server import serve as listen_on

    listening = Listening()

    async def tell() -> None:
        await listening.started.wait()
        engine.ctx.log.info(Event.SERVING, face=face, address=str(listening.address))

    telling = asyncio.create_task(tell())
    is_asked_last = face is Face.MANAGEMENT
    farewell = Farewell() if is_asked_last else Farewell.polite(stop.asked)
    until = stop.over if is_asked_last else stop.closing
    try:
        await listen_on(create_app_for(engine, face), address, until, listening=listening, farewell=farewell)
    finally:
        telling.cancel()
