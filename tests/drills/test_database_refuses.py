"""RECOVERY.md where the database refuses writes: told truly, found by doctor, and over without a restart."""

from __future__ import annotations

from gitlab_sync.sandbox.database import DatabaseAddress
from gitlab_sync.setting_values import parse_database_url
from tests.support.guide import drilled
from tests.support.installation import Installation, request
from tests.support.servers import RunningServer


def test_the_database_fails_over_or_refuses_writes(house: Installation, server: RunningServer) -> None:
    """Read-only for the service's user: 503 with Retry-After, nothing kept; then all goes on."""
    name = parse_database_url(house.admin_url).name
    user = "'gs_drill_ro'@'127.0.0.1'"
    server.address.execute(
        f"CREATE USER {user} IDENTIFIED BY 'a-password'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX ON `{name}`.* TO {user}",
    )
    address = DatabaseAddress("127.0.0.1", server.tcp_address.port, "gs_drill_ro", "a-password")
    house.set(DATABASE_URL=address.dsn(name))
    house.restart_all()
    try:
        with drilled("RECOVERY.md", "The database fails over or refuses writes", house) as drill:
            server.address.execute("SET GLOBAL read_only = 1")
            refused = house.post(request(1), "key-1")
            assert (refused.status_code, int(refused.headers["Retry-After"]) >= 1) == (503, True)
            told = drill.run("gitlab-sync doctor", exit_code=1)
            drill.sees(told.out, "problem: database, server or schema: … the server is read-only")
            assert house.replicas[0].ready() == 200  # it can still answer who asks
            server.address.execute("SET GLOBAL read_only = 0")
            house.submit(1)
            house.until_landed()
            assert house.rows("SELECT COUNT(*) FROM operation") == [(1,)]
    finally:
        server.address.execute("SET GLOBAL read_only = 0", f"DROP USER {user}")
