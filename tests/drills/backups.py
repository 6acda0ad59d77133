"""Databases of private servers for drills, dumped and loaded by client programs as the guide says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from gitlab_sync.sandbox.database import DatabaseAddress, Flavour, find_or_install

DATABASE: Final = "gitlab_sync"
DUMP: Final = (
    "mysqldump --defaults-extra-file=backup.cnf --single-transaction --hex-blob --no-tablespaces"
    " --set-gtid-purged=OFF gitlab_sync > gitlab_sync.sql"
)
CREATE: Final = (
    "mysql --defaults-extra-file=restore.cnf -e 'CREATE DATABASE gitlab_sync CHARACTER SET utf8mb4'"
)
LOAD: Final = "mysql --defaults-extra-file=restore.cnf gitlab_sync < gitlab_sync.sql"


def options_file(folder: Path, name: str, address: DatabaseAddress) -> None:
    """Write down where a server is, for the client programs."""
    lines = (
        "[client]",
        "protocol=tcp",
        f"host={address.host}",
        f"port={address.port}",
        f"user={address.user}",
        f"password={address.password}",
    )
    (folder / name).write_text("\n".join([*lines, ""]))


def clients() -> Path:
    """The folder of MySQL's client programs: they lie beside its server."""
    return find_or_install(Flavour.MYSQL).server.parent


def for_server(flavour: Flavour) -> dict[str, str]:
    """What stands in the line of the dump instead where the server is MariaDB.

    Its own program if there is one; the packages of the private server have none, and MySQL's reads
    MariaDB too once it is told not to ask for statistics.
    """
    if flavour is Flavour.MYSQL:
        return {}
    if shutil.which("mariadb-dump", path=os.environ.get("PATH")):
        return {"mysqldump": "mariadb-dump", " --no-tablespaces --set-gtid-purged=OFF": ""}
    return {"--set-gtid-purged=OFF": "--column-statistics=0"}
