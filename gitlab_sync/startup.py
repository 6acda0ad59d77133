"""What a service checks before it takes work: that this database can carry the guarantees.

Refuses with the remedy.

Read-only but for two locking reads that are rolled back. Called once at start, after the migrations.
"""

from __future__ import annotations

import re
from typing import Final

from gitlab_sync.db import Abandon, Database, Session
from gitlab_sync.errors import ConfigError
from gitlab_sync.schema_standing import AppliedMigration, KnownMigration, compare, misfits
from gitlab_sync.store import probes
from gitlab_sync.store.probes import ServerFacts

MYSQL_FLOOR: Final = (8, 0, 16)
MARIADB_FLOOR: Final = (10, 6, 0)


async def check_database(db: Database) -> ServerFacts:
    """Check server and schema.

    Raises ConfigError with one line for each thing that weakens the guarantees.
    """
    facts = await db.read("server_facts", probes.server_facts)
    problems = server_problems(facts)
    if not problems:
        problems = await schema_problems(db)
    if not problems and not await _skip_locked_works(db):
        problems = [
            "the database does not honour SKIP LOCKED; two replicas would share leases: use MySQL or MariaDB"
        ]
    if problems:
        raise ConfigError([f"GITLAB_SYNC_DATABASE_URL: {problem}" for problem in problems])
    return facts


def server_problems(facts: ServerFacts) -> list[str]:
    """What is wrong with the server, each with its remedy. Pure."""
    problems = []
    if "tidb" in facts.version.lower():
        problems.append(
            "TiDB drops the lock of SKIP LOCKED silently; use MySQL 8.0.16 or later, or MariaDB 10.6 or later"
        )
    elif _version(facts.version) < (MARIADB_FLOOR if facts.is_mariadb else MYSQL_FLOOR):
        problems.append(
            f"server {facts.version} is too old; use MySQL 8.0.16 or later, or MariaDB 10.6 or later"
        )
    if "STRICT_TRANS_TABLES" not in facts.sql_mode and "STRICT_ALL_TABLES" not in facts.sql_mode:
        problems.append("sql_mode lacks STRICT_TRANS_TABLES; add it to the server's sql_mode")
    if facts.isolation.replace("-", " ").upper() != "READ COMMITTED":
        problems.append(
            f"the session runs {facts.isolation}; a proxy may be resetting it: let it pass READ COMMITTED"
        )
    if facts.is_read_only:
        problems.append("the server is read-only; point the URL to the writer")
    return problems


async def schema_problems(db: Database) -> list[str]:
    """Why this service cannot work on the schema as it is; none: it fits."""
    if not await db.read("schema", probes.has_migration_table):
        return ["the schema is empty; run `gitlab-sync migrate`"]
    rows = await db.read("schema", probes.applied_migrations)
    known = [KnownMigration(file.file, file.checksum, ()) for file in probes.known_migrations()]
    problems = misfits(compare(known, [AppliedMigration.from_row(row) for row in rows]))
    if not problems and not await db.read("schema", probes.has_slot_key):
        problems = ["merge_batch lacks its UNIQUE key uk_active_slot; restore it, it guards every round"]
    return problems


async def _skip_locked_works(db: Database) -> bool:
    """Two connections: the second must skip what the first has locked."""

    async def outer(session: Session) -> bool:
        file = await probes.lock_first_migration(session)

        async def inner(other: Session) -> bool:
            raise Abandon(await probes.skip_locked_migration(other, file) is None)

        # The one place that uses a second connection inside a transaction: nothing else locks this row.
        raise Abandon(await db.transaction("probe", inner))

    return await db.transaction("probe", outer)


def _version(text: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text.removeprefix("5.5.5-"))
    return tuple(int(part) for part in found.groups()) if found else (0, 0, 0)
