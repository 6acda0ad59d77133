"""The two server families, and which of their versions we accept. Pure: texts in, values out."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final


class Flavour(StrEnum):
    """Which family a server is of; SQL, options and programs differ between them."""

    MYSQL = "mysql"
    MARIADB = "mariadb"

    @property
    def program(self) -> str:
        """The name of its server program."""
        return "mysqld" if self is Flavour.MYSQL else "mariadbd"

    @property
    def display_name(self) -> str:
        """Its name as its makers write it."""
        return "MySQL" if self is Flavour.MYSQL else "MariaDB"


#: MySQL enforces CHECK constraints from 8.0.16 on; MariaDB is tested from 10.11 on.
MINIMUM: Final = {Flavour.MYSQL: (8, 0, 16), Flavour.MARIADB: (10, 11, 0)}

_NUMBERS: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def flavour_of(version: str) -> Flavour:
    """The family that a version text (of `--version` or of `SELECT VERSION()`) belongs to."""
    return Flavour.MARIADB if "mariadb" in version.lower() else Flavour.MYSQL


def is_recent_enough(version: str) -> bool:
    """True if the version text names a version that we support; False also for a text without a version."""
    numbers = _NUMBERS.search(version)
    if numbers is None:
        return False
    return tuple(int(part) for part in numbers.groups()) >= MINIMUM[flavour_of(version)]
