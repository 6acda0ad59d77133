"""The folder that outlives a checkout: unpacked servers, their packages, template data folders.

Races considered:
A  two processes fill the same entry: `exclusive` lets one in at a time, the second finds it filled.
B  the process that fills an entry dies: entries appear by rename, so a half-made one is never seen as made.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def cache_folder(environ: Mapping[str, str]) -> Path:
    """The user's cache folder for us; what is in it may be read-only."""
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the convention: a relative value is ignored
        home = environ.get("HOME", "")
        base = (Path(home) if home else Path.home()) / ".cache"
    return base / "gitlab-sync"


def substitute_folder() -> Path:
    """A folder of this user's own among the temporary files, for when the cache cannot be written."""
    folder = Path(tempfile.gettempdir()) / f"gitlab-sync-cache-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    # Somebody else may have made it first, to make us run their programs.
    if status.st_uid != os.geteuid() or folder.is_symlink() or status.st_mode & 0o022:
        return Path(tempfile.mkdtemp(prefix="gitlab-sync-cache-"))
    return folder


def writable(folder: Path) -> bool:
    """True if `folder` exists (or can be made) and takes new files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold the lock file `lock`, alone among all processes; the kernel frees it when the holder dies."""
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
