"""Paths that requests name: normal form or refused, and nobody reaches a protected file in disguise."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitlab_sync.collisions import NameBook
from gitlab_sync.edits.paths import folded_parents, folded_path, path_problem, protection_problem


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "access/db-orders.yaml",
        "a b/c d.txt",
        "访问/数据库.yaml",
        "é.yaml",
        "access/user:alice.yaml",
        ".hidden",
        "-d",
    ],
)
def test_ordinary_paths_pass(path: str) -> None:
    """Other alphabets, blanks inside, colons and dots are nothing to complain about."""
    assert path_problem(path) is None


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("", "empty"),
        ("/etc/passwd", "absolute"),
        ("C:/x", "absolute"),
        ("c:x", "absolute"),
        ("a\\b", "backslash"),
        ("../x", "'..'"),
        ("a/../b", "'..'"),
        ("a/./b", "'.'"),
        ("a//b", "empty parts"),
        ("a/", "empty parts"),
        ("a\nb", "U+000A"),
        ("a\x7fb", "U+007F"),
        ("a\u202eb", "U+202E"),
        ("a\u200bb", "U+200B"),
        ("a\ud800b", "U+D800"),
        ("a\ufe0fb", "U+FE0F"),
        ("e\u0301.yaml", "NFC"),
        ("a/" + "x" * 256, "255"),
        ("a/" + "é" * 128, "255"),
        ("x/" * 2048 + "y", "4096"),
        ("a ", "blank"),
        (" a/b", "blank"),
        ("a./b", "dot"),
        ("a/b...", "dot"),
    ],
)
def test_a_path_out_of_form_is_refused_with_a_word_on_why(path: str, word: str) -> None:
    """Nothing is repaired; the message says what to mend."""
    assert word in (path_problem(path) or "")


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".GIT/hooks/post-commit",
        "sub/.Git/x",
        ".git",
        "git~1/config",
        "GIT~1",
        "GIT~2/x",
        "gi7eba~1",
        ".git:stream",
        ".git::$INDEX_ALLOCATION/config",
        "\uff0egit/config",
        ".\uff47it/config",
        ".g\u0131t/config",
        "gitlab~1",
        "CODEOW~1",
    ],
)
def test_no_disguise_leads_into_the_git_folder(path: str) -> None:
    """Letter case, short names, streams and look-alikes of file systems are all the same folder."""
    assert "Git's own" in (path_problem(path) or "")


@pytest.mark.parametrize(
    "path",
    [
        "CON",
        "a/nul",
        "aux.txt",
        "AUX.tar.gz",
        "com1",
        "LPT9.yaml",
        "com\u00b9.txt",
        "prn/x",
        "nul .txt",
        "con:x",
    ],
)
def test_a_device_of_windows_is_no_file_name(path: str) -> None:
    """One such file keeps the whole repository from being checked out there."""
    assert "device" in (path_problem(path) or "")


@pytest.mark.parametrize("path", ["console", "con-1.yaml", "auxiliary/x", "com10", "nullable.yaml", "a.con"])
def test_names_that_only_begin_like_a_device_are_free(path: str) -> None:
    """The whole stem counts, up to its first dot."""
    assert path_problem(path) is None


@pytest.mark.parametrize("path", [".git\u200c/config", ".git /config", ".git./config", "\u200d.git/x"])
def test_disguises_with_invisible_tails_fall_to_the_form(path: str) -> None:
    """Ignored characters, trailing blanks and dots never get as far as the comparison."""
    assert path_problem(path)


@pytest.mark.parametrize(
    "path",
    [
        ".gitlab-ci.yml",
        ".GitLab-CI.yml",
        "sub/.gitlab-ci.yml",
        "templates/build.gitlab-ci.yml",
        ".gitlab/ci/build.yml",
        ".GITLAB/CODEOWNERS",
        ".gitlab-ci/jobs.yml",
        "CODEOWNERS",
        "docs/codeowners",
        ".gitattributes",
        "sub/.gitattributes",
        ".gitmodules",
        ".lfsconfig",
        ".gitlab-ci.yml::$DATA",
        ".gitlab-ci.ym\uff4c",
        ".gitlab",
        "access/.gitattributes/db.yaml",
        "docs/codeowners/x/y",
        ".GitLab-CI.yml::$DATA/x",
    ],
)
def test_files_that_steer_gitlab_are_protected_by_default(path: str) -> None:
    """In every folder, letter case and form, whatever the partition allows."""
    assert "is protected" in (protection_problem(path, allowed=["**"], protected=[]) or "")


@pytest.mark.parametrize("path", [".gitignore", ".gitkeep", "gitlab/x.yaml", "docs/CODEOWNERS.md", "ci.yml"])
def test_what_only_looks_similar_is_free(path: str) -> None:
    """Protection does not swallow the neighbourhood."""
    assert protection_problem(path, allowed=["**"], protected=[]) is None


@pytest.mark.parametrize(
    ("pattern", "path", "is_allowed"),
    [
        ("access/**", "access/a.yaml", True),
        ("access/**", "access/x/y/z.yaml", True),
        ("access/**", "access", False),
        ("access/**", "accessories/a", False),
        ("access/**", "Access/a", False),
        ("access/*.yaml", "access/a.yaml", True),
        ("access/*.yaml", "access/x/a.yaml", False),
        ("**/quota.json", "quota.json", True),
        ("**/quota.json", "a/b/quota.json", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("team-?/x", "team-1/x", True),
        ("team-?/x", "team-/x", False),
        ("a.b", "aXb", False),
        ("**", "anything/at/all", True),
    ],
)
def test_allowed_patterns_mean_what_they_look_like(pattern: str, path: str, *, is_allowed: bool) -> None:
    """`**` crosses folders, `*` and `?` do not, the rest is literal and exact in letter case."""
    assert (protection_problem(path, allowed=[pattern], protected=[]) is None) == is_allowed


def test_a_partitions_own_protection_ignores_letter_case() -> None:
    """A protected folder cannot be reached as another spelling of it."""
    problem = protection_problem("Access/ADMIN/a.yaml", allowed=["**"], protected=["access/admin/**"])
    assert problem is not None
    assert "access/admin/**" in problem


def test_an_empty_list_of_allowed_paths_allows_nothing() -> None:
    """Nothing is not everything."""
    assert protection_problem("a", allowed=[], protected=[]) is not None


def test_two_users_with_colons_are_two_files() -> None:
    """A colon is a stream only in front of a Windows stream type."""
    assert folded_path("user:alice") != folded_path("user:bob")
    assert folded_path("README::$DATA") == folded_path("readme")


def test_parents_are_named_from_the_outside_in() -> None:
    """Folded like the paths themselves."""
    assert list(folded_parents("A/b/C.txt")) == ["a", "a/b"]
    assert list(folded_parents("a")) == []


@given(st.text(min_size=1, max_size=30))
@settings(derandomize=True, max_examples=200)
def test_whatever_passes_is_a_plain_relative_path(path: str) -> None:
    """No accepted path has a step that a file system would walk elsewhere."""
    if path_problem(path) is None:
        parts = path.split("/")
        assert not {"", ".", "..", ".git"} & {part.casefold() for part in parts}
        assert path.isprintable() or " " in path
        assert folded_path(folded_path(path)) == folded_path(path)


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from(["a", "A", "a/b", "b", "b/c/d", "B/C", "c"])), max_size=12
    )
)
@settings(derandomize=True, max_examples=150)
def test_the_book_of_names_never_holds_two_that_collide(moves: list[tuple[bool, str]]) -> None:
    """Whatever comes and goes; and a refused name changes nothing."""
    book, held = NameBook([]), set[str]()
    for comes, path in moves:
        refused = book.move([] if comes else [path], [path] if comes else [])
        if refused is None:
            held = held | {path} if comes else held - {path}
        assert all(book.holds(one) for one in held)
    folded = [folded_path(one) for one in held]
    assert len(set(folded)) == len(folded)
    assert not set(folded) & {parent for one in held for parent in folded_parents(one)}


def test_a_path_of_two_thousand_folders_is_refused_before_anybody_walks_them() -> None:
    """Every prefix of a path is looked at: ten requests of such paths froze a replica."""
    problem = path_problem("access/" + "x/" * 2_000 + "f")
    assert problem is not None
    assert "more than 32 parts" in problem
    assert path_problem("/".join("x" for _ in range(32))) is None
