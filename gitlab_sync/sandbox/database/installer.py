"""Runs `install-mysql.sh`, which unpacks a real server into the cache folder without touching the system.

The script is a file of the wheel. It locks its target itself, so any number of processes may ask at once. The
packages it downloads stay in the target's `debs/`: a broken or outdated target is rebuilt without the
network.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path

from gitlab_sync.sandbox.database.cache import cache_folder, substitute_folder, writable
from gitlab_sync.sandbox.database.failure import PrivateDatabaseError
from gitlab_sync.sandbox.database.flavour import Flavour

_SCRIPT = "install-mysql.sh"
_NEEDED = ("bash", "apt-get", "dpkg", "dpkg-deb", "flock", "tar", "sha256sum")
_LINES_SHOWN = 15


class InstallFailed(PrivateDatabaseError):
    """The installer cannot run here, or gave up; the text says why."""


def install(flavour: Flavour, environ: Mapping[str, str]) -> Path:
    """Return the server program from the cache, unpacking it first if needed; InstallFailed says why not."""
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        raise InstallFailed(f"the installer needs a Debian-family machine (missing: {', '.join(missing)})")
    option = ["--mariadb"] if flavour is Flavour.MARIADB else []
    with as_file(files("gitlab_sync.sandbox.database") / _SCRIPT) as script:
        return _run(["bash", str(script), *option, str(_target(flavour, environ))], environ)


def _target(flavour: Flavour, environ: Mapping[str, str]) -> Path:
    """Where this machine's kind of server goes: several machines may share one home folder."""
    name = f"{flavour}-{_release()}-{platform.machine()}"
    target = cache_folder(environ) / "servers" / name
    if (target / ".complete").exists() or writable(target):
        return target
    return substitute_folder() / "servers" / name


def _release() -> str:
    try:
        return platform.freedesktop_os_release().get("VERSION_CODENAME", "unknown")
    except OSError:
        return "unknown"


def _run(command: list[str], environ: Mapping[str, str]) -> Path:
    """Run the script, showing its own progress lines while it works and keeping the rest for a failure."""
    last: deque[str] = deque(maxlen=_LINES_SHOWN)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=dict(environ),
    ) as process:
        assert process.stderr is not None  # noqa: S101 - for mypy: asked for above
        assert process.stdout is not None  # noqa: S101
        for line in process.stderr:
            last.append(line.rstrip())
            if line.startswith("install-mysql: ") and "already there" not in line:
                sys.stderr.write(line)
        answer = process.stdout.read().strip()
    if process.returncode != 0 or not answer:
        raise InstallFailed(
            f"the installer failed ({command[-1]}); its last lines:\n      " + "\n      ".join(last)
        )
    return Path(answer)
