"""Finds Prometheus' programs on PATH, or says what to do. Starts nothing and installs nothing."""

from __future__ import annotations

import os
import shutil
from typing import Final

import pytest

#: Debian has another name for it, and a package for each of the two with its tool.
_OTHER_NAMES: Final = {"alertmanager": "prometheus-alertmanager"}
_REMEDY: Final = (
    "is missing. Debian: apt-get install prometheus prometheus-alertmanager (which starts a daemon of each; "
    ".ci/run installs them without), or put any release of it on PATH"
)


def program(name: str) -> str:
    """The path of `prometheus`, `alertmanager` or a tool of theirs.

    Where it is missing the test is skipped, and with CI set it fails; both say what helps.
    """
    found = shutil.which(name) or shutil.which(_OTHER_NAMES.get(name, name))
    if found is not None:
        return found
    if os.environ.get("CI"):
        pytest.fail(f"{name} {_REMEDY}")
    pytest.skip(f"{name} {_REMEDY}")
