"""Two releases on one schema under load: rolled forth, swapped, rolled back, grown and shrunk below both."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitlab_sync.sandbox.simulator import Running
from tests.support.commands import PROJECT
from tests.support.installation import HERE, Installation, Program, installed
from tests.support.landings import landings_in
from tests.support.portal import CALLERS, Portal, submitting
from tests.support.sink import SinkServer, told_twice
from tests.upgrade.migrations import CONTRACT, EXPAND
from tests.upgrade.programs import next_release


def roll(house: Installation, portal: Portal, name: str, program: Program) -> None:
    """Replace one replica under load as an orchestrator does; then both have to be seen at work."""
    (replica,) = (one for one in house.replicas if one.name == name)
    with portal.without(replica):
        portal.until_more(3 * CALLERS)  # nobody is on the way to it any more
        house.restart(name, program)
        assert replica.ready() == 200
    landed = len(house.gitlab.control.log(PROJECT))
    portal.until_more(CALLERS)
    house.until(lambda: len(house.gitlab.control.log(PROJECT)) > landed, "a batch lands")


def require_whole(house: Installation, portal: Portal, *doctors: Program) -> None:
    """Nothing was refused; everything acknowledged has landed once and is told once; every doctor agrees."""
    house.until_landed()
    assert portal.failed == []
    ids = {str(row[0].hex()) for row in house.rows("SELECT operation_id FROM operation")}
    assert ids == {one.replace("-", "") for one in portal.acknowledged.values()}
    wanted = {f"access/item-{number}.txt": f"item {number}\n" for number in portal.acknowledged}
    assert house.files() == wanted
    landings = landings_in(house.gitlab.control.log(PROJECT))
    batches = house.rows(
        "SELECT COUNT(*) FROM merge_batch WHERE status = 2 AND reason_code <> 'already_there'"
    )
    assert set(landings.values()) == {1}
    assert len(landings) == batches[0][0]
    assert told_twice(house.sink) == 0
    for program in doctors:
        ran = house.cli("doctor", "--invariants", "--full", program=program)
        assert ran.exit_code == 0, f"{program.name}: {ran.out}"


@pytest.mark.timeout(300)
def test_two_releases_share_a_schema_that_grows_below_them(
    tmp_path: Path, empty_database_url: str, gitlab: Running, sink: SinkServer, previous: Program
) -> None:
    """Rolled forth, migrated below both under load, swapped on the schema that neither knows, and shrunk.

    In words of an operator: no call fails at any step, and in the end both releases find nothing wrong.
    """
    following = next_release(tmp_path / "following", EXPAND)
    last = next_release(tmp_path / "last", EXPAND | CONTRACT)
    with installed(tmp_path / "house", empty_database_url, gitlab, sink, names=()) as house:
        assert house.cli("migrate", program=previous).exit_code == 0
        house.start("one", previous)
        house.start("two", previous)
        with submitting(house) as portal:
            portal.until_more(CALLERS)
            assert house.cli("migrate", "--if-needed").out == "up to date\n"
            roll(house, portal, "one", HERE)
            migrated = house.cli("migrate", program=following)
            assert (migrated.exit_code, migrated.out) == (0, "applied: 0002_expand.sql\n"), migrated
            portal.until_more(2 * CALLERS)
            roll(house, portal, "two", HERE)
            roll(house, portal, "one", previous)
            shrunk = house.cli("migrate", program=last)
            assert (shrunk.exit_code, shrunk.out) == (0, "applied: 0003_contract.sql\n"), shrunk
            portal.until_more(2 * CALLERS)
        assert (
            house.cli("migrate", program=previous).exit_code == 1
        )  # what the newer file did, it cannot know
        assert "ahead of this release" in house.cli("migrate").err
        assert house.cli("migrate", "--if-needed").out == "up to date\n"
        require_whole(house, portal, previous, HERE)
