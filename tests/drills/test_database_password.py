"""RECOVERY.md where the database's password is exchanged, by each server's own way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from gitlab_sync.sandbox.database import DatabaseAddress, Flavour
from gitlab_sync.setting_values import parse_database_url
from tests.support.guide import drilled
from tests.support.installation import Installation
from tests.support.servers import RunningServer

USER: Final = "'gitlab_sync'@'%'"
MYSQLS_WAY: Final = (
    f"ALTER USER {USER} IDENTIFIED BY 'new-password' RETAIN CURRENT PASSWORD;",
    f"ALTER USER {USER} DISCARD OLD PASSWORD;",
)
MARIADBS_WAY: Final = (
    "CREATE USER 'gitlab_sync_2'@'%' IDENTIFIED BY 'new-password';",
    "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX ON gitlab_sync.* TO 'gitlab_sync_2'@'%';",
    f"DROP USER {USER};",
)


@pytest.fixture
def service_user(house: Installation, server: RunningServer) -> Iterator[DatabaseAddress]:
    """The service's database user of the README, and its address."""
    name = parse_database_url(house.admin_url).name
    drop = "DROP USER IF EXISTS 'gs_drill'@'%', 'gs_drill_2'@'%'"
    server.address.execute(
        drop,
        "CREATE USER 'gs_drill'@'%' IDENTIFIED BY 'old-password'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX ON `{name}`.* TO 'gs_drill'@'%'",
    )
    yield DatabaseAddress("127.0.0.1", server.tcp_address.port, "gs_drill", "old-password")
    server.address.execute(drop)


def test_exchange_the_database_password(
    house: Installation, service_user: DatabaseAddress, flavour: Flavour
) -> None:
    """Restarted one after the other while requests come in; then the old password is of no use."""
    name = parse_database_url(house.admin_url).name
    ours = {"gitlab_sync_2": "gs_drill_2", "gitlab_sync'@": "gs_drill'@", "gitlab_sync.*": f"`{name}`.*"}
    with drilled("RECOVERY.md", "Exchange the database password", house) as drill:
        house.set(DATABASE_URL=service_user.dsn(name))
        house.start("two")
        house.restart_all()
        *before, last = MYSQLS_WAY if flavour is Flavour.MYSQL else MARIADBS_WAY
        drill.leave(*(MARIADBS_WAY if flavour is Flavour.MYSQL else MYSQLS_WAY))
        for statement in before:
            drill.sql(statement, instead=ours)
        house.submit(1)
        user = "gs_drill" if flavour is Flavour.MYSQL else "gs_drill_2"
        port = service_user.port
        house.set(DATABASE_URL=DatabaseAddress("127.0.0.1", port, user, "new-password").dsn(name))
        house.restart("one")
        house.submit(2)
        house.restart("two")
        drill.sql(last, instead=ours)
        house.set(DATABASE_URL=service_user.dsn(name))
        assert house.cli("doctor", "--invariants").exit_code == 1
        house.set(DATABASE_URL=DatabaseAddress("127.0.0.1", port, user, "new-password").dsn(name))
        drill.run("gitlab-sync doctor")
        house.submit(3)
        house.until_landed()
