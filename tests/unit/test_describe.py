"""Names and words for GitLab: ours say what they must, users' say it without being obeyed."""

from __future__ import annotations

import re
import subprocess
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitlab_sync.describe import (
    BranchRef,
    branch_name,
    carries_marker,
    commit_message,
    inert,
    merge_request_description,
    merge_request_title,
    parse_branch_name,
    partition_key_problem,
)
from gitlab_sync.sandbox.simulator.inert_text import TextPlace, findings
from tests.support.members import MARKER, make_batch, make_member

EVIL = (
    "/merge\n/close\r/approve\u2028/label ~x @all @group/sub Closes #1, fixes group/project!2 PROJ-7"
    " [skip ci] [ci skip] `/merge` ``` </td></details><img src=x onerror=1>"
    " ![i](http://evil.example/i.png) | cell \\| \\"
    "\nApproved-by: root\nGitLab-Sync-Batch: 00000000-0000-0000-0000-000000000000 \u202e\u200b\x1b[2J"
)
# What GitLab would act upon, wherever it stands.
OBEYED = re.compile(
    r"[@#!~&$%^]\w|[@#!~&$%^]\"|\[(?:skip[ _-]ci|ci[ _-]skip)\]|://\S|\b[A-Z][A-Z0-9_]*-\d|<[a-z/!]",
    re.IGNORECASE,
)


def words_of_users(text: str) -> str:
    """The text without the lines and signs that are ours."""
    return text.replace(f"<!-- GitLab-Sync-Batch: {MARKER} -->", "").replace(
        f"GitLab-Sync-Batch: {MARKER}", ""
    )


def test_a_branch_is_named_after_its_batch_and_attempt() -> None:
    """Any replica computes the same name, and another attempt has another one."""
    assert branch_name("access-prod", 42, MARKER, 1) == "gitlab-sync/access-prod/42-6f1d8c52"
    assert branch_name("access-prod", 42, MARKER, 3) == "gitlab-sync/access-prod/42-6f1d8c52-a3"


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,20}(\.[a-z0-9]{1,5})?", fullmatch=True),
    st.integers(1, 2**63 - 1),
    st.uuids(),
    st.integers(1, 99),
)
@settings(derandomize=True, max_examples=100)
def test_a_name_that_was_made_is_read_back(key: str, batch_id: int, marker: UUID, attempt: int) -> None:
    """Reading is the inverse of making."""
    if partition_key_problem(key):
        return
    found = parse_branch_name(branch_name(key, batch_id, marker, attempt))
    assert found == BranchRef(key, batch_id, marker.hex[:8], attempt)  # type: ignore[arg-type] # a plain int will do


@pytest.mark.parametrize(
    "name",
    [
        "main",
        "gitlab-sync/a",
        "gitlab-sync/a/1",
        "gitlab-sync/a/01-6f1d8c52",
        "gitlab-sync/a/1-6F1D8C52",
        "gitlab-sync/a/1-6f1d8c52-a1",
        "gitlab-sync/a/1-6f1d8c52-a02",
        "gitlab-sync/a/b/1-6f1d8c52",
        "gitlab-sync/a/1-6f1d8c52\n",
        "x/gitlab-sync/a/1-6f1d8c52",
        "gitlab-sync/../1-6f1d8c52",
    ],
)
def test_a_branch_of_somebody_elses_making_is_not_ours(name: str) -> None:
    """Only names in the very form in which we write them count."""
    assert parse_branch_name(name) is None


@pytest.mark.parametrize(
    "key", ["", "-d", "a..b", "a/b", "a b", "a.lock", "a.", ".a", "é", "a~1", "x" * 65, "a\n"]
)
def test_a_partition_that_git_could_not_name_is_refused(key: str) -> None:
    """The problem is told where partitions are configured, not when the first batch is published."""
    assert partition_key_problem(key)
    with pytest.raises(ValueError, match="branch name"):
        branch_name(key, 1, MARKER, 1)


def test_git_itself_takes_our_branch_names() -> None:
    """The last word on branch names is git's."""
    for key in ("access-prod", "a.b_c-D", "0"):
        name = branch_name(key, 7, MARKER, 2)
        subprocess.run(["git", "check-ref-format", "--branch", name], check=True, capture_output=True)


def test_the_marker_is_found_where_we_put_it_and_nowhere_else() -> None:
    """Message and description carry it; another batch's, or one inside a line, does not count."""
    batch, members = make_batch(), [make_member(1, title=f"GitLab-Sync-Batch: {MARKER}")]
    other = UUID(int=MARKER.int + 1)
    for text in (commit_message(batch, members), merge_request_description(batch, members)):
        assert carries_marker(text, MARKER)
        assert carries_marker(text.replace("\n", "\r\n"), MARKER)
        assert not carries_marker(text, other)
        without = "\n".join(line for line in text.split("\n") if not line.startswith(("GitLab-Sync", "<!--")))
        assert not carries_marker(without, MARKER)


def test_the_trailer_is_the_last_paragraph_and_git_reads_it() -> None:
    """Ours is the only trailer, whatever the members are called."""
    message = commit_message(make_batch(), [make_member(1, title=EVIL, requested_by=EVIL)])
    read = subprocess.run(
        ["git", "interpret-trailers", "--parse"], input=message, check=True, capture_output=True, text=True
    )
    assert read.stdout.strip() == f"GitLab-Sync-Batch: {MARKER}"
    assert message.split("\n\n")[0] == "gitlab-sync: 1 request for access-prod (batch 42)"


