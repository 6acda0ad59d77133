"""Transactions: rolled back and run again as a whole, and COMMIT's lost answer found out.

`transaction(name, work)` opens an explicit transaction on a READ COMMITTED connection, awaits
`work(session)`, commits. Between BEGIN and COMMIT `work` awaits nothing but its session: no GitLab, no
other connection, no lock of ours.

Races considered:
A  deadlock or lock wait: the server may have undone a part only. Always ROLLBACK (or drop the connection),
   then the whole function again with a fresh attempt token; never one statement again.
B  the connection is lost before COMMIT was sent: nothing is committed; again on a new connection.
C  the connection is lost while COMMIT is in flight: unknown, never "failed". `confirm` looks on a new
   connection, with a locking read, for the attempt's token: found, the result computed before COMMIT is the
   answer; not found, again.
D  the caller is cancelled: before COMMIT the connection is dropped. Once COMMIT is sent it is waited for
   under its own limit, so that a connection with a commit in flight is never handed on.
E  a duplicate key or a domain error inside `work`: ROLLBACK at once, because a lost INSERT keeps its locks
   until then.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

import aiomysql
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from gitlab_sync.db.pool import Pool
from gitlab_sync.db.session import AttemptToken, RetryTransaction, Session, public_error, translate
from gitlab_sync.db.taxonomy import ErrorClass, may_have_committed
from gitlab_sync.errors import CommitUnknown, DatabaseError, DatabaseUnavailable
from gitlab_sync.setting_values import DatabaseTarget
from gitlab_sync.telemetry import TransactionResult

T = TypeVar("T")
Work = Callable[[Session], Awaitable[T]]
Confirm = Callable[[Session, AttemptToken], Awaitable[bool]]

ATTEMPTS: Final = 5
STATEMENT_LIMIT_S: Final = 15.0
COMMIT_LIMIT_S: Final = 15.0
RESOLVE_ATTEMPTS: Final = 8


class Observer(Protocol):
    """Who is told about transactions, for counters."""

    def transaction_ended(self, name: str, result: TransactionResult) -> None: ...
    def transaction_retried(self, reason: str) -> None: ...


class _Silent:
    def transaction_ended(self, name: str, result: TransactionResult) -> None: ...
    def transaction_retried(self, reason: str) -> None: ...


class Abandon(Exception):
    """Raised by `work` to roll back and answer `value`: a result, not a failure."""

    def __init__(self, value: object) -> None:
        super().__init__("transaction abandoned")
        self.value = value


class Database:
    """The writer database behind a pool.

    Build it inside a running event loop; `close()` it before the loop ends.
    """

    def __init__(self, target: DatabaseTarget, *, size: int = 10, observer: Observer | None = None) -> None:
        self.target = target
        self.pool = Pool(target, size=size)
        self.statement_seen: Callable[[str], None] = lambda _name: None
        self._observer = observer or _Silent()

    async def close(self) -> None:
        await self.pool.close()

    async def read(self, name: str, work: Work[T]) -> T:
        """Run reads outside of any transaction; a dead connection is replaced once. Never decides a write."""
        return await self._retrying(name, lambda: self._read_once(work), attempts=3)

    async def transaction(self, name: str, work: Work[T], *, confirm: Confirm | None = None) -> T:
        """Run `work` in one transaction and commit it.

        The answer is what `work` returned, or an Abandon's value.

        Raises DatabaseBusy when retries are used up, DatabaseUnavailable when the server is away or
        read-only, CommitUnknown when COMMIT's answer is lost and `confirm` (None, or unreachable) could not
        find it out, and whatever `work` raises, after ROLLBACK.
        """
        return await self._retrying(name, lambda: self._transaction_once(work, confirm), attempts=ATTEMPTS)

    async def _retrying(self, name: str, run: Callable[[], Awaitable[T]], *, attempts: int) -> T:
        result = TransactionResult.FAILED
        try:
            async for attempt in AsyncRetrying(
                stop=stop_after_attempt(attempts),
                wait=wait_random_exponential(multiplier=0.01, max=0.5),
                retry=retry_if_exception_type(RetryTransaction),
                before_sleep=self._before_retry,
                reraise=True,
            ):
                with attempt:
                    answer = await run()
                    result = TransactionResult.COMMITTED
                    return answer
        except Abandon as abandoned:
            result = TransactionResult.ROLLED_BACK
            return abandoned.value  # type: ignore[return-value]  # the work's own type travels through Abandon
        except RetryTransaction as error:
            raise public_error(error) from error
        finally:
            self._observer.transaction_ended(name, result)
        raise AssertionError("unreachable: AsyncRetrying ends by returning or raising")

    def _before_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, RetryTransaction):
            self._observer.transaction_retried(error.reason)
            if error.error_class is not ErrorClass.RETRY:
                self.pool.drop_idle()

    async def _read_once(self, work: Work[T]) -> T:
        connection = await self.pool.acquire()
        is_clean = False
        try:
            answer = await work(self._session(connection))
            is_clean = True
            return answer
        finally:
            self.pool.release(connection, is_clean=is_clean)

    async def _transaction_once(self, work: Work[T], confirm: Confirm | None) -> T:
        connection = await self.pool.acquire()
        session = self._session(connection)
        is_clean = False
        try:
            answer = await self._run_work(connection, session, work)
            is_committed = await self._commit(connection)
            is_clean = is_committed
        except Exception:
            is_clean = await _roll_back(connection)
            raise
        finally:
            self.pool.release(connection, is_clean=is_clean)
        if not is_committed:
            await self._resolve(session.token, confirm)
        return answer

    async def _run_work(self, connection: aiomysql.Connection, session: Session, work: Work[T]) -> T:
        try:
            async with asyncio.timeout(STATEMENT_LIMIT_S):
                await connection.begin()
        except Exception as error:
            connection.close()
            raise translate(error) from error
        return await work(session)

    async def _commit(self, connection: aiomysql.Connection) -> bool:
        """Send COMMIT and wait for its answer, also when the caller is cancelled meanwhile.

        False: the answer is lost.
        """
        sending = asyncio.ensure_future(self._send_commit(connection))
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            await asyncio.wait({sending}, timeout=COMMIT_LIMIT_S)
            if not sending.done() or sending.exception() is not None:
                connection.close()
            raise

    async def _send_commit(self, connection: aiomysql.Connection) -> bool:
        try:
            async with asyncio.timeout(COMMIT_LIMIT_S):
                await connection.commit()
            return True
        except Exception as error:
            translated = translate(error)
            if isinstance(translated, RetryTransaction) and not may_have_committed(translated.code):
                raise translated from error
            return False

    async def _resolve(self, token: AttemptToken, confirm: Confirm | None) -> None:
        """Return if the attempt with `token` is durable.

        Raises RetryTransaction if it is not, CommitUnknown if nobody can tell.
        """
        self.pool.drop_idle()
        self._observer.transaction_retried("commit answer lost")
        if confirm is None:
            raise CommitUnknown("the answer to COMMIT was lost")
        is_durable = False
        try:
            async for attempt in AsyncRetrying(
                stop=stop_after_attempt(RESOLVE_ATTEMPTS),
                wait=wait_random_exponential(multiplier=0.05, max=2),
                retry=retry_if_exception_type((RetryTransaction, DatabaseUnavailable)),
                reraise=True,
            ):
                with attempt:
                    is_durable = await self._confirm_once(token, confirm)
        except DatabaseError as error:
            raise CommitUnknown("the answer to COMMIT was lost and the database cannot be asked") from error
        if not is_durable:
            raise RetryTransaction(2013, "COMMIT did not arrive", ErrorClass.RECONNECT)

    async def _confirm_once(self, token: AttemptToken, confirm: Confirm) -> bool:
        connection = await self.pool.acquire()
        try:
            await connection.begin()
            return await confirm(self._session(connection), token)
        except Exception as error:
            raise translate(error) from error
        finally:
            self.pool.release(connection, is_clean=await _roll_back(connection))

    def _session(self, connection: aiomysql.Connection) -> Session:
        return Session(
            connection,
            token=AttemptToken(os.urandom(16)),
            statement_limit_s=STATEMENT_LIMIT_S,
            observe=self.statement_seen,
        )


async def _roll_back(connection: aiomysql.Connection) -> bool:
    """Undo what is open.

    True: the connection is clean; False: it is closed or of unknown state and must be dropped.
    """
    if connection.closed:
        return False
    try:
        async with asyncio.timeout(STATEMENT_LIMIT_S):
            await connection.rollback()
    except Exception:  # noqa: BLE001  whatever it was, the connection is dropped
        connection.close()
        return False
    return True
