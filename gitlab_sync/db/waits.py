"""Tells a lock that was waited for in vain from other failures, for work that knows what it waited for.

Everybody else lets the error through: the transaction is rolled back and run again.
"""

from __future__ import annotations

from typing import Final

from gitlab_sync.db.session import RetryTransaction

_LOCK_WAIT_TIMEOUT: Final = 1205


def is_lock_wait(error: BaseException) -> bool:
    """Whether the server gave up waiting for somebody's open transaction."""
    return isinstance(error, RetryTransaction) and error.code == _LOCK_WAIT_TIMEOUT
