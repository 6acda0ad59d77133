"""What blocks a batch is told of in both READMEs: a reason without a remedy helps nobody at night."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gitlab_sync.verdict import BlockReason

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_every_reason_of_a_block_has_its_remedy(name: str) -> None:
    """One row for each, none for a reason that is gone."""
    text = (ROOT / name).read_text(encoding="utf-8")
    table = re.search(r"\| `foreign_push` \|.*?\n\n", text, re.DOTALL)
    assert table is not None
    told = re.findall(r"^\| `(\w+)` \|", table.group(), re.MULTILINE)
    assert sorted(told) == sorted(BlockReason)
