"""Which servers are refused, and what the operator is told to do about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gitlab_sync.startup import server_problems
from gitlab_sync.store.probes import ServerFacts

GOOD = ServerFacts(
    version="9.7.0",
    is_mariadb=False,
    sql_mode="ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_DATE",
    isolation="READ-COMMITTED",
    is_read_only=False,
    is_durable=True,
)
MARIADB = replace(GOOD, version="11.8.3-MariaDB-0+deb13u1", is_mariadb=True)


@pytest.mark.parametrize(
    "facts",
    [
        GOOD,
        MARIADB,
        replace(GOOD, version="8.0.16"),
        replace(GOOD, version="8.0.36-28.1"),
        replace(GOOD, version="10.0.0-cluster"),
        replace(MARIADB, version="10.6.0-MariaDB"),
        replace(MARIADB, version="5.5.5-10.11.6-MariaDB-log"),
        replace(GOOD, isolation="READ COMMITTED"),
        replace(GOOD, isolation="read-committed"),
        replace(GOOD, sql_mode="STRICT_ALL_TABLES"),
        replace(GOOD, is_durable=False),
    ],
    ids=lambda facts: f"{facts.version} {facts.isolation}",
)
def test_a_server_that_can_carry_the_guarantees_is_taken(facts: ServerFacts) -> None:
    """Whatever a distribution adds to the version's text."""
    assert server_problems(facts) == []


@pytest.mark.parametrize(
    ("changes", "said", "remedy"),
    [
        ({"version": "8.0.15"}, "8.0.15 is too old", "use MySQL 8.0.16"),
        ({"version": "5.7.44-log"}, "too old", "use MySQL 8.0.16"),
        ({"version": "10.5.9-MariaDB", "is_mariadb": True}, "too old", "MariaDB 10.6"),
        ({"version": "5.5.5-10.4.2-MariaDB", "is_mariadb": True}, "too old", "MariaDB 10.6"),
        ({"version": ""}, "too old", "use MySQL"),
        ({"version": "unknown"}, "too old", "use MySQL"),
        ({"version": "8.0.11-TiDB-v7.5.0"}, "TiDB", "use MySQL"),
        ({"version": "8.0.36-tidb-serverless"}, "TiDB", "use MySQL"),
        ({"sql_mode": ""}, "STRICT_TRANS_TABLES", "add it"),
        ({"sql_mode": "NO_ZERO_DATE"}, "STRICT_TRANS_TABLES", "add it"),
        ({"isolation": "REPEATABLE-READ"}, "REPEATABLE-READ", "let it pass READ COMMITTED"),
        ({"isolation": ""}, "the session runs", "let it pass READ COMMITTED"),
        ({"is_read_only": True}, "read-only", "point the URL to the writer"),
    ],
    ids=str,
)
def test_a_server_that_cannot_is_refused_with_the_remedy(
    changes: dict[str, Any], said: str, remedy: str
) -> None:
    """One weakness, one sentence."""
    [problem] = server_problems(replace(GOOD, **changes))
    assert said in problem
    assert remedy in problem


def test_every_weakness_is_told_at_once() -> None:
    """An operator restarts once and not four times."""
    worst = replace(GOOD, version="5.6.1", sql_mode="", isolation="SERIALIZABLE", is_read_only=True)
    assert len(server_problems(worst)) == 4
