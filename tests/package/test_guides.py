"""The guides say what is true: commands, options, settings and links exist, both READMEs lead to them.

What they tell to do is done by tests/drills and tests/upgrade.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

import pytest

from gitlab_sync.settings import Need, load_settings
from tests.support.command_lines import check_command
from tests.support.guide import GUIDES
from tests.support.readme import ROOT, read_document

READMES: Final = ("README.md", "README.zh-CN.md")
_SETTING: Final = re.compile(r"\bGITLAB_SYNC_[A-Z][A-Z_]*[A-Z]\b")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors_of(name: str) -> set[str]:
    """The anchors that a page of this document offers: its headings in lower case, blanks as hyphens."""
    headings = _HEADING.findall(read_document(name).prose)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def leads_nowhere(name: str, link: str) -> bool:
    """Whether a link of a document leads to no file below the root, or to no heading of one."""
    path, _, anchor = link.partition("#")
    target = (ROOT / PurePosixPath(name).parent / path).resolve() if path else ROOT / name
    if not target.is_relative_to(ROOT) or not target.exists():
        return True
    return bool(anchor) and anchor not in anchors_of(f"{target.relative_to(ROOT)}")


@pytest.mark.parametrize("name", GUIDES)
def test_every_command_that_is_written_out_exists(name: str) -> None:
    """Who is woken at night copies lines."""
    for text in read_document(name).commands:
        check_command(text)


@pytest.mark.parametrize("name", GUIDES)
def test_every_setting_that_is_named_exists(name: str) -> None:
    """An unknown one stops the service at its next start."""
    known = {row.variable for row in load_settings({"GITLAB_SYNC_DATABASE_URL": _URL}, need=_LEAST).rows}
    told = set(_SETTING.findall((ROOT / name).read_text(encoding="utf-8")))
    assert told - known - {f"{one}_FILE" for one in known} == set()


_URL: Final = "mysql://user@db.example/name"
_LEAST: Final = Need.DATABASE_ONLY


@pytest.mark.parametrize("name", [*GUIDES, *READMES])
def test_every_link_leads_somewhere(name: str) -> None:
    """To a file, and to a heading in it."""
    links = [link for link in read_document(name).links if not link.startswith(("https://", "http://"))]
    assert [link for link in links if leads_nowhere(name, link)] == []


@pytest.mark.parametrize("readme", READMES)
def test_both_readmes_lead_to_every_guide(readme: str) -> None:
    """What nobody finds is not there."""
    assert set(GUIDES) - set(read_document(readme).links) == set()
