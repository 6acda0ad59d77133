"""A database server of our own for demo and tests: found or fetched, started in seconds, gone without trace.

`open_server()` is the demo's door (order of choice: GITLAB_SYNC_DATABASE_URL, a server program on PATH, MySQL
unpacked privately). `find_or_install(flavour)` with `PrivateServer` is the tests' door, who also crash,
freeze and restart it. Everything here is synchronous: call it before an event loop runs, or from a thread.
"""

from gitlab_sync.sandbox.database.address import DatabaseAddress
from gitlab_sync.sandbox.database.choice import open_server
from gitlab_sync.sandbox.database.failure import NoServerFound, PrivateDatabaseError, ServerDied
from gitlab_sync.sandbox.database.flavour import Flavour
from gitlab_sync.sandbox.database.options import Durability
from gitlab_sync.sandbox.database.programs import ServerPrograms, find_on_path, find_or_install
from gitlab_sync.sandbox.database.server import Ending, PrivateServer

__all__ = [
    "DatabaseAddress",
    "Durability",
    "Ending",
    "Flavour",
    "NoServerFound",
    "PrivateDatabaseError",
    "PrivateServer",
    "ServerDied",
    "ServerPrograms",
    "find_on_path",
    "find_or_install",
    "open_server",
]
