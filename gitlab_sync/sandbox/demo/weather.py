"""How well the simulated GitLab's webhooks travel: prompt, late, or not at all; always with seeded mishaps.

The same seed gives the same mishaps for the same events. The demo changes the weather between waves of
requests, so that webhooks and poller both win and both lose.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from gitlab_sync.sandbox.simulator import SimControl

SEED: Final = 20
LOST_SHARE: Final = 0.15
DOUBLED_SHARE: Final = 0.25
PROMPT_S: Final = 0.01
LATE_S: Final = 0.45
MERGE_S: Final = 0.15


# From GitLab's look at a merge request to its answer's arrival. A simulator next door answers in no time, and
# two replicas would hardly ever meet.
ANSWER_S: Final = 0.12


class Weather(StrEnum):
    """What happens to webhooks for a while."""

    PROMPT = "webhooks travel fast"
    LATE = "webhooks are late: the poller has a chance"
    SILENT = "not one webhook gets through: the poller is alone"


FORECAST: Final = (
    Weather.PROMPT,
    Weather.PROMPT,
    Weather.LATE,
    Weather.SILENT,
    Weather.PROMPT,
    Weather.PROMPT,
    Weather.LATE,
    Weather.PROMPT,
)


def make_climate(control: SimControl) -> None:
    """What holds all the time: merges and answers take as long as those of a real instance."""
    control.set_timings(merge_s=MERGE_S)
    control.add_fault("delay", method="GET", path=r"/merge_requests/\d+$", place="after", delay_s=ANSWER_S)


def make_weather(control: SimControl, weather: Weather, wave: int) -> None:
    """Tell the simulator. Events that are on their way already are not changed."""
    control.clear_hook_faults()
    if weather is Weather.SILENT:
        control.add_hook_fault("drop")
        return
    control.set_timings(hook_s=LATE_S if weather is Weather.LATE else PROMPT_S)
    control.add_hook_fault("drop", probability=LOST_SHARE, seed=SEED + wave)
    control.add_hook_fault("duplicate_new_key", probability=DOUBLED_SHARE / 2, seed=SEED + 100 + wave)
    control.add_hook_fault("duplicate_same_key", probability=DOUBLED_SHARE / 2, seed=SEED + 200 + wave)


def waves_of(requests: int) -> Sequence[tuple[Weather, range]]:
    """The numbers of the requests of each wave, as even as can be; fewer requests than waves: fewer waves."""
    count = min(len(FORECAST), requests)
    bounds = [requests * wave // count for wave in range(count + 1)]
    return [(FORECAST[wave], range(bounds[wave], bounds[wave + 1])) for wave in range(count)]
