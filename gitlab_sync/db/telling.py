"""How the end of a read or a transaction is told, once, whatever it is: to counters, and by its line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from gitlab_sync.db.session import RetryTransaction
from gitlab_sync.log_words import Unit
from gitlab_sync.telemetry import TransactionResult
from gitlab_sync.units import Line, unit


class Observer(Protocol):
    """Who is told about transactions, for counters."""

    def transaction_ended(self, name: str, result: TransactionResult) -> None: ...
    def transaction_retried(self, reason: str) -> None: ...


class Silent:
    """Nobody counts."""

    def transaction_ended(self, name: str, result: TransactionResult) -> None: ...
    def transaction_retried(self, reason: str) -> None: ...


@dataclass(slots=True)
class Told:
    """How it ends, as far as that is known yet."""

    line: Line
    result: TransactionResult = TransactionResult.FAILED

    def again(self, attempt: int, error: RetryTransaction) -> None:
        """It is run again, for the `attempt`-th time: worth a line of its own, however it ends."""
        self.line.add(attempts=attempt, reason=error.reason)
        self.line.loud()


@contextmanager
def told(observer: Observer, name: str, transactions: int) -> Iterator[Told]:
    """Tell how what runs in the block has ended. `transactions`: 1, or 0 for reads outside of any."""
    with unit(Unit.TRANSACTION) as line:
        line.add(name=name)
        line.db_transactions = transactions
        telling = Told(line)
        try:
            yield telling
        finally:
            line.outcome = telling.result
            observer.transaction_ended(name, telling.result)
