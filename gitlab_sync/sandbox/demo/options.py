"""What a run of the demo is told, and how fast it goes. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Ending(StrEnum):
    """When the demo ends: right after the summary, or when somebody says so."""

    AFTER_SUMMARY = "after summary"
    WHEN_TOLD = "when told"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """`port_base` 0: three ports that are free; else the simulator's, and the replicas' are the next two."""

    requests: int
    ending: Ending
    port_base: int


@dataclass(frozen=True, slots=True)
class Pace:
    """How long pretended pipelines take, and how long the waves of requests are apart."""

    pipeline_s: float
    wave_gap_s: float


QUICK: Final = Pace(pipeline_s=0.8, wave_gap_s=1.3)
WATCHABLE: Final = Pace(pipeline_s=2.0, wave_gap_s=2.5)


def pace_of(ending: Ending) -> Pace:
    """Quick where nobody watches."""
    return QUICK if ending is Ending.AFTER_SUMMARY else WATCHABLE
