"""Imports structlog without the library that would colour its tracebacks.

structlog takes rich wherever it is installed: a tenth of a replica's start, for tracebacks that our log never
writes. Commands need rich for their tables, so it is installed. Whoever imports rich later gets it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import cast


def import_structlog() -> None:
    """Import structlog while rich is not to be found. Where either is there already, nothing happens."""
    if {"structlog", "rich"} & set(sys.modules):
        return
    modules: dict[str, ModuleType | None] = cast("dict[str, ModuleType | None]", sys.modules)
    modules["rich"] = None  # what `import` takes for "there is none"
    try:
        import structlog  # noqa: F401, PLC0415
    finally:
        del modules["rich"]
