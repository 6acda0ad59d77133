"""The programs that share a schema here: the release before this checkout, the checkout, and the one to come.

The release before is taken out of this repository's own history and run by the same interpreter and the same
installed dependencies, so nothing is fetched and nothing installed. The one to come is this checkout with one
more migration.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

import pytest

from tests.support.installation import Program
from tests.support.readme import ROOT

RECORD: Final = Path(__file__).parent / "previous-release.txt"
PACKAGES: Final = ("gitlab_sync", "hooks", "sql")


def recorded_commit() -> str:
    """The commit of the release before."""
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    (commit,) = (line.strip() for line in lines if line.strip() and not line.startswith("#"))
    return commit


def previous_release(folder: Path) -> Program:
    """Take the release before out of the history.

    Skips the test where the history does not hold it; in CI (variable CI) that is a failure.
    """
    commit = recorded_commit()
    packed = _git("archive", "--format=tar", commit, *PACKAGES)
    if not packed:
        _without(commit)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return Program("the release before", folder)


def next_release(folder: Path, more: Mapping[str, str]) -> Program:
    """Copy this checkout's packages and add migrations: file name to text."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in more.items():
        (folder / "sql/migrations" / name).write_text(text)
    return Program("the release to come", folder)


def _git(*arguments: str) -> bytes:
    try:
        ran = subprocess.run(["git", "-C", f"{ROOT}", *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        return b""
    return ran.stdout if ran.returncode == 0 else b""


def _without(commit: str) -> NoReturn:
    how = (
        f"the history here does not hold {commit}, the release before: `git fetch --unshallow`, "
        f"or `git fetch origin {commit}`"
    )
    if os.environ.get("CI"):
        pytest.fail(how)
    pytest.skip(how)
