"""Counts what landed by what a branch's log says: the commit of each batch carries the batch's marker."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

_TRAILER: Final = re.compile(r"^GitLab-Sync-Batch: (\S+)$", re.MULTILINE)


def landings_in(log: Sequence[dict[str, Any]]) -> Counter[str]:
    """How often the commit of each batch, by its marker, is there."""
    return Counter(marker for one in log for marker in _TRAILER.findall(one["message"]))
