"""Named places at which a test may stop, kill or break the engine.

Production passes `FaultPoints()`, whose `hit` does nothing; a test passes a subclass that raises, freezes
or exits at a name. Names read `room.after_step` ("settle.after_batch"). Never holds a decision: the code
behaves the same with and without.
"""

from __future__ import annotations


class FaultPoints:
    """The points of production: passing one does nothing."""

    async def hit(self, name: str) -> None:
        """Pass the point called `name`."""
