"""Creates, mends and looks at a project's webhook. Called by operators, never by the service.

Found by its address, never by a remembered number, so doing it twice makes one webhook. The secrets are set
each time: GitLab does not show them, so only setting proves them; after a rotation this is what to run. A
webhook that GitLab has paused, or whose newest delivery failed, is tried: a success ends the pause and proves
the way. What is left wrong is told as findings by `hook_rules`.

Never deletes a webhook, and touches none that leads elsewhere. A user and password that somebody wrote into
its address stay there, and nobody prints them.

Races considered:
A  the answer to a creation is lost: the list is looked at before anything else; what is there is adopted.
B  the creation of A was still under way when we looked, so that a second one was made: the look at the end
   finds two of one address and says which to delete.
C  two operators install at once: as B. Both settings are the same, so nothing else can differ.
D  somebody deletes the webhook between the look and the change: GitLab refuses with 404 and is quoted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from gitlab_sync.admin_port import GitLabAdmin, HookDelivery, HookInfo
from gitlab_sync.doctor.finding import Finding, Kind
from gitlab_sync.errors import GitLabRefused, GitLabUnavailable, OutcomeUnknown
from gitlab_sync.hook_rules import HookNeeds, differences, hook_url, judge, judge_all, ours, wish_of
from gitlab_sync.settings import Settings

# GitLab makes a test delivery from a real merge request.
_NOTHING_TO_SEND: Final = "the project has merge requests"
_NO_SAMPLE: Final = "the project has no merge request yet to make one from; the first one will tell"


class Did(StrEnum):
    """What an installation did. CONFIRMED: nothing differed that GitLab shows; the secrets were set again."""

    CREATED = "created"
    ADOPTED = "created (found after its answer was lost)"
    MENDED = "mended"
    CONFIRMED = "confirmed"


class Trial(StrEnum):
    """Whether a test delivery is sent. IF_NEEDED: to a webhook that is paused or whose newest one failed."""

    IF_NEEDED = "if needed"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class SeenHook:
    """A webhook that leads here with its log, newest first; None: the log is not shown."""

    hook: HookInfo
    deliveries: Sequence[HookDelivery] | None

    @property
    def newest(self) -> HookDelivery | None:
        return self.deliveries[0] if self.deliveries else None


@dataclass(frozen=True, slots=True)
class HookStatus:
    """The webhooks of a project that lead here, and what is wrong."""

    project: str
    seen: tuple[SeenHook, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """How a test delivery ended: the words, and whether the receiver took it."""

    words: str
    is_taken: bool

    def is_asked_for_in_vain(self, trial: Trial) -> bool:
        """True if somebody wanted the proof and did not get it."""
        return trial is Trial.ALWAYS and not self.is_taken


@dataclass(frozen=True, slots=True)
class Installed:
    """What was done, what it changed and set in words, how a test delivery went, and what is the case now."""

    did: Did
    hook: HookInfo
    changed: tuple[str, ...]
    secrets: tuple[str, ...]
    tried: Tried | None
    status: HookStatus


def needs_of(settings: Settings, url: str | None) -> HookNeeds:
    """What this configuration accepts; the first secret of each kind is the one that is set at GitLab."""
    return HookNeeds(
        url or (hook_url(settings.public_url) if settings.public_url else None),
        next(iter(settings.webhook_tokens), None),
        next(iter(settings.webhook_signing_keys), None),
    )


async def look(admin: GitLabAdmin, project: int | str, needs: HookNeeds) -> HookStatus:
    """Look at the project's webhooks that lead here."""
    hooks = await admin.hooks(project)
    seen = [SeenHook(hook, await admin.deliveries(project, hook.id)) for hook in ours(hooks, needs.url)]
    findings = judge_all(hooks, needs, str(project))
    for one in seen:
        findings += judge(one.hook, needs, str(project), one.newest)
    return HookStatus(str(project), tuple(seen), tuple(findings))


async def install(
    admin: GitLabAdmin, project: int | str, needs: HookNeeds, url: str, trial: Trial
) -> Installed:
    """Create or mend the project's webhook to `url`; it is then as wished, or a finding says what is not."""
    found = ours(await admin.hooks(project), url)
    if found:
        hook, did = found[0], Did.MENDED if differences(found[0], needs) else Did.CONFIRMED
        changed = differences(hook, needs)
        hook = await _change(admin, project, hook, needs, url)
    else:
        hook, did = await _create(admin, project, needs, url)
        changed = []
    if differences(hook, needs):  # a default of this GitLab that no creation can know
        hook = await _change(admin, project, hook, needs, url)
    status = await look(admin, project, needs)
    tried = await _try(admin, project, hook, status, trial)
    if tried is not None:
        status = await look(admin, project, needs)
        if tried.is_asked_for_in_vain(trial):
            status = replace(status, findings=(*status.findings, _unproven(status.project, hook, tried)))
    return Installed(did, hook, tuple(changed), _secrets(needs, hook), tried, status)


async def _create(admin: GitLabAdmin, project: int | str, needs: HookNeeds, url: str) -> tuple[HookInfo, Did]:
    wish = wish_of(needs, url, None)
    try:
        return await admin.create_hook(project, wish), Did.CREATED
    except OutcomeUnknown:
        found = ours(await admin.hooks(project), url)
    if found:
        return found[0], Did.ADOPTED
    return await admin.create_hook(project, wish), Did.CREATED


async def _change(
    admin: GitLabAdmin, project: int | str, hook: HookInfo, needs: HookNeeds, url: str
) -> HookInfo:
    wish = wish_of(needs, url, hook)
    try:
        return await admin.change_hook(project, hook.id, wish)
    except OutcomeUnknown:  # it sets, so doing it again is safe
        return await admin.change_hook(project, hook.id, wish)


async def _try(
    admin: GitLabAdmin, project: int | str, hook: HookInfo, status: HookStatus, trial: Trial
) -> Tried | None:
    """Send a test delivery if it is called for."""
    seen = next((one for one in status.seen if one.hook.id == hook.id), None)
    if trial is Trial.IF_NEEDED and (seen is None or not _is_in_trouble(seen)):
        return None
    try:
        await admin.try_hook(project, hook.id)
    except (GitLabRefused, GitLabUnavailable, OutcomeUnknown) as error:
        why = _NO_SAMPLE if _NOTHING_TO_SEND in str(error) else f"{error}"
        return Tried(f"not taken: {why}", is_taken=False)
    return Tried("taken", is_taken=True)


def _unproven(project: str, hook: HookInfo, tried: Tried) -> Finding:
    subject = f"{project}, webhook {hook.id}"
    remedy = "see that GitLab reaches the address and the service runs, then install with --test again"
    return Finding(Kind.UNSEEN, "webhook", subject, f"the test delivery was {tried.words}", remedy)


def _secrets(needs: HookNeeds, hook: HookInfo) -> tuple[str, ...]:
    named = {"token": needs.token, "signing key": needs.signing_key}
    named["user and password of the address (as they were)"] = hook.login
    return tuple(name for name, secret in named.items() if secret is not None)


def _is_in_trouble(seen: SeenHook) -> bool:
    is_paused = seen.hook.alert_status != "executable"
    return is_paused or (seen.newest is not None and not seen.newest.status.startswith("2"))
