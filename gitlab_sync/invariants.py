"""Looks for what must not be, over the live tables, read-only.

For `doctor --invariants`, and after every race and crash test.
"""

from __future__ import annotations

from gitlab_sync.db import Database, Session
from gitlab_sync.store import views
from gitlab_sync.store.views import INVARIANTS, Violation


async def find_violations(db: Database) -> list[Violation]:
    """Every violation of every invariant; expected: none."""

    async def work(session: Session) -> list[Violation]:
        found: list[Violation] = []
        for invariant in INVARIANTS:
            found.extend(await views.select_violations(session, invariant))
        return found

    return await db.read("invariants", work)
