"""Gets python-gitlab's own tests: they ship in its source distribution only, and nothing of it is kept here.

pip fetches the archive with whatever index it is configured for; it is kept in the user's cache folder. Only
the folder `tests` is unpacked, so that the library under test stays the installed one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

from gitlab_sync.sandbox.database.cache import cache_folder, exclusive, substitute_folder, writable

VERSION = "8.6.0"
_ARCHIVE = f"python_gitlab-{VERSION}.tar.gz"
_LIMIT_S = 120.0


class SdistMissing(Exception):
    """The archive is neither in the cache nor to be had; the text says why."""


def unpack_tests(into: Path) -> None:
    """Put python-gitlab's folder `tests` into a folder; raises SdistMissing."""
    archive = _archive()
    with tarfile.open(archive) as file:
        top = f"python_gitlab-{VERSION}/"
        members = [member for member in file.getmembers() if member.name.startswith(f"{top}tests/")]
        for member in members:
            member.name = member.name.removeprefix(top)
        file.extractall(into, members, filter="data")


def _archive() -> Path:
    base = cache_folder(os.environ)
    folder = (base if writable(base) else substitute_folder()) / "sdists"
    folder.mkdir(exist_ok=True)
    archive = folder / _ARCHIVE
    with exclusive(folder / ".lock"):
        if not archive.exists():
            _fetch(folder)
    return archive


def _fetch(folder: Path) -> None:
    """Let pip place the archive; it appears by rename, so a broken fetch leaves nothing behind."""
    wanted = [f"python-gitlab=={VERSION}", "--no-deps", "--no-binary", "python-gitlab"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", *wanted, "--dest", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise SdistMissing(f"pip did not fetch {_ARCHIVE} within {_LIMIT_S:.0f} s") from None
    if done.returncode != 0 or not (folder / _ARCHIVE).exists():
        said = done.stderr.strip().splitlines()
        raise SdistMissing(f"pip could not fetch {_ARCHIVE}: {said[-1] if said else 'no reason given'}")
