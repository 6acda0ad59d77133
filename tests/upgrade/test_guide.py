"""UPGRADING.md, done: each section's commands on real processes, with a release that does not exist yet."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import pytest

from gitlab_sync.sandbox.simulator import Running
from tests.support.guide import drilled
from tests.support.installation import HERE, installed
from tests.support.sink import SinkServer
from tests.upgrade.migrations import EXPAND, STOPS
from tests.upgrade.programs import next_release

GUIDE: Final = "UPGRADING.md"


def test_the_order(tmp_path: Path, database_url: str, gitlab: Running, sink: SinkServer) -> None:
    """Looked at, migrated below a running replica, waited for, replaced, and found sound."""
    new = next_release(tmp_path / "next", EXPAND)
    with (
        installed(tmp_path / "house", database_url, gitlab, sink) as house,
        drilled(GUIDE, "The order", house) as drill,
    ):
        status = drill.run("gitlab-sync migrate --status", program=new)
        plan = drill.run("gitlab-sync migrate --dry-run", program=new)
        drill.sees(
            status.out + plan.out,
            "0001_initial.sql done 11/11",
            "0002_expand.sql pending 0/5",
            "0002_expand.sql, statement 1: ALTER TABLE operation ADD COLUMN note VARCHAR(100) NULL",
            "pending: 0002_expand.sql",
        )
        refused = house.cli("serve", program=new)
        assert (refused.exit_code, "migration 0002_expand.sql is pending" in refused.err) == (2, True)
        assert house.cli("migrate", "--wait", "1", program=new).exit_code == 1
        waits = threading.Thread(
            target=drill.run, args=("gitlab-sync migrate --wait 600",), kwargs={"program": new}
        )
        waits.start()
        drill.sees(drill.run("gitlab-sync migrate", program=new).out, "applied: 0002_expand.sql")
        waits.join(30)
        assert not waits.is_alive()
        house.submit(1)
        house.restart("one", new)
        house.submit(2)
        house.until_landed()
        whole = drill.run("gitlab-sync doctor", program=new)
        rows = drill.run("gitlab-sync doctor --invariants --full", program=new)
        drill.sees(whole.out, "nothing found: server and schema fit, the invariants hold")
        drill.sees(rows.out, "nothing found: the invariants hold")


def test_roll_the_program_back(
    tmp_path: Path, one_database_url: str, gitlab: Running, sink: SinkServer
) -> None:
    """On the next release's schema, where a batch is blocked by a word of that one, this one works on."""
    new = next_release(tmp_path / "next", EXPAND)
    with (
        installed(tmp_path / "house", one_database_url, gitlab, sink, names=()) as house,
        drilled(GUIDE, "Roll the program back", house) as drill,
    ):
        assert house.cli("migrate", program=new).exit_code == 0
        house.start("one", new)
        gitlab.control.set_plan("platform/access", "running")
        operation_id = house.submit(1)
        house.until(lambda: house.rows("SELECT 1 FROM merge_batch WHERE pipeline_id > 0"), "it is published")
        house.stop()
        house.rows("UPDATE merge_batch SET status = 4, reason_code = 'moon_is_full', version = version + 1")
        house.start("one", HERE)
        drill.sees(drill.run("gitlab-sync migrate --if-needed").out, "up to date")
        listed = drill.run("gitlab-sync batches list --status BLOCKED")
        assert "moon_is_full" in listed.out
        ((number, version),) = house.rows("SELECT id, version FROM merge_batch")
        instead = {"12": f"{number}", "7": f"{version}"}
        drill.run("gitlab-sync batches retry 12 --version 7", instead=instead)
        ((pipeline_id,),) = house.rows("SELECT pipeline_id FROM merge_batch")
        gitlab.control.set_pipeline("platform/access", pipeline_id, "success")
        house.until_landed(operation_id)


def test_a_migration_stops_half_way(
    tmp_path: Path, database_url: str, gitlab: Running, sink: SinkServer
) -> None:
    """Refused by rows that are there, mended, gone on with; the release of before serves all the time."""
    new = next_release(tmp_path / "next", STOPS)
    with (
        installed(tmp_path / "house", database_url, gitlab, sink) as house,
        drilled(GUIDE, "When a migration stops half-way", house) as drill,
    ):
        house.submit(1, title="the same")
        house.submit(2, title="the same")
        stopped = drill.run("gitlab-sync migrate", exit_code=1, program=new)
        drill.sees(
            stopped.err,
            "0002_stops.sql stopped at statement 2 of 3, 'CREATE UNIQUE INDEX uk_title ON operation (title)': …",  # noqa: E501 as it is said
            "The 1 before it are applied, it is not: mend the cause, then run `gitlab-sync migrate --resume-at 2`",  # noqa: E501 as it is said
        )
        house.submit(3)
        house.until_landed()
        house.rows("UPDATE operation SET title = CONCAT('mended ', id)")
        resumed = drill.run("gitlab-sync migrate --resume-at 2", program=new)
        drill.sees(resumed.out, "applied: 0002_stops.sql")
        house.submit(4)
        house.until_landed()


def test_a_new_version_of_the_database_server(
    tmp_path: Path, one_database_url: str, gitlab: Running, sink: SinkServer
) -> None:
    """What a server is like is told with a remedy for each thing."""
    with (
        installed(tmp_path / "house", one_database_url, gitlab, sink, names=()) as house,
        drilled(GUIDE, "A new version of the database server", house) as drill,
    ):
        # A server for tests keeps less than one for work: that is what is found.
        ran = drill.run("gitlab-sync doctor --database", exit_code=1)
        assert "innodb_flush_log_at_trx_commit" in ran.out


@pytest.mark.parametrize("folder", ["gitlab_sync", "hooks", "sql"])
def test_the_release_to_come_is_this_one_and_one_file(tmp_path: Path, folder: str) -> None:
    """Otherwise these tests would drill another program than the one that is released."""
    new = next_release(tmp_path / "next", EXPAND)
    assert new.folder is not None
    assert (new.folder / folder / "__init__.py").exists()
