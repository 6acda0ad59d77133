"""`hooks`: create, mend and check the webhook of a project. No secret is ever printed.

Reads no database. A project is named by a partition's key, by its number or by its path; a key comes first.
What goes wrong with one project is a finding like any other, so that `--all` comes to its end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from gitlab_sync.cli.failures import ExitCode, Failure
from gitlab_sync.cli.findings import finding_json, is_healthy, say_findings
from gitlab_sync.cli.output import JsonOption, say, say_json, say_table
from gitlab_sync.cli.running import on_gitlab
from gitlab_sync.errors import ConfigError, GitLabError

if TYPE_CHECKING:
    from gitlab_sync.admin_port import GitLabAdmin, HookInfo
    from gitlab_sync.hook_care import HookStatus, Installed, SeenHook
    from gitlab_sync.hook_rules import HookNeeds
    from gitlab_sync.settings import Settings

app = typer.Typer(help="Create, mend and check the webhooks at GitLab.", no_args_is_help=True)

ProjectArgument = Annotated[
    str | None,
    typer.Argument(metavar="PROJECT", help="A partition's key, or the number or path of a project."),
]
AllOption = Annotated[bool, typer.Option("--all", help="Every project of the partitions file.")]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="The webhook's address as GitLab reaches it; without a path, /hooks/gitlab is added. "
        "Default: that path below GITLAB_SYNC_PUBLIC_URL.",
    ),
]


@app.command("install")
def install(
    project: ProjectArgument = None,
    *,
    every: AllOption = False,
    url: UrlOption = None,
    test: Annotated[
        bool, typer.Option("--test", help="Send a test delivery even if nothing calls for it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create the project's webhook, or mend the one that is there; doing it twice makes one.

    Takes a token with the role Maintainer. The first of the configured secrets is set each time. A webhook
    that GitLab has paused is tried, which ends the pause. Exit 1 if something is wrong in the end.
    """
    from gitlab_sync import hook_care

    trial = hook_care.Trial.ALWAYS if test else hook_care.Trial.IF_NEEDED

    async def work(admin: GitLabAdmin, settings: Settings) -> list[Installed | HookStatus]:
        projects = _projects(settings, project, every=every)
        needs = hook_care.needs_of(settings, _address(url))
        address = _checked(needs)
        return await _each(projects, lambda one: hook_care.install(admin, one, needs, address, trial))

    _tell_installed(on_gitlab(work), as_json=as_json)


