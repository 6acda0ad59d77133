"""Offers one running server for the demo, in the promised order of choice.

A server named by GITLAB_SYNC_DATABASE_URL is used as it is and never stopped; every other one is started
privately and gone at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pymysql

from gitlab_sync.sandbox.database.address import DatabaseAddress
from gitlab_sync.sandbox.database.failure import PrivateDatabaseError
from gitlab_sync.sandbox.database.flavour import Flavour
from gitlab_sync.sandbox.database.options import Durability
from gitlab_sync.sandbox.database.programs import ServerPrograms, find_on_path, find_or_install
from gitlab_sync.sandbox.database.server import PrivateServer

_VARIABLE = "GITLAB_SYNC_DATABASE_URL"


@contextmanager
def open_server(
    environ: Mapping[str, str] | None = None, durability: Durability = Durability.DURABLE
) -> Iterator[DatabaseAddress]:
    """Give the address of a running server; its user may create databases.

    PrivateDatabaseError says what is missing and what to do about it.
    """
    environ = os.environ if environ is None else environ
    named = named_server(environ)
    if named is not None:
        yield named
        return
    with PrivateServer(_any_programs(environ), durability=durability) as server:
        yield server.address


def named_server(environ: Mapping[str, str]) -> DatabaseAddress | None:
    """The server that the environment names, if it answers; None: none is named."""
    url = environ.get(_VARIABLE, "")
    if not url:
        return None
    address = DatabaseAddress.from_url(url)
    try:
        address.version()
    except (pymysql.MySQLError, OSError) as problem:
        message = (
            f"the server that {_VARIABLE} names does not answer ({problem}); start it, or unset the variable"
        )
        raise PrivateDatabaseError(message) from problem
    return address


def _any_programs(environ: Mapping[str, str]) -> ServerPrograms:
    """MySQL from PATH, else MariaDB from PATH, else MySQL from the installer."""
    for flavour in (Flavour.MYSQL, Flavour.MARIADB):
        found = find_on_path(flavour, environ)
        if found is not None:
            return found
    return find_or_install(Flavour.MYSQL, environ)
