"""What can go wrong with a private server, told to a person: every message ends with what to do."""

from __future__ import annotations


class PrivateDatabaseError(RuntimeError):
    """No database server can be offered; the message is for the person at the terminal."""


class NoServerFound(PrivateDatabaseError):
    """None of the ways to a server works on this machine."""

    def __init__(self, flavours: str, obstacles: list[str]) -> None:
        found = "".join(f"\n    - {obstacle}" for obstacle in obstacles)
        super().__init__(
            f"no {flavours} server to work with:{found}\n"
            "  Any one of these mends it:\n"
            "    1. set GITLAB_SYNC_DATABASE_URL=mysql://user:password@host:3306/name to a server that\n"
            "       you have (the user must be allowed to create databases);\n"
            "    2. install a server so that mysqld or mariadbd is on PATH: it is started privately, on a\n"
            "       temporary folder (Debian: apt-get install mariadb-server);\n"
            "    3. on a Debian-family machine, let the installer fetch one: it needs apt-get, a reachable\n"
            "       mirror and a writable cache folder. DEBIAN_MIRROR names another mirror, MYSQL_DEBS a\n"
            "       folder of packages saved from an earlier run."
        )


class ServerDied(PrivateDatabaseError):
    """The server ended, or was not ready in time, while it was being started; carries the end of its log."""

    def __init__(self, what: str, log: str) -> None:
        super().__init__(f"{what}; the end of its log:\n{log}")
        self.log = log
