"""How much each part does: the default run, the quick one for tests, the large history. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from gitlab_sync.assembly import POOL_SIZE

#: Rows that one landed request leaves behind: operation, member, 3 audit, binding, 2 history, 2 outbox.
ROWS_PER_LANDED: Final = 10


@dataclass(frozen=True, slots=True)
class Settling:
    """Members of a settlement, and how many settlements make a block."""

    members: int
    settlements: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one run.

    `connections` is the service's own pool size, for both sides of a comparison; no comparison begins a round
    after `limit_s`. `buffer_pool_mb` None: the server's default, into which the default history fits.
    """

    rounds: int = 7
    block_s: float = 1.0
    limit_s: float = 40.0
    seed: int = 1
    connections: int = POOL_SIZE
    callers: int = 64
    list_length: int = 100
    settlings: tuple[Settling, ...] = (
        Settling(10, 8),
        Settling(100, 3),
        Settling(1000, 1),
        Settling(5000, 1),
    )
    small_history: int = 10_000
    large_history: int = 1_000_000
    claimed: int = 100
    claims: int = 5
    beside_members: int = 1000
    beside_batches: int = 3
    counted_submits: int = 1000
    polled: int = 50
    calm_s: float = 3.0
    idle_s: float = 20.0
    starts: int = 3
    buffer_pool_mb: int | None = None


DEFAULT: Final = Sizes()
#: 10 million rows are 3 GB. What is compared is the cost of a history, not of a disk: keys are random, so
#: in a smaller pool each submit reads pages for its unique keys.
LARGE: Final = replace(DEFAULT, large_history=10_000_000, buffer_pool_mb=4096)
QUICK: Final = Sizes(
    rounds=2,
    block_s=0.05,
    connections=4,
    callers=6,
    list_length=5,
    settlings=(Settling(2, 2), Settling(5, 1)),
    small_history=100,
    large_history=2_000,
    claimed=5,
    claims=2,
    beside_members=20,
    beside_batches=2,
    counted_submits=20,
    polled=5,
    calm_s=0.1,
    idle_s=0.5,
    starts=1,
)
