"""Which of python-gitlab's functional tests say something about the simulator, and which do not.

A file runs whole, because its tests build on one another; what is left out below is run, and not counted.
"""

from __future__ import annotations

FEWEST = 25

FILES = (
    "test_merge_requests.py",
    "test_repository.py",
    "test_branches.py",
    "test_lazy_objects.py",
    "test_projects.py",
    "test_gitlab.py",
    "test_current_user.py",
)
LEFT_OUT: dict[str, set[str]] = {}


def is_usable(file: str, name: str) -> bool:
    """Say whether a test, named with its parameters, is counted."""
    return name.partition("[")[0] not in LEFT_OUT.get(file, set())