@app.command("status")
def status(
    project: ProjectArgument = None,
    *,
    every: AllOption = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the project's webhook: its events, secrets, state and newest delivery. Exit 1 on a finding.

    Takes a token with the role Maintainer. Without an address, webhooks to any /hooks/gitlab are looked at.
    """
    from gitlab_sync import hook_care

    async def work(admin: GitLabAdmin, settings: Settings) -> list[HookStatus]:
        needs = hook_care.needs_of(settings, _address(url))
        return await _each(
            _projects(settings, project, every=every), lambda one: hook_care.look(admin, one, needs)
        )

    found = on_gitlab(work)
    if as_json:
        say_json({"items": [_status_json(one) for one in found]})
    else:
        _say_status(found)
    _end(found, as_json=as_json)


def _say_status(found: Sequence[HookStatus]) -> None:
    rows = [_row(one, seen) for one in found for seen in one.seen]
    headings = ("project", "id", "events", "secrets", "state", "newest delivery", "address")
    if rows:  # without any, the findings say why
        say_table(headings, rows, empty="")


async def _each(projects: Sequence[int | str], ask: Callable[[int | str], Awaitable[Any]]) -> list[Any]:
    """Ask for each project; a refusal becomes a finding of its project."""
    return [await _guarded(project, ask) for project in projects]


async def _guarded(project: int | str, ask: Callable[[int | str], Awaitable[Any]]) -> Any:
    from gitlab_sync.doctor.access import Use
    from gitlab_sync.doctor.finding import Finding, Kind
    from gitlab_sync.doctor.refusals import remedy_of
    from gitlab_sync.hook_care import HookStatus

    try:
        return await ask(project)
    except GitLabError as error:
        remedy = remedy_of(error, Use.WRITE)
        finding = Finding(Kind.PROBLEM, "webhook", f"{project}", f"{error}", remedy)
        return HookStatus(f"{project}", (), (finding,))


def _projects(settings: Settings, named: str | None, *, every: bool) -> list[int | str]:
    """The projects that are meant, each once. Raises Failure for wrong usage."""
    from gitlab_sync.assembly import partitions_of

    if (named is None) is not every:
        raise Failure(ExitCode.USAGE, ["name one project, or say --all"])
    partitions = partitions_of(settings)
    if named is None:
        if not partitions:
            raise ConfigError(["GITLAB_SYNC_PARTITIONS: it is not set; set it, or name one project"])
        return list(dict.fromkeys(partition.project for partition in partitions.values()))
    if named in partitions:
        return [partitions[named].project]
    if named.isascii() and named.isdigit():
        return [int(named)]
    if "/" not in named:
        known = f" (known: {', '.join(partitions)})" if partitions else ""
        remedy = "name a partition, or a project by its number or its path group/name"
        raise Failure(ExitCode.USAGE, [f"there is no partition {named!r}{known}; {remedy}"])
    return [named]


def _address(url: str | None) -> str | None:
    """The address that was given on the command line, whole."""
    from gitlab_sync.hook_rules import hook_url
    from gitlab_sync.setting_values import BadValue, parse_http_url

    if url is None:
        return None
    try:
        whole = parse_http_url(url)
    except BadValue as problem:
        raise Failure(ExitCode.USAGE, [f"--url: {problem}"]) from None
    return whole if urlsplit(whole).path else hook_url(whole)


def _checked(needs: HookNeeds) -> str:
    """The address to install. Raises ConfigError for what would make a webhook that cannot work."""
    from gitlab_sync.setting_values import signing_key_bytes

    problems = []
    if needs.url is None:
        remedy = "set it to the address under which GitLab reaches this service, or give --url"
        problems.append(f"GITLAB_SYNC_PUBLIC_URL: it is not set; {remedy}")
    if needs.token is None and needs.signing_key is None:
        remedy = "set at least one, to the value that the service has"
        problems.append(
            f"GITLAB_SYNC_WEBHOOK_TOKENS: neither it nor GITLAB_SYNC_WEBHOOK_SIGNING_KEYS is set; {remedy}"
        )
    if needs.signing_key is not None and len(signing_key_bytes(needs.signing_key)) != 32:
        remedy = "put a key of 32 bytes first, such as whsec_$(openssl rand -base64 32)"
        problems.append(
            f"GITLAB_SYNC_WEBHOOK_SIGNING_KEYS: GitLab takes only keys of exactly 32 bytes; {remedy}"
        )
    if problems:
        raise ConfigError(problems)
    return str(needs.url)


def _tell_installed(found: Sequence[Installed | HookStatus], *, as_json: bool) -> None:
    from gitlab_sync.hook_care import HookStatus

    done = [one for one in found if not isinstance(one, HookStatus)]
    statuses = [one if isinstance(one, HookStatus) else one.status for one in found]
    if as_json:
        say_json({"items": [_installed_json(one) for one in found]})
    else:
        for one in done:
            _say_installed(one)
    _end(statuses, as_json=as_json)


def _say_installed(one: Installed) -> None:
    say(f"{one.status.project}: {one.did} webhook {one.hook.id} -> {one.hook.url}")
    if one.changed:
        say(f"  changed: {', '.join(one.changed)}")
    say(f"  secrets set: {', '.join(one.secrets)}")
    if one.tried:
        say(f"  test delivery: {one.tried.words}")


def _end(found: Sequence[HookStatus], *, as_json: bool) -> None:
    findings = [finding for one in found for finding in one.findings]
    if not as_json:
        say_findings(findings)
        if is_healthy(findings):
            say("nothing found: right events, secrets set, deliveries taken as far as GitLab shows them")
    if not is_healthy(findings):
        raise typer.Exit(ExitCode.FOUND)


def _row(one: HookStatus, seen: SeenHook) -> tuple[object, ...]:
    hook = seen.hook
    until = f" until {hook.disabled_until:%Y-%m-%d %H:%M:%S} UTC" if hook.disabled_until else ""
    return (
        one.project,
        hook.id,
        ", ".join(_events(hook)),
        f"token {hook.token}, signing key {hook.signing_key}",
        f"{hook.alert_status}{until}",
        _newest(seen),
        hook.url,
    )


def _events(hook: HookInfo) -> list[str]:
    return [name.removesuffix("_events") for name, is_on in sorted(hook.events.items()) if is_on]


def _newest(seen: SeenHook) -> str | None:
    if seen.deliveries is None:
        return "not shown"
    if seen.newest is None:
        return None
    at = f" at {seen.newest.answered_at:%Y-%m-%d %H:%M:%S} UTC" if seen.newest.answered_at else ""
    good = sum(one.status.startswith("2") for one in seen.deliveries)
    return f"{seen.newest.status}{at} ({good} of the last {len(seen.deliveries)} taken)"


def _installed_json(one: Installed | HookStatus) -> dict[str, Any]:
    from gitlab_sync.hook_care import HookStatus

    if isinstance(one, HookStatus):
        return {"did": None, **_status_json(one)}
    return {
        "did": one.did.name.lower(),
        "id": one.hook.id,
        "changed": list(one.changed),
        "secrets_set": list(one.secrets),
        "test_delivery": one.tried.words if one.tried else None,
        **_status_json(one.status),
    }


def _status_json(one: HookStatus) -> dict[str, Any]:
    return {
        "project": one.project,
        "webhooks": [_hook_json(seen) for seen in one.seen],
        "findings": [finding_json(finding) for finding in one.findings],
    }


def _hook_json(seen: SeenHook) -> dict[str, Any]:
    hook = seen.hook
    deliveries = seen.deliveries
    return {
        "id": hook.id,
        "url": hook.url,
        "events": _events(hook),
        "certificate_check": hook.verification.value,
        "token": hook.token.value,
        "signing_key": hook.signing_key.value,
        "alert_status": hook.alert_status,
        "disabled_until": f"{hook.disabled_until.isoformat()}Z" if hook.disabled_until else None,
        "deliveries": None
        if deliveries is None
        else [
            {
                "id": one.id,
                "trigger": one.trigger,
                "status": one.status,
                "duration_s": one.duration_s,
                "answered_at": one.answered_at.isoformat() if one.answered_at else None,
            }
            for one in deliveries
        ],
    }
