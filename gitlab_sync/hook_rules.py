"""What a project's webhook has to be, and what is wrong with one that is there. Pure.

One rule for the hand that installs, the eye that checks and `doctor --gitlab`: `wish_of` says what to set,
`judge` says what is not so. A secret is never shown by GitLab, so a wrong one is seen only by what the
receiver answered: the newest delivery speaks.

Where the log has no entry, or is not shown, nothing is said about deliveries: silence is what a quiet project
and a new hook have in common.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from gitlab_sync.admin_port import HookDelivery, HookInfo, HookWish, Presence, Verification
from gitlab_sync.doctor.finding import Finding, Kind
from gitlab_sync.secret import Secret

HOOK_PATH: Final = "/hooks/gitlab"
WANTED: Final = frozenset({"merge_requests_events", "pipeline_events"})
#: On by default in a webhook that is created without a word about it.
ON_BY_DEFAULT: Final = "push_events"

_CHECK: Final = "webhook"
_PLACE: Final = "in the project's Settings > Webhooks"
_INSTALL: Final = "run `gitlab-sync hooks install` for this project"
_SAME: Final = f"give this command the secrets that the running service has, then {_INSTALL}"
_TRY: Final = f"{_INSTALL}; it sends a test delivery, and a success ends the pause"
_PORTS: Final = {"http": 80, "https": 443}

Told = tuple[Kind, str, str]


@dataclass(frozen=True, slots=True)
class HookNeeds:
    """What this service is configured to accept. `url` None: no public address is known here."""

    url: str | None
    token: Secret | None
    signing_key: Secret | None


def hook_url(public_url: str) -> str:
    """The receiver's address below the service's own public one."""
    return f"{public_url.rstrip('/')}{HOOK_PATH}"


def address_of(url: str) -> tuple[str, str, int | None, str]:
    """What makes two spellings of an address the same: scheme, host and port without case, the path as it is.

    An address that cannot be taken apart is only like itself.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme.lower())
    except ValueError:
        return ("", url, None, "")
    tail = parts.path.rstrip("/") + (f"?{parts.query}" if parts.query else "")
    return (parts.scheme.lower(), (parts.hostname or "").lower(), port, tail)


def ours(hooks: Sequence[HookInfo], url: str | None) -> list[HookInfo]:
    """Those that lead here, oldest first; without a known address those that lead to a receiver like ours."""
    if url is not None:
        wanted = address_of(url)
        found = [hook for hook in hooks if address_of(hook.url) == wanted]
    else:
        found = [hook for hook in hooks if address_of(hook.url)[3].endswith(HOOK_PATH)]
    return sorted(found, key=lambda hook: hook.id)


def wish_of(needs: HookNeeds, url: str, present: HookInfo | None) -> HookWish:
    """What to tell GitLab about the webhook: our two kinds of event on, whatever else is on off.

    A user and password in the present address are kept: they are for a proxy in front of the receiver, nobody
    told them to us, and without them no delivery would pass.
    """
    others = {ON_BY_DEFAULT} if present is None else {name for name, is_on in present.events.items() if is_on}
    events = dict.fromkeys(sorted(others - WANTED), False) | dict.fromkeys(sorted(WANTED), True)
    login = None if present is None else present.login
    return HookWish(url, events, Verification.ON, needs.token, needs.signing_key, login)


def differences(hook: HookInfo, needs: HookNeeds) -> list[str]:
    """What `wish_of` would visibly change in a webhook, in words; secrets are set anew in any case."""
    return [f"{name} off" for name in _too_many(hook)] + [
        *(f"{name} on" for name in _missing(hook)),
        *(["certificate check on"] if _is_unverified(hook) else []),
        *(["secret token set"] if needs.token and hook.token is Presence.NOT_SET else []),
        *(["signing key set"] if needs.signing_key and hook.signing_key is Presence.NOT_SET else []),
    ]


def judge_all(hooks: Sequence[HookInfo], needs: HookNeeds, project: str) -> list[Finding]:
    """What is wrong with the number of webhooks that lead here."""
    found = ours(hooks, needs.url)
    told = list(_number(found, needs.url))
    if needs.url is not None:
        told += [_elsewhere(hook) for hook in ours(hooks, None) if hook not in found]
    return [Finding(kind, _CHECK, project, detail, remedy) for kind, detail, remedy in told]


def judge(
    hook: HookInfo, needs: HookNeeds, project: str, newest: HookDelivery | None = None
) -> list[Finding]:
    """What is wrong with one webhook, as far as GitLab shows it."""
    subject = f"{project}, webhook {hook.id}"
    told = [*_events(hook), *_secrets(hook, needs), *_transport(hook), *_state(hook)]
    told += [] if newest is None else _delivered(newest)
    return [Finding(kind, _CHECK, subject, detail, remedy) for kind, detail, remedy in told]


def _number(found: Sequence[HookInfo], url: str | None) -> Iterator[Told]:
    if not found:
        where = f"leads to {url}" if url else f"leads to an address that ends in {HOOK_PATH}"
        why = f"no webhook {where}: merges are noticed by the poller only, up to its interval late"
        yield Kind.PROBLEM, why, _INSTALL
    for twins in _twins(found):
        ids = ", ".join(str(hook.id) for hook in twins)
        why = f"webhooks {ids} lead to the same address: every event comes and is handled {len(twins)} times"
        remedy = f"keep one of them and delete the others {_PLACE}, for instance keep {twins[0].id}"
        yield Kind.PROBLEM, why, remedy


