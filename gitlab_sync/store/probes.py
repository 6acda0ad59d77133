"""Statements that look at the server and the schema before and while a service runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gitlab_sync.db import Row, Session
from sql import Migration, migrations, statement


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server and the session as they describe themselves."""

    version: str
    is_mariadb: bool
    sql_mode: str
    isolation: str
    is_read_only: bool
    is_durable: bool


async def server_facts(session: Session) -> ServerFacts:
    rows = await session.rows(statement("probe_server_facts"))
    variables: dict[str, str] = {str(row["Variable_name"]).lower(): str(row["Value"]) for row in rows}
    version = variables.get("version", "")
    return ServerFacts(
        version=version,
        is_mariadb="mariadb" in (version + variables.get("version_comment", "")).lower(),
        sql_mode=variables.get("sql_mode", ""),
        isolation=variables.get("transaction_isolation") or variables.get("tx_isolation", ""),
        is_read_only=any(
            _is_on(variables, name) for name in ("read_only", "super_read_only", "innodb_read_only")
        ),
        is_durable=variables.get("innodb_flush_log_at_trx_commit") == "1"
        and (not _is_on(variables, "log_bin") or variables.get("sync_binlog") == "1"),
    )


def _is_on(variables: dict[str, str], name: str) -> bool:
    return variables.get(name, "OFF").upper() in ("ON", "1")


async def has_migration_table(session: Session) -> bool:
    return await session.row(statement("schema_migration_table_exists")) is not None


async def applied_migrations(session: Session) -> Sequence[Row]:
    return await session.rows(statement("schema_migration_list"))


def known_migrations() -> list[Migration]:
    """The migrations that this release carries."""
    return list(migrations())


async def has_slot_key(session: Session) -> bool:
    return await session.row(statement("probe_slot_key")) is not None


async def lock_first_migration(session: Session) -> Any:
    """The name of the row that is locked now."""
    row = await session.row(statement("probe_lock_first_migration"))
    return None if row is None else row["file"]


async def skip_locked_migration(session: Session, file: Any) -> Any:
    """The row, or None if it was skipped because another session has it locked."""
    return await session.row(statement("probe_skip_locked"), {"file": file})


async def is_alive(session: Session) -> bool:
    """Whether the database answers; raises the database's errors otherwise."""
    return await session.row(statement("probe_alive")) is not None
