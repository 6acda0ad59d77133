"""Does something to the next COMMIT of a pool: holds it, cuts its answer off, or cuts it off itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pymysql

from gitlab_sync.db import Database
from tests.support.barriers import StopAt


class CommitAct(Protocol):
    """What happens instead of a COMMIT; `commit` sends the real one."""

    async def __call__(self, connection: Any, commit: Callable[[], Awaitable[None]]) -> None: ...


async def answer_lost(connection: Any, commit: Callable[[], Awaitable[None]]) -> None:
    """COMMIT arrives and takes effect; the connection breaks before its answer is read."""
    await commit()
    connection.close()
    raise pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")


async def never_sent(connection: Any, commit: Callable[[], Awaitable[None]]) -> None:
    """The connection breaks before COMMIT arrives; the server rolls back when it notices."""
    connection.close()
    raise pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")


def held_at(points: StopAt) -> CommitAct:
    """COMMIT is not sent before `points` lets go; the point is called `commit`."""

    async def hold(connection: Any, commit: Callable[[], Awaitable[None]]) -> None:
        await points.hit("commit")
        await commit()

    return hold


@contextmanager
def at_next_commit(db: Database, act: CommitAct) -> Iterator[None]:
    """`act` takes the place of the first COMMIT that `db` sends within the block."""
    acquire = db.pool.acquire
    acts = [act]

    async def acquire_with_door() -> Any:
        connection = await acquire()
        commit = type(connection).commit.__get__(connection)

        async def door() -> None:
            if acts:
                await acts.pop()(connection, commit)
            else:
                await commit()

        connection.commit = door
        return connection

    db.pool.acquire = acquire_with_door  # type: ignore[method-assign]
    try:
        yield
    finally:
        db.pool.acquire = acquire  # type: ignore[method-assign]
    assert not acts, "nothing was committed meanwhile"
