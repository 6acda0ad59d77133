"""The simulator's settings: where it keeps its repositories, how fast it acts, how it delivers hooks.

Every timing is a parameter of an experiment, not a measurement of a real GitLab.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class DateForm(StrEnum):
    """How dates are written in hook payloads: 19.x writes ISO with milliseconds, older versions `... UTC`."""

    ISO = "iso"
    OLD = "old"


class HookDisabling(StrEnum):
    """Whether failing hooks are paused, then disabled (on at GitLab.com, off by default on own instances)."""

    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds between a cause and its effect."""

    prepare_s: float = 0.05
    check_s: float = 0.05
    merge_s: float = 0.0
    answer_merge_s: float = 0.0
    branch_delete_s: float = 0.02
    pipeline_start_s: float = 0.02
    hook_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SimConfig:
    """Everything that is fixed when the simulator starts."""

    root: Path
    sim_token: str = field(repr=False)
    version: str = "19.0.0"
    timings: Timings = Timings()
    hook_workers: int = 2
    hook_timeout_s: float = 10.0
    # None: as the version writes them.
    hook_dates: DateForm | None = None
    hook_disabling: HookDisabling = HookDisabling.ON
    hook_calls_per_minute: int = 5
    seed: int = 1
    base_url: str = "http://gitlab.invalid"
