"""Counts what the server did for a stretch of work, statement by statement, from its performance schema.

The one source of "rows examined": the engine cannot know it. Where the server keeps no digests the answer
is empty.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from gitlab_sync.sandbox.database import PrivateServer

_TABLES: Final = (
    "merge_batch_request",
    "merge_batch_member",
    "merge_batch",
    "operation_audit",
    "operation",
    "binding_history",
    "binding",
    "outbox",
)
_FIRST_TABLE: Final = re.compile(rf"`({'|'.join(_TABLES)})`")
_SUM: Final = "GROUP BY"
_READ: Final = """
SELECT digest_text, count_star, sum_rows_examined, sum_rows_affected, sum_rows_sent
FROM performance_schema.events_statements_summary_by_digest
WHERE schema_name = %s AND digest_text IS NOT NULL
ORDER BY first_seen, digest_text
"""


@dataclass(frozen=True, slots=True)
class Digest:
    """One kind of statement: verb and first table, how often, and its rows in all executions together."""

    what: str
    executions: int
    examined: int
    affected: int
    sent: int
    is_sum: bool = False  # it groups: it sends few rows and is for many

    def wanted(self, summed: int) -> int:
        """The rows that the statement was for; a sum is for its groups and for the `summed` rows in them."""
        return max(self.affected, self.sent) + (summed if self.is_sum else 0)


def forget(server: PrivateServer) -> None:
    """Start counting anew."""
    server.address.execute("TRUNCATE TABLE performance_schema.events_statements_summary_by_digest")


def since_forgotten(server: PrivateServer, schema: str) -> list[Digest]:
    """What was done on our tables in `schema`, in order of first execution."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(_READ, (schema,))
        rows = cursor.fetchall()
    found = [(str(text), [int(count) for count in counts]) for text, *counts in rows]
    return [_digest(name, text, *counts) for text, counts in found if (name := _name(text))]


def _digest(name: str, text: str, executions: int, examined: int, affected: int, sent: int) -> Digest:
    return Digest(name, executions, examined, affected, sent, is_sum=_SUM in text)


def _name(digest_text: str) -> str:
    """`UPDATE operation`; empty for a statement on none of our tables (BEGIN, COMMIT)."""
    table = _FIRST_TABLE.search(digest_text)
    return "" if table is None else f"{digest_text.split(maxsplit=1)[0]} {table.group(1)}"
