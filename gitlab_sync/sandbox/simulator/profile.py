"""What a GitLab version does and does not know: headers, signing, system fields, dates, hooks that fail.

One place for all differences the simulator plays: 17.4, 18.6 and 19.0 are the profiles that the tests use.
"""

from __future__ import annotations

from dataclasses import dataclass

from gitlab_sync.sandbox.simulator.config import DateForm

_IDEMPOTENCY_KEY = (17, 4)
_EVEN_DISABLING = (17, 11)
_SYSTEM_FIELDS = (18, 6)
_SIGNING = (19, 0)
_ISO_DATES = (19, 0)
_LIMITED_CREATION = (19, 0)


@dataclass(frozen=True, slots=True)
class Profile:
    """The features of one version."""

    idempotency_key: bool
    # Before, the fourth 4xx answer in a row ended a hook for good; since, it is paused like any failure.
    client_errors_end_a_hook: bool
    system_fields: bool
    signing: bool
    hook_dates: DateForm
    hook_creation_limited: bool


def profile_of(version: str) -> Profile:
    """Return what an instance of this version does; raises ValueError for something that is no version."""
    parts = version.split(".")
    number = (int(parts[0]), int(parts[1]) if len(parts) > 1 else 0)
    return Profile(
        idempotency_key=number >= _IDEMPOTENCY_KEY,
        client_errors_end_a_hook=number < _EVEN_DISABLING,
        system_fields=number >= _SYSTEM_FIELDS,
        signing=number >= _SIGNING,
        hook_creation_limited=number >= _LIMITED_CREATION,
        hook_dates=DateForm.ISO if number >= _ISO_DATES else DateForm.OLD,
    )
