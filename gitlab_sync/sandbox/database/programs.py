"""Finds the programs of a server: on PATH, else unpacked by the installer.

Reads the environment (PATH, XDG_CACHE_HOME, HOME) because the sandbox starts before there are any settings;
the service never comes here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gitlab_sync.sandbox.database.failure import NoServerFound
from gitlab_sync.sandbox.database.flavour import MINIMUM, Flavour, flavour_of, is_recent_enough
from gitlab_sync.sandbox.database.installer import InstallFailed, install

# Debian keeps server programs where only root's PATH looks.
_SERVER_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/usr/local/libexec", "/usr/libexec")


@dataclass(frozen=True, slots=True)
class ServerPrograms:
    """What makes and runs a server; `initialiser` makes the data folder of MariaDB (MySQL does it itself)."""

    flavour: Flavour
    server: Path
    version: str
    initialiser: Path | None = None


def find_or_install(flavour: Flavour, environ: Mapping[str, str] | None = None) -> ServerPrograms:
    """Return programs of `flavour`, from PATH or the installer; NoServerFound says what would help."""
    environ = os.environ if environ is None else environ
    obstacles: list[str] = []
    found = find_on_path(flavour, environ, obstacles)
    if found is not None:
        return found
    try:
        return _programs(flavour, install(flavour, environ))
    except InstallFailed as failure:
        obstacles.append(str(failure))
        raise NoServerFound(flavour.display_name, obstacles) from failure


def find_on_path(
    flavour: Flavour, environ: Mapping[str, str], obstacles: list[str] | None = None
) -> ServerPrograms | None:
    """Return programs of `flavour` that the machine has; None: none that we can use, `obstacles` says why."""
    said = [] if obstacles is None else obstacles
    # Where MariaDB is installed, `mysqld` is often a link to it: the version text decides, not the name.
    for name in (flavour.program, "mysqld"):
        server = _which(name, environ)
        version = _version_of(server) if server else ""
        if server is None or not version or flavour_of(version) is not flavour:
            continue
        if not is_recent_enough(version):
            said.append(
                f"{server} is too old ({version}); {'.'.join(map(str, MINIMUM[flavour]))} or later is needed"
            )
            continue
        programs = _programs(flavour, server, environ)
        if flavour is Flavour.MYSQL or programs.initialiser is not None:
            return programs
        said.append(f"{server} has no mariadb-install-db beside it")
    if not said:
        said.append(f"no {flavour.program} on PATH")
    return None


def _programs(flavour: Flavour, server: Path, environ: Mapping[str, str] | None = None) -> ServerPrograms:
    initialiser: Path | None = None
    if flavour is Flavour.MARIADB:
        beside = server.parent / "mariadb-bootstrap"
        initialiser = beside if beside.exists() else _which("mariadb-install-db", environ or {})
    return ServerPrograms(flavour, server, _version_of(server), initialiser)


def _which(name: str, environ: Mapping[str, str]) -> Path | None:
    folders = os.pathsep.join([environ.get("PATH", os.defpath), *_SERVER_FOLDERS])
    found = shutil.which(name, path=folders)
    return Path(found) if found else None


def _version_of(server: Path) -> str:
    """The server's own words about its version; empty if it does not run."""
    try:
        answer = subprocess.run(
            [server, "--no-defaults", "--version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
