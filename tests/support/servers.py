"""The database servers of one test process: started on first use, one of each flavour, shared by its tests.

One pair of servers for each xdist worker: a worker that sets a global variable or fills the disk of its
server cannot disturb the other, and starting costs about a second once the template data folder is cached.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from gitlab_sync.sandbox.database import DatabaseAddress, Flavour, PrivateServer, find_or_install
from gitlab_sync.sandbox.database.choice import named_server
from tests.support.schemas import SchemaPool


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that tests share. Whoever changes a global variable of it puts it back."""

    flavour: Flavour
    version: str
    address: DatabaseAddress
    tcp_address: DatabaseAddress
    schemas: SchemaPool


class Servers:
    """Hands out the running server of a flavour, starting it if it is not there; a context manager."""

    def __init__(self) -> None:
        self._running: dict[Flavour, RunningServer] = {}
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def get(self, flavour: Flavour) -> RunningServer:
        """The one server of this flavour in this process."""
        if flavour not in self._running:
            self._running[flavour] = self._named(flavour) or self._private(flavour)
        return self._running[flavour]

    def versions(self) -> dict[str, str]:
        """What was covered: flavour to the answer of SELECT VERSION()."""
        return {flavour.value: running.version for flavour, running in self._running.items()}

    def _named(self, flavour: Flavour) -> RunningServer | None:
        """The server that the environment names, if it is of this flavour."""
        address = named_server(os.environ)
        if address is None or address.flavour() is not flavour:
            return None
        schemas = self._closing.enter_context(SchemaPool(address))
        return RunningServer(flavour, address.version(), address, address, schemas)

    def _private(self, flavour: Flavour) -> RunningServer:
        server = self._closing.enter_context(PrivateServer(find_or_install(flavour)))
        schemas = self._closing.enter_context(SchemaPool(server.address))
        return RunningServer(flavour, server.version, server.address, server.tcp_address, schemas)
