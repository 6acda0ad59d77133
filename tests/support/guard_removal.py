"""How a guard is taken away: a key, a part of a WHERE, or a check in Python; values for `guard_register`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

import pymysql
import pytest

from gitlab_sync import ending, settlement
from gitlab_sync.model import MergeRequestInfo
from gitlab_sync.store import batches, bindings
from tests.support.guards import weaken_key, weaken_statement

Removal: TypeAlias = Callable[["pymysql.Connection[Any]", pytest.MonkeyPatch], None]


class Kind(StrEnum):
    """What a guard is made of."""

    KEY = "key"
    WHERE = "where"
    ROWS = "rows"  # the affected rows are compared with what was expected
    ORDER = "order"
    REREAD = "re-read"
    TOKEN = "token"  # the attempt's or the lease's


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard; `red` is `file::test` below `tests`, `given` what that test is parametrised with."""

    name: str
    kind: Kind
    protects: str
    remove: Removal
    red: str
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def statement(self) -> str:
        """The statement that the guard stands in, if it stands in one."""
        return self.name.partition(" ")[0]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def key(name: str, protects: str, red: str, /, **given: Any) -> Guard:
    """`table.key` holds duplicates."""
    table, _, one = name.partition(".")
    return Guard(
        name, Kind.KEY, protects, lambda connection, _: weaken_key(connection, table, one), red, given
    )


def where(name: str, guard: str, protects: str, red: str, /, *, instead: str = "", **given: Any) -> Guard:
    """The statement runs without that part of its WHERE."""
    kind = Kind.TOKEN if "_token = " in guard else Kind.WHERE
    title = f"{name} {' '.join(guard.split())}"
    return Guard(
        title, kind, protects, lambda _, patch: weaken_statement(patch, name, guard, instead), red, given
    )


def code(name: str, kind: Kind, protects: str, remove: Removal, red: str, /, **given: Any) -> Guard:
    """A check in Python does nothing."""
    return Guard(name, kind, protects, remove, red, given)


# ---------------------------------------------------------------- how checks in Python are taken away


def every_settlement_wins(_: Any, patch: pytest.MonkeyPatch) -> None:
    """The rows of the batch write are not looked at."""
    real = batches.settle_if_status

    async def wins(*args: Any, **kwargs: Any) -> int:
        await real(*args, **kwargs)
        return 1

    patch.setattr(batches, "settle_if_status", wins)


def members_first(_: Any, patch: pytest.MonkeyPatch) -> None:
    """Settle moves the members before it asks whether the batch is still there to be settled."""
    real = batches.settle_if_status

    async def late(session: Any, batch: Any, **kwargs: Any) -> int:
        how = settlement.Ending(kwargs["after"], kwargs["reason_code"])
        await settlement._move_members(session, batch, how)
        return await real(session, batch, **kwargs)

    patch.setattr(batches, "settle_if_status", late)


def as_it_was(_: Any, patch: pytest.MonkeyPatch) -> None:
    """What a merge request was before the close is taken for what it is after it."""

    async def believes(ctx: Any, batch: Any, info: MergeRequestInfo | None) -> MergeRequestInfo | None:
        if info is not None and info.state == "opened":
            await ending._close(ctx, batch, info)
            await ending._delete_branch_now(ctx, batch)
            return None
        return info

    patch.setattr(ending, "_final_state", believes)


def nothing_to_say(module: Any, name: str) -> Removal:
    """The check is never made."""
    return lambda _, patch: patch.setattr(module, name, lambda *_args: None)


def any_number_starts(_: Any, patch: pytest.MonkeyPatch) -> None:
    """Relations that changed meanwhile are not missed."""
    real = bindings.start_if_unchanged

    async def starts(session: Any, several: Any) -> int:
        await real(session, several)
        return len(several)

    patch.setattr(bindings, "start_if_unchanged", starts)