def _elsewhere(hook: HookInfo) -> Told:
    why = f"webhook {hook.id} leads to a receiver like ours at {hook.url}"
    return Kind.NOTE, why, f"if that is an old address of this service, delete the webhook {_PLACE}"


def _events(hook: HookInfo) -> Iterator[Told]:
    missing, needless = _missing(hook), _too_many(hook)
    if missing:
        yield Kind.PROBLEM, f"{', '.join(missing)} off: such events never come", _INSTALL
    if needless:
        why = f"{', '.join(needless)} on: nobody reads them here, and each of their failures counts"
        yield Kind.PROBLEM, f"{why} towards pausing the webhook", _INSTALL
    if hook.has_template:
        why = "it has a custom template, so what it sends may not be what GitLab sends by itself"
        yield Kind.PROBLEM, why, f"remove the template {_PLACE}"


def _secrets(hook: HookInfo, needs: HookNeeds) -> Iterator[Told]:
    by_token = needs.token is not None and hook.token is not Presence.NOT_SET
    by_key = needs.signing_key is not None and hook.signing_key is Presence.SET
    if not by_token and not by_key:
        yield from _unauthentic(hook, needs)
    elif needs.signing_key is not None and hook.signing_key is Presence.NOT_SET:
        why = "a signing key is configured here and not set there: the plain token proves deliveries"
        yield Kind.NOTE, why, f"{_INSTALL}; a GitLab that still shows none then does not sign"


def _unauthentic(hook: HookInfo, needs: HookNeeds) -> Iterator[Told]:
    if needs.token is None and needs.signing_key is None:
        set_one = "set GITLAB_SYNC_WEBHOOK_TOKENS or GITLAB_SYNC_WEBHOOK_SIGNING_KEYS as the service has it"
        yield Kind.UNSEEN, "no secret is configured here, so the webhook's cannot be judged", set_one
    elif needs.token is None and hook.signing_key is Presence.UNKNOWN:
        why = "this GitLab does not say that it signs (19.0 and later do), and no token is configured here"
        yield Kind.PROBLEM, why, "set GITLAB_SYNC_WEBHOOK_TOKENS too, then run `gitlab-sync hooks install`"
    else:
        yield (
            Kind.PROBLEM,
            "it has no secret that is known here: every delivery is refused with 401",
            _INSTALL,
        )


def _transport(hook: HookInfo) -> Iterator[Told]:
    if _is_unverified(hook):
        why = "GitLab does not check the receiver's certificate: anybody in between may read the secret"
        yield Kind.PROBLEM, why, _INSTALL
    scheme, host, _, _ = address_of(hook.url)
    if scheme == "http" and not _is_loopback(host):
        why = "plain http: the secret token and the events go over the network in clear"
        yield Kind.NOTE, why, "put TLS in front of the service and give an https address"


def _state(hook: HookInfo) -> Iterator[Told]:
    match hook.alert_status:
        case "executable":
            pass
        case "temporarily_disabled":
            until = f" until {hook.disabled_until:%Y-%m-%d %H:%M:%S} UTC" if hook.disabled_until else ""
            yield (
                Kind.PROBLEM,
                f"GitLab has paused it{until} after failures: events are dropped meanwhile",
                _TRY,
            )
        case "disabled":
            yield Kind.PROBLEM, "GitLab has disabled it after 40 failures in a row: events are dropped", _TRY
        case other:
            why = f"GitLab shows it as {other[:40]!r}, which is not known here"
            yield Kind.PROBLEM, why, f"look at it {_PLACE}"


def _delivered(newest: HookDelivery) -> Iterator[Told]:
    status = newest.status
    if status.startswith("2"):
        return
    what = f"the newest delivery ({newest.trigger}) was answered {status[:60] or 'with nothing'}"
    match status:
        case "401" | "403":
            yield Kind.PROBLEM, f"{what}: its secret is not one that the receiver knows", _SAME
        case "404" | "405":
            yield (
                Kind.PROBLEM,
                f"{what}: the receiver is not at this address",
                f"its path is {HOOK_PATH}; {_INSTALL}",
            )
        case _ if status.startswith("3"):
            to = f" to {newest.location[:120]}" if newest.location else ""
            why = f"{what}, a redirect{to}: GitLab counts it as a success, and nobody has read the event"
            yield Kind.PROBLEM, why, f"give the final address; {_INSTALL}"
        case "503":
            yield (
                Kind.PROBLEM,
                f"{what}: the service had no database",
                "see that a replica runs: /readyz tells",
            )
        case _ if status.isdigit():
            yield (
                Kind.PROBLEM,
                f"{what}: the receiver did not take it",
                "look at the service's log of that moment",
            )
        case _:
            why = f"{what}: GitLab did not reach the receiver in time, or not at all"
            yield (
                Kind.PROBLEM,
                why,
                "check address, name, certificate and firewall between GitLab and the service",
            )


def _missing(hook: HookInfo) -> list[str]:
    return sorted(name for name in WANTED if not hook.events.get(name, False))


def _too_many(hook: HookInfo) -> list[str]:
    return sorted(name for name, is_on in hook.events.items() if is_on and name not in WANTED)


def _is_unverified(hook: HookInfo) -> bool:
    is_tls = address_of(hook.url)[0] == "https"
    return is_tls and hook.verification is Verification.OFF


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _twins(hooks: Sequence[HookInfo]) -> list[list[HookInfo]]:
    groups: dict[tuple[str, str, int | None, str], list[HookInfo]] = {}
    for hook in hooks:
        groups.setdefault(address_of(hook.url), []).append(hook)
    return [group for group in groups.values() if len(group) > 1]
