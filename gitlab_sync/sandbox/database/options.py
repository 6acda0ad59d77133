"""The command lines of private servers. Pure: values in, lists of options out.

What is not named keeps the server's own default, so that DURABLE means what an operator gets who has followed
`doctor --database`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from gitlab_sync.sandbox.database.flavour import Flavour


class Durability(StrEnum):
    """What an acknowledged commit is worth.

    FAST: it does not survive a kill of the server (up to a second of commits is lost): for tests that never
    crash the server. DURABLE: the server's own defaults, commits survive kill -9: for crash tests,
    measurements, the demo.
    """

    FAST = "fast"
    DURABLE = "durable"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one server lives."""

    data: Path
    socket: Path
    port: int


_OWN: Final = {
    Flavour.MYSQL: ("--mysqlx=OFF",),  # a second port and socket for nothing
    # The one default that an operator has to change, as `doctor --database` says; it is MySQL's own default.
    Flavour.MARIADB: ("--innodb-autoinc-lock-mode=2",),
}
_SMALL: Final = ("--innodb-buffer-pool-size=64M", "--innodb-log-buffer-size=8M", "--table-open-cache=200")
_LAZY_COMMIT: Final = ("--skip-log-bin", "--innodb-flush-log-at-trx-commit=0")
_SMALL_REDO: Final = {
    Flavour.MYSQL: "--innodb-redo-log-capacity=8M",
    Flavour.MARIADB: "--innodb-log-file-size=8M",
}
_FAST: Final = {
    Flavour.MYSQL: (
        *_LAZY_COMMIT,
        *_SMALL,
        _SMALL_REDO[Flavour.MYSQL],
        "--innodb-doublewrite=OFF",
        # A trimmed performance schema: instruments cost memory, data_locks works without them.
        "--performance-schema-instrument=%=OFF",
        "--performance-schema-digests-size=0",
        "--performance-schema-error-size=0",
        "--performance-schema-events-statements-history-long-size=0",
        "--performance-schema-events-stages-history-long-size=0",
        "--performance-schema-events-waits-history-long-size=0",
        "--performance-schema-events-transactions-history-long-size=0",
    ),
    Flavour.MARIADB: (*_LAZY_COMMIT, *_SMALL, _SMALL_REDO[Flavour.MARIADB], "--skip-innodb-doublewrite"),
}


def user_options() -> list[str]:
    """As root a server refuses to start unless it is told so."""
    return ["--user=root"] if os.geteuid() == 0 else []


def start_options(flavour: Flavour, place: Place, durability: Durability) -> list[str]:
    """What a private server is started with.

    `--no-defaults` comes first: the machine's option files are not ours.
    """
    return [
        "--no-defaults",
        *user_options(),
        f"--datadir={place.data}",
        f"--socket={place.socket}",
        f"--pid-file={place.data / 'server.pid'}",
        f"--port={place.port}",
        "--bind-address=127.0.0.1",
        "--skip-name-resolve",  # no look-up leaves the machine
        *_OWN[flavour],
        *(_FAST[flavour] if durability is Durability.FAST else ()),
    ]


def initialise_options(data: Path) -> list[str]:
    """What makes an empty MySQL data folder whose root has no password (reached by the socket only)."""
    small = _SMALL_REDO[Flavour.MYSQL]
    return ["--no-defaults", *user_options(), "--initialize-insecure", f"--datadir={data}", small]
