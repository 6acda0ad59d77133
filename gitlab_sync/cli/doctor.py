"""`doctor`: what can be wrong, and how to mend it. Read-only, at GitLab too.

The answer goes to stdout, progress to stderr. Exit 1 for anything wrong and for anything that could not be
looked at; a note alone is no reason.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gitlab_sync.cli.failures import ExitCode, Failure
from gitlab_sync.cli.findings import finding_json, is_healthy, say_findings
from gitlab_sync.cli.output import JsonOption, note, say, say_json
from gitlab_sync.cli.running import on_engine
from gitlab_sync.errors import ConfigError
from gitlab_sync.settings import Need

if TYPE_CHECKING:
    from gitlab_sync.context import Context
    from gitlab_sync.doctor import Finding
    from gitlab_sync.invariants import Progress
    from gitlab_sync.model import BatchId, BatchRow

TELL_EVERY_S: Final = 5.0
_INVARIANT_REMEDY: Final = (
    "this must not be: stop writing by hand, keep the rows as they are, and look at this subject's history "
    "with `gitlab-sync requests show` or `batches show`"
)
_LIVENESS_REMEDY: Final = (
    "see that a replica with this role runs and reaches the database: `gitlab-sync serve`"
)


def doctor(
    *,
    invariants: Annotated[
        bool, typer.Option("--invariants", help="Look for rows that contradict each other.")
    ] = False,
    database: Annotated[
        bool,
        typer.Option("--database", help="Look at the server: who blocks whom, idle transactions, settings."),
    ] = False,
    gitlab: Annotated[
        bool,
        typer.Option(
            "--gitlab", help="Look at GitLab: tokens, rights, settings that stall rounds, webhooks, clock."
        ),
    ] = False,
    strays: Annotated[
        bool,
        typer.Option("--strays", help="Look at GitLab for branches of ours that no batch here knows of."),
    ] = False,
    recent: Annotated[
        bool, typer.Option("--recent", help="Rows that are active or moved in the last 24 h (the default).")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Every row, in pages with pauses: minutes for millions.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check server, schema and rows, or GitLab. Exit 1 if something is found."""
    if recent and full:
        raise Failure(ExitCode.USAGE, ["--recent and --full exclude each other"])
    is_whole = not (invariants or database or gitlab or strays)
    looks: dict[str, Callable[[Context], Awaitable[list[Finding]]]] = {}
    if gitlab:
        looks["GitLab lets rounds through"] = _gitlab
    if strays:
        looks["GitLab holds nothing of ours that is forgotten here"] = _strays
    if database:
        looks["nobody is blocked, the server's settings carry the guarantees"] = _database
    if invariants or is_whole:
        looks["the invariants hold"] = lambda ctx: _invariants(ctx, is_full=full)

    async def work(ctx: Context) -> list[Finding]:
        found = await _schema(ctx) if is_whole else []
        for look in looks.values() if not found else ():  # without a fitting schema no row can be asked for
            found += await look(ctx)
        return found

    findings = on_engine(work, Need.ENGINE if gitlab or strays else Need.DATABASE_ONLY)
    _tell(findings, as_json=as_json, what=[*(["server and schema fit"] if is_whole else []), *looks])


def _tell(findings: Sequence[Finding], *, as_json: bool, what: Sequence[str]) -> None:
    if as_json:
        say_json([finding_json(one) for one in findings])
    else:
        say_findings(findings)
        if is_healthy(findings):
            say(f"nothing found: {', '.join(what)}")
    if not is_healthy(findings):
        raise typer.Exit(ExitCode.FOUND)


async def _schema(ctx: Context) -> list[Finding]:
    from gitlab_sync.doctor import finding_of
    from gitlab_sync.startup import check_database

    try:
        await check_database(ctx.db)
    except ConfigError as error:
        return [finding_of("database", "server or schema", problem) for problem in error.problems]
    return []


async def _database(ctx: Context) -> list[Finding]:
    from gitlab_sync.doctor import examine_database

    return await examine_database(ctx.db)


async def _gitlab(ctx: Context) -> list[Finding]:
    from gitlab_sync.assembly import open_admin
    from gitlab_sync.doctor.gitlab_side import Tokens, examine_gitlab
    from gitlab_sync.hook_care import needs_of

    settings = ctx.settings
    async with AsyncExitStack() as closing:
        write = await closing.enter_async_context(open_admin(settings))
        read = None
        if settings.gitlab_read_token is not None:
            read = await closing.enter_async_context(open_admin(settings, settings.gitlab_read_token))
        return await examine_gitlab(Tokens(write, read), ctx.partitions, needs_of(settings, None))


async def _strays(ctx: Context) -> list[Finding]:
    from gitlab_sync.assembly import open_admin
    from gitlab_sync.doctor.strays import examine_strays
    from gitlab_sync.store import batches

    async def lookup(batch_id: BatchId) -> BatchRow | None:
        return await ctx.db.read("batch", lambda session: batches.get(session, batch_id))

    async with open_admin(ctx.settings) as admin:
        return await examine_strays(admin, lookup, ctx.partitions)


async def _invariants(ctx: Context, *, is_full: bool) -> list[Finding]:
    from gitlab_sync.doctor import Finding, Kind
    from gitlab_sync.invariants import LIMIT, Scope, examine

    scope = Scope.FULL if is_full else Scope.RECENT
    examined = await examine(ctx.db, scope, tell=_Teller().tell)
    found = [
        Finding(Kind.PROBLEM, one.invariant, one.subject, one.detail, _remedy(one.invariant))
        for one in examined.violations
    ]
    return found + [
        Finding(
            Kind.PROBLEM,
            name,
            "in all",
            f"{count} findings, the first {LIMIT} are shown",
            _remedy(name),
        )
        for name, count in examined.found.items()
        if count > LIMIT
    ]


def _remedy(invariant: str) -> str:
    from gitlab_sync.invariants import OF_LIVENESS

    return _LIVENESS_REMEDY if invariant in OF_LIVENESS else _INVARIANT_REMEDY


class _Teller:
    """Says on stderr how far the walk is: each table when it is through, a long one now and then."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()

    def tell(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.is_done:
            note(f"{progress.table}: {progress.rows} rows looked at")
        elif now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            share = f", {100 * progress.at_id // progress.last_id} %" if progress.last_id else ""
            note(f"{progress.table}: {progress.rows} rows so far{share}")