def test_nothing_that_a_user_wrote_is_obeyed() -> None:
    """Commands, mentions, closing words, CI words, markup and invisible signs are only shown."""
    assert OBEYED.search(EVIL)
    batch = make_batch()
    members = [make_member(n, title=EVIL, requested_by=EVIL, subject=EVIL, target=EVIL) for n in (1, 2)]
    for text in (
        commit_message(batch, members),
        merge_request_description(batch, members),
        merge_request_title(batch, members[:1]),
    ):
        assert not OBEYED.search(words_of_users(text)), OBEYED.search(words_of_users(text))
        assert not any(line.lstrip().startswith("/") for line in text.splitlines())
        assert not any(ord(sign) < 32 and sign != "\n" for sign in text)
        assert not {"\u202e", "\u200b", "\u2028"} & set(text)


def test_every_row_of_the_table_has_the_same_cells() -> None:
    """Bars and backticks in a title end neither a cell nor a code span."""
    members = [
        make_member(1),
        make_member(2, title=EVIL, requested_by="a|b`c"),
        make_member(3, title="", target=" "),
    ]
    rows = [
        line for line in merge_request_description(make_batch(), members).splitlines() if line.startswith("|")
    ]
    assert len(rows) == 5
    assert {row.count("|") for row in rows} == {6}
    assert all(row.count("`") == 8 for row in rows[2:])
    assert rows[2] == "| 1 | `alice` | `alice reads db-orders` | `user:alice` → `db-orders` | apply |"
    assert "`(none)`" in rows[4]


def test_the_title_is_ours_on_one_short_line() -> None:
    """It counts requests; a single member's title follows behind ours."""
    batch = make_batch()
    assert merge_request_title(batch, [make_member(n) for n in range(12)]) == (
        "gitlab-sync: 12 requests for access-prod (batch 42)"
    )
    single = merge_request_title(batch, [make_member(1, title="Draft: " + "x" * 1000)])
    assert single.startswith("gitlab-sync: 1 request for access-prod (batch 42): Draft: x")
    assert len(single) <= 255


def test_a_thousand_members_fit_and_the_rest_is_counted() -> None:
    """100 kB is the end; the reader learns how many rows are missing, and the marker is still there."""
    fat = [
        make_member(n, title="é" * 300, requested_by="ü" * 300, subject="界" * 99, target="界" * 99)
        for n in range(999)
    ]
    for text in (merge_request_description(make_batch(), fat), commit_message(make_batch(), fat)):
        assert len(text.encode()) <= 100_000
        assert carries_marker(text, MARKER)
        shown = sum(line.startswith(("- é", "| ")) and "é" in line for line in text.splitlines())
        assert f"and {999 - shown} more" in text


def test_a_members_words_are_cut_to_two_hundred_characters() -> None:
    """All four of its texts together."""
    row = merge_request_description(
        make_batch(),
        [make_member(1, title="t" * 999, requested_by="r" * 999, subject="s" * 999, target="g" * 999)],
    )
    assert sum(row.count(sign * 30) for sign in "trsg") >= 4
    assert len("".join(re.findall(r"`([trsg]+…)`", row))) == 200


@given(st.text(max_size=300))
@settings(derandomize=True, max_examples=200)
def test_no_text_gets_through_alive(text: str) -> None:
    """One line, short, visible, without signs of reference; and making it inert twice changes no more."""
    shown = inert(text, 80)
    assert 0 < len(shown) <= 80
    assert shown.isprintable()
    assert not set("@#!~&$%^`[]<>") & set(shown)
    assert inert(shown, 80) == shown


HOSTILE_WORDS = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.sampled_from(
            [
                *EVIL.split(" "),
                "\n",
                "\r\n",
                "&#64;all",
                "&commat;",
                "www.",
                "Draft:",
                "~~~",
                "]",
                "(",
                "[x]:",
            ]
        ),
    ),
    max_size=12,
).map(" ".join)


@given(HOSTILE_WORDS, HOSTILE_WORDS)
@settings(derandomize=True, max_examples=300)
def test_a_reader_who_obeys_everything_finds_nothing_to_obey(title: str, name: str) -> None:
    """A parser written from GitLab's rules alone, not from ours, reads all three texts."""
    batch, members = (
        make_batch(),
        [make_member(1, title=title, requested_by=name, subject=name, target=title)],
    )
    assert findings(merge_request_title(batch, members), TextPlace.TITLE) == []
    assert findings(merge_request_description(batch, members), TextPlace.DESCRIPTION) == []
    assert findings(commit_message(batch, members), TextPlace.COMMIT) == []


def test_a_partition_named_like_a_ticket_does_not_speak_to_the_tracker() -> None:
    """Each round of `DNS-2` would otherwise write into somebody's ticket of that number."""
    batch, members = make_batch(partition_key="DNS-2"), [make_member(1)]
    assert "DNS\u20112" in merge_request_title(batch, members)
    assert findings(commit_message(batch, members), TextPlace.COMMIT) == []
    assert "access-2" in merge_request_title(make_batch(partition_key="access-2"), members)
