"""Which calls tell what exists: few of them, and never a wrong answer."""

from __future__ import annotations

import random
from collections.abc import Iterator

from gitlab_sync.gitlab_listing import PAGE_ENTRIES, Depth, Listing, plan, read_listing


def entries(*paths: str) -> Iterator[dict[str, str]]:
    """Make a listing of files."""
    return ({"type": "blob", "path": path} for path in paths)


def test_paths_of_one_folder_cost_one_listing() -> None:
    """Fifty members of one folder must not cost fifty calls."""
    chosen = plan([f"access/{number}.yaml" for number in range(50)])
    assert [(part.folder, part.depth) for part in chosen.listings] == [("access", Depth.FOLDER)]
    assert chosen.singles == frozenset()


def test_a_few_paths_are_asked_for_singly() -> None:
    """A listing of a folder of unknown size is no bargain for two paths."""
    chosen = plan(["a/x", "b/y", "top"])
    assert chosen.listings == ()
    assert chosen.singles == {"a/x", "b/y", "top"}


def test_lonely_paths_share_one_recursive_listing_of_what_they_have_in_common() -> None:
    """One file in each of many folders is the other common layout."""
    chosen = plan([f"access/team-{number}/grant.yaml" for number in range(20)])
    assert [(part.folder, part.depth, part.pages) for part in chosen.listings] == [
        ("access", Depth.RECURSIVE, 5)
    ]


def test_nothing_asked_costs_nothing() -> None:
    """An empty round makes no call."""
    assert plan([]) == plan(())
    assert (plan([]).listings, plan([]).singles) == ((), frozenset())


def test_every_path_is_answered_for_exactly_once() -> None:
    """No layout leaves a path out or asks for it twice, and no plan costs more calls than paths."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    paths = {"/".join(dice.choices("abcd", k=dice.randint(1, 4))) for _ in range(dice.randint(1, 60))}
    chosen = plan(paths)
    planned = [path for part in chosen.listings for path in part.wanted] + list(chosen.singles)
    assert sorted(planned) == sorted(paths), f"seed {seed}"
    assert sum(part.pages for part in chosen.listings) + len(chosen.singles) <= len(paths), f"seed {seed}"


def test_a_listing_that_ended_has_decided_everything() -> None:
    """What is not in a whole listing is not there."""
    part = Listing("a", Depth.FOLDER, frozenset({"a/x", "a/y"}), pages=1)
    listed = read_listing(part, entries("a/x", "a/z"))
    assert (listed.found, listed.undecided) == (frozenset({"a/x"}), frozenset())


def test_a_huge_folder_is_left_after_the_budget() -> None:
    """The rest is undecided, and no further page is fetched."""
    part = Listing("a", Depth.FOLDER, frozenset({"a/x"}), pages=1)
    endless = ({"type": "blob", "path": f"a/{number}"} for number in range(10**9))
    listed = read_listing(part, endless)
    assert (listed.found, listed.undecided) == (frozenset(), frozenset({"a/x"}))
    assert next(endless)["path"] == f"a/{PAGE_ENTRIES}"


def test_a_folder_is_no_file() -> None:
    """A path that is a folder does not exist as a file."""
    part = Listing("a", Depth.FOLDER, frozenset({"a/x"}), pages=1)
    assert read_listing(part, iter([{"type": "tree", "path": "a/x"}])).found == frozenset()


def test_reading_stops_once_everything_was_found() -> None:
    """The next page is not worth its call."""
    part = Listing("a", Depth.FOLDER, frozenset({"a/1"}), pages=9)
    pages = entries("a/1", "a/2")
    assert read_listing(part, pages).found == {"a/1"}
    assert next(pages)["path"] == "a/2"
