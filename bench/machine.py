"""Says what a figure was measured on: machine, versions, the server's settings, the date.

Reads, decides nothing.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from gitlab_sync.sandbox.database import PrivateServer

_PACKAGES: Final = ("aiomysql", "PyMySQL", "starlette", "uvicorn")
_VARIABLES: Final = (
    "version",
    "log_bin",
    "sync_binlog",
    "binlog_format",
    "innodb_flush_log_at_trx_commit",
    "innodb_doublewrite",
    "innodb_buffer_pool_size",
    "performance_schema",
)


def circumstances(server: PrivateServer, seed: int) -> dict[str, Any]:
    """Everything that a reader needs to judge a figure."""
    load_1min, _, _ = os.getloadavg()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_mb": _memory_mb(),
        "load_1min_at_start": round(load_1min, 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "server": server.flavour.display_name,
        "server_settings": _variables(server),
        "seed": seed,
    }


def lines(facts: Mapping[str, Any]) -> list[str]:
    """The circumstances as they stand below each table."""
    settings = ", ".join(f"{name}={value}" for name, value in facts["server_settings"].items())
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    machine = f"{facts['processor']}, {facts['cores']} cores, {facts['memory_mb']} MB, {facts['system']}"
    return [
        f"on: {machine}, load {facts['load_1min_at_start']} at start",
        f"by: Python {facts['python']}, {packages}",
        f"server: private {facts['server']} on loopback (unix socket), its own defaults: {settings}",
        f"seed {facts['seed']}, {facts['date']}; load and service share the machine",
    ]


def _processor() -> str:
    """The processor's name, where the kernel tells."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory_mb() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20


def _variables(server: PrivateServer) -> dict[str, str]:
    wanted = ", ".join(f"'{name}'" for name in _VARIABLES)
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({wanted})")
        found = {str(name): str(value) for name, value in cursor.fetchall()}
    return {name: found[name] for name in _VARIABLES if name in found}
