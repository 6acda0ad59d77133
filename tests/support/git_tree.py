"""What stands on a simulated project's branch, by git itself: paths with their modes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

LINK: Final = "120000"
SUBMODULE: Final = "160000"
EXECUTABLE: Final = "100755"
PLAIN: Final = "100644"


def tree_of(repositories: Path) -> dict[str, str]:
    """Path and mode of everything on main of the first project."""
    repository = min(repositories.glob("project-*.git"))
    env = {**os.environ, "GIT_DIR": str(repository)}
    told = subprocess.run(["git", "ls-tree", "-r", "-z", "main"], env=env, capture_output=True, check=True)
    rows = [row.split("\t", 1) for row in told.stdout.decode().split("\0") if row]
    return {path: head.split(" ", 1)[0] for head, path in rows}
