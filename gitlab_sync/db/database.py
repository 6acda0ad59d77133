"""Transactions: rolled back and run again as a whole, and COMMIT's lost answer found out.

`transaction(name, work)` opens an explicit transaction on a READ COMMITTED connection, awaits
`work(session)`, commits. Between BEGIN and COMMIT `work` awaits nothing but its session: no GitLab, no
other connection, no lock of ours.

Races considered:
A  deadlock or lock wait: the server may have undone a part only. Always ROLLBACK (or drop the connection),
   then the whole function again with a fresh attempt token; never one statement again.
B  the connection is lost before COMMIT was sent: nothing is committed; again on a new connection.
C  the connection is lost while COMMIT is in flight: unknown, never "failed". `resolver` looks for what the
   attempt left behind: found, the result computed before COMMIT is the answer; not found, again. An attempt
   that was not found may have been covered by somebody's later move, so if the next one then fails for want
   of a database, the answer is CommitUnknown and not "nothing was committed".
D  the caller is cancelled: it goes at once. Before COMMIT the connection is dropped, and a statement at work
   is ended at the server. Once COMMIT is sent, it and its connection belong to a task of the port, which ends
   within COMMIT_LIMIT_S and gives the connection back then, so that no place is taken twice; `close` waits
   for it. What became of that COMMIT nobody asks, because nobody is told. Whoever has a limit of its own (a
   webhook's answer, a stop) can rely on it.
E  a duplicate key or a domain error inside `work`: ROLLBACK at once, because a lost INSERT keeps its locks
   until then.
F  everything takes its time: one call ends within CALL_LIMIT_S, as unavailable, or as unknown if a COMMIT is
   on its way.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import aiomysql
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from gitlab_sync.db.connection import begin
from gitlab_sync.db.limits import CALL_LIMIT_S, COMMIT_LIMIT_S, STATEMENT_LIMIT_S
from gitlab_sync.db.pool import Pool
from gitlab_sync.db.resolver import Confirm, is_durable, roll_back
from gitlab_sync.db.session import AttemptToken, RetryTransaction, Session, public_error, translate
from gitlab_sync.db.taxonomy import ErrorClass, may_have_committed
from gitlab_sync.db.telling import Observer, Silent, Told, told
from gitlab_sync.errors import CommitUnknown, DatabaseBusy, DatabaseUnavailable
from gitlab_sync.setting_values import DatabaseTarget
from gitlab_sync.telemetry import TransactionResult

T = TypeVar("T")
Work = Callable[[Session], Awaitable[T]]

ATTEMPTS: Final = 5
READ_ATTEMPTS: Final = 3


class Abandon(Exception):
    """Raised by `work` to roll back and answer `value`: a result, not a failure."""

    def __init__(self, value: object) -> None:
        super().__init__("transaction abandoned")
        self.value = value


async def run_again(_session: Session, _token: AttemptToken) -> bool:
    """A `confirm` for work that does no harm when done twice: a lost COMMIT is simply done again."""
    return False


@dataclass(slots=True)
class _Call:
    """What is known about the COMMITs of one call of `transaction`."""

    is_open: bool = False  # one was sent, and whether it took effect has not been seen
    was_lost: bool = False


class Database:
    """The writer database behind a pool.

    Build it inside a running event loop; `close()` it before the loop ends.
    """

    def __init__(self, target: DatabaseTarget, *, size: int = 10, observer: Observer | None = None) -> None:
        self.target = target
        self.pool = Pool(target, size=size)
        self.statement_seen: Callable[[str], None] = lambda _name: None
        #: When the server last did what it was asked, by the monotonic clock; the readiness of a replica.
        self.answered_at = time.monotonic()
        self._observer = observer or Silent()
        self._commits: set[asyncio.Task[bool]] = set()

    async def close(self) -> None:
        """Wait for COMMITs on their way, each within its limit, then close every connection."""
        if self._commits:
            await asyncio.wait(self._commits)
        await self.pool.close()

    async def read(self, name: str, work: Work[T]) -> T:
        """Run reads outside of any transaction; a dead connection is replaced once. Never decides a write."""
        with told(self._observer, name, 0) as telling:
            try:
                answer = await self._retrying(lambda: self._read_once(work), READ_ATTEMPTS, telling)
            except RetryTransaction as error:
                raise public_error(error) from error
            telling.result = TransactionResult.COMMITTED
            return answer

    async def transaction(self, name: str, work: Work[T], *, confirm: Confirm | None = None) -> T:
        """Run `work` in one transaction and commit it.

        The answer is what `work` returned, or an Abandon's value.

        Raises DatabaseBusy when retries are used up, DatabaseUnavailable when the server is away or
        read-only, CommitUnknown when COMMIT's answer is lost and `confirm` (None, or unreachable) could not
        find it out, and whatever `work` raises, after ROLLBACK.
        """
        call = _Call()
        with told(self._observer, name, 1) as telling:
            try:
                answer = await self._in_time(work, confirm, call, telling)
                telling.result = TransactionResult.RESOLVED if call.was_lost else TransactionResult.COMMITTED
                return answer
            except Abandon as abandoned:
                telling.result = TransactionResult.ROLLED_BACK
                return abandoned.value  # type: ignore[return-value]  # its own type travels through Abandon
            except CommitUnknown:
                telling.result = TransactionResult.UNKNOWN
                raise

    async def _in_time(self, work: Work[T], confirm: Confirm | None, call: _Call, telling: Told) -> T:
        """All attempts, within the limit of a call. No error that means "not committed" while one is open."""
        limit = asyncio.timeout(CALL_LIMIT_S)
        try:
            async with limit:
                return await self._retrying(
                    lambda: self._transaction_once(work, confirm, call), ATTEMPTS, telling
                )
        except (RetryTransaction, DatabaseBusy, DatabaseUnavailable) as error:
            if call.is_open:
                raise CommitUnknown("the answer to COMMIT was lost, and the database went away") from error
            if isinstance(error, RetryTransaction):
                raise public_error(error) from error
            raise
        except TimeoutError as error:
            if not limit.expired():
                raise
            if call.is_open:
                raise CommitUnknown(f"no answer to COMMIT within {CALL_LIMIT_S} s") from error
            raise DatabaseUnavailable(f"the transaction was not over within {CALL_LIMIT_S} s") from error

    async def _retrying(self, run: Callable[[], Awaitable[T]], attempts: int, telling: Told) -> T:
        async for attempt in AsyncRetrying(
            stop=stop_after_attempt(attempts),
            wait=wait_random_exponential(multiplier=0.01, max=0.5),
            retry=retry_if_exception_type(RetryTransaction),
            before_sleep=lambda state: self._before_retry(state, telling),
            reraise=True,
        ):
            with attempt:
                return await run()
        raise AssertionError("unreachable: AsyncRetrying ends by returning or raising")

    def _before_retry(self, state: RetryCallState, telling: Told) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, RetryTransaction):
            telling.again(state.attempt_number + 1, error)
            self._observer.transaction_retried(error.reason)
            if error.error_class is not ErrorClass.RETRY:
                self.pool.drop_idle()

    async def _read_once(self, work: Work[T]) -> T:
        connection = await self.pool.acquire()
        is_clean = False
        try:
            answer = await work(self._session(connection))
            is_clean = True
            self.answered_at = time.monotonic()
            return answer
        finally:
            self.pool.release(connection, is_clean=is_clean)

    async def _transaction_once(self, work: Work[T], confirm: Confirm | None, call: _Call) -> T:
        connection = await self.pool.acquire()
        session = self._session(connection)
        try:
            answer = await self._run_work(connection, session, work)
        except BaseException as error:
            await self._undo(connection, error)
            raise
        if not await self._commit(connection, call):
            await self._resolve(session.token, confirm, call)
        return answer

    async def _run_work(self, connection: aiomysql.Connection, session: Session, work: Work[T]) -> T:
        try:
            async with asyncio.timeout(STATEMENT_LIMIT_S):
                await begin(connection)
        except Exception as error:
            connection.close()
            raise translate(error) from error
        answer = await work(session)
        self.answered_at = time.monotonic()
        return answer

    async def _undo(self, connection: aiomysql.Connection, error: BaseException) -> None:
        """ROLLBACK, or drop the connection if the caller was cancelled; its place is free in any case."""
        is_clean = False
        try:
            if isinstance(error, Exception):
                is_clean = await roll_back(self.pool, connection)
        finally:
            self.pool.release(connection, is_clean=is_clean)

    async def _commit(self, connection: aiomysql.Connection, call: _Call) -> bool:
        """Send COMMIT and wait for its answer; it goes on when the caller is cancelled meanwhile (race D).

        False: the answer is lost. Raises RetryTransaction if the server refused.
        """
        was_open, call.is_open = call.is_open, True
        sending = asyncio.create_task(self._send_commit(connection))
        self._commits.add(sending)
        sending.add_done_callback(self._sent)
        try:
            is_answered = await asyncio.shield(sending)
        except RetryTransaction:
            call.is_open = was_open
            raise
        call.is_open = not is_answered
        return is_answered

    def _sent(self, sending: asyncio.Task[bool]) -> None:
        """A COMMIT is over; what it ended with is read here too, for a caller who no longer waits for it."""
        self._commits.discard(sending)
        if not sending.cancelled():
            sending.exception()

    async def _send_commit(self, connection: aiomysql.Connection) -> bool:
        """Owns the connection: whatever happens to the caller, it is given back here, once."""
        is_clean = False
        try:
            async with asyncio.timeout(COMMIT_LIMIT_S):
                await connection.commit()
            is_clean = True
        except Exception as error:
            translated = translate(error)
            if isinstance(translated, RetryTransaction) and not may_have_committed(translated.code):
                raise translated from error
            self.pool.forsake(connection)
        finally:
            self.pool.release(connection, is_clean=is_clean)
        return is_clean

    async def _resolve(self, token: AttemptToken, confirm: Confirm | None, call: _Call) -> None:
        """Return if the attempt with `token` is durable.

        Raises RetryTransaction if it is not to be found, CommitUnknown if nobody can tell.
        """
        call.was_lost = True
        self.pool.drop_idle()
        self._observer.transaction_retried("commit answer lost")
        if not await is_durable(self.pool, self._session, token, confirm):
            raise RetryTransaction(2013, "COMMIT did not arrive", ErrorClass.RECONNECT)
        call.is_open = False

    def _session(self, connection: aiomysql.Connection) -> Session:
        return Session(
            connection,
            token=AttemptToken(os.urandom(16)),
            statement_limit_s=STATEMENT_LIMIT_S,
            observe=self.statement_seen,
            forsake=self.pool.forsake,
        )
