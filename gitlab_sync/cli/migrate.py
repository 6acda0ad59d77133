"""`migrate`: brings the schema up to date, says where it stands, or what it would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gitlab_sync.cli.failures import ExitCode, Failure
from gitlab_sync.cli.output import JsonOption, note, say, say_json, say_table
from gitlab_sync.cli.shapes import moment
from gitlab_sync.settings import Need, load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitlab_sync.migrate import Report
    from gitlab_sync.schema_standing import Standing
    from gitlab_sync.setting_values import DatabaseTarget


def migrate(
    *,
    status: Annotated[bool, typer.Option("--status", help="Only say where each file stands.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would run.")] = False,
    resume_at: Annotated[
        int | None,
        typer.Option(
            "--resume-at", min=1, metavar="N", help="Go on with the half applied file at statement N."
        ),
    ] = None,
    if_needed: Annotated[
        bool,
        typer.Option("--if-needed", help="Do nothing where this release can work, as on a newer schema."),
    ] = False,
    wait: Annotated[
        int | None,
        typer.Option(
            "--wait", min=1, metavar="SECONDS", help="Change nothing: wait until this release can work."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bring the schema up to date; safe to run twice at once."""
    from gitlab_sync import migrate as runner

    if status + dry_run + (resume_at is not None) + if_needed + (wait is not None) > 1:
        words = "--status, --dry-run, --resume-at, --if-needed and --wait"
        raise Failure(ExitCode.USAGE, [f"migrate takes one of {words}"])
    target = load_settings(need=Need.DATABASE_ONLY).database
    if wait is not None:
        _wait(target, wait, as_json=as_json)
    elif if_needed and _is_enough(target):
        _say_report(runner.Report(runner.Outcome.UP_TO_DATE), as_json=as_json)
    elif status:
        _say_standings(runner.status(target), as_json=as_json)
    else:
        _say_report(_report(target, resume_at, is_dry=dry_run), as_json=as_json)


def _wait(target: DatabaseTarget, within_s: int, *, as_json: bool) -> None:
    """Exit 1 with what is still missing when the time is up."""
    from gitlab_sync.migrate import Outcome, Report
    from gitlab_sync.schema_waiting import wait_for_schema

    def tell(missing: Sequence[str]) -> None:
        note(f"waiting, {within_s} s in all at the most: {'; '.join(missing)}")

    missing = wait_for_schema(target, within_s, tell=tell)
    outcome = Outcome.PENDING if missing else Outcome.UP_TO_DATE
    _say_report(Report(outcome, messages=tuple(missing)), as_json=as_json)
    if missing:
        raise typer.Exit(ExitCode.FOUND)


def _is_enough(target: DatabaseTarget) -> bool:
    from gitlab_sync.schema_waiting import what_is_missing

    return not what_is_missing(target)


def _report(target: DatabaseTarget, resume_at: int | None, *, is_dry: bool) -> Report:
    from gitlab_sync import migrate as runner
    from gitlab_sync.cli.signals import held_back

    patience = runner.Patience(undisturbed=held_back)
    return (
        runner.preview(target) if is_dry else runner.migrate(target, resume_at=resume_at, patience=patience)
    )


def _say_standings(standings: tuple[Standing, ...], *, as_json: bool) -> None:
    if as_json:
        say_json([_standing_json(standing) for standing in standings])
        return
    rows = [
        (one.file, one.state, f"{one.statements_done}/{len(one.steps) or '?'}", moment(one.finished_at))
        for one in standings
    ]
    say_table(("file", "state", "statements", "finished"), rows, empty="there are no migrations")


def _standing_json(standing: Standing) -> dict[str, Any]:
    return {
        "file": standing.file,
        "state": standing.state,
        "statements": len(standing.steps),
        "statements_done": standing.statements_done,
        "finished_at": moment(standing.finished_at),
    }


def _say_report(report: Report, *, as_json: bool) -> None:
    """Exit 1 unless the schema is up to date now, or would be."""
    from gitlab_sync.migrate import Outcome

    is_well = report.outcome in (Outcome.APPLIED, Outcome.UP_TO_DATE, Outcome.PENDING)
    if as_json:
        say_json({"outcome": report.outcome, "files": report.files, "messages": report.messages})
    else:
        for message in report.messages:
            (say if is_well else note)(message)
        say(f"{report.outcome}{': ' if report.files else ''}{', '.join(report.files)}")
    if not is_well:
        raise typer.Exit(ExitCode.FOUND)
