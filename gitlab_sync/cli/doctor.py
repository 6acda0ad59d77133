"""`doctor`: what can be wrong, and how to mend it. Read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gitlab_sync.cli.failures import ExitCode
from gitlab_sync.cli.output import JsonOption, say, say_json, say_table
from gitlab_sync.cli.running import on_engine
from gitlab_sync.errors import ConfigError

if TYPE_CHECKING:
    from gitlab_sync.context import Context
    from gitlab_sync.store.views import Violation

Finding = tuple[str, str, str]


def doctor(
    *,
    invariants: Annotated[
        bool, typer.Option("--invariants", help="Only look for rows that contradict each other.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check server, schema and rows. Exit 1 if something is found."""
    findings = on_engine(_invariants if invariants else _everything)
    if as_json:
        say_json(
            [{"check": check, "subject": subject, "detail": detail} for check, subject, detail in findings]
        )
    elif findings:
        say_table(("check", "subject", "detail"), findings, empty="")
    else:
        say(
            "nothing found: "
            + ("the invariants hold" if invariants else "server and schema fit, the invariants hold")
        )
    if findings:
        raise typer.Exit(ExitCode.FOUND)


async def _everything(ctx: Context) -> list[Finding]:
    """Without a fitting schema the invariants cannot be asked for."""
    from gitlab_sync.startup import check_database

    try:
        await check_database(ctx.db)
    except ConfigError as error:
        return [("database", "server or schema", problem) for problem in error.problems]
    return await _invariants(ctx)


async def _invariants(ctx: Context) -> list[Finding]:
    from gitlab_sync.invariants import find_violations

    return [_finding(violation) for violation in await find_violations(ctx.db)]


def _finding(violation: Violation) -> Finding:
    return violation.invariant, violation.subject, violation.detail
