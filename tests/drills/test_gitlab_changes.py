"""RECOVERY.md where GitLab changes: its address, a project's path, the instance, archived, deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from gitlab_sync.sandbox.simulator import SimConfig, running_simulator
from tests.drills.scenes import NO_ID, batch_of, delete_project, offered, pipelines_succeed
from tests.support.commands import BOT, PROJECT, QUICK
from tests.support.guide import drilled
from tests.support.installation import Installation
from tests.support.landings import landings_in

GUIDE: Final = "RECOVERY.md"
MOVED: Final = "platform/moved"


@pytest.fixture
def house(one_house: Installation) -> Installation:
    """The database has no part here: one server for each drill."""
    return one_house


def test_gitlab_has_another_address(house: Installation) -> None:
    """A batch that is under way goes on under the new name, in the same merge request."""
    with drilled(GUIDE, "GitLab has another address", house) as drill:
        iid = offered(house, 1)
        house.set(GITLAB_URL=house.gitlab.base_url.replace("127.0.0.1", "localhost"))
        house.restart_all()
        ran = drill.run("gitlab-sync doctor --gitlab", exit_code=1)
        assert ran.out.count("problem:") == 1, ran.out
        assert "webhook" in ran.out  # there is none here: the poller does it
        pipelines_succeed(house)
        house.until_landed()
        assert house.rows("SELECT mr_iid FROM merge_batch") == [(iid,)]


def test_a_project_is_renamed_or_moved(house: Installation) -> None:
    """What is under way lands by the project's number; the next round needs the new path."""
    with drilled(GUIDE, "A project is renamed or moved", house) as drill:
        first = offered(house, 1)
        house.gitlab.control.move_project(PROJECT, MOVED)
        ((pipeline_id,),) = house.rows("SELECT pipeline_id FROM merge_batch")
        house.gitlab.control.set_plan(MOVED, "success", duration_s=0.05)
        house.gitlab.control.set_pipeline(MOVED, pipeline_id, "success")
        house.until_landed()
        house.submit(2)
        stuck = drill.run("gitlab-sync round access-prod", exit_code=1)
        drill.sees(stuck.out, "target_missing: …")
        house.partitions_file.write_text(house.partitions_file.read_text().replace(PROJECT, MOVED))
        house.restart_all()
        drill.sees(drill.run("gitlab-sync partitions list").out, "access-prod platform/moved main …")
        house.until_landed()
        assert [row[0] for row in house.rows("SELECT mr_iid FROM merge_batch ORDER BY id")] == [
            first,
            first + 1,
        ]


def test_gitlab_is_another_instance_now(house: Installation, tmp_path: Path) -> None:
    """The new instance gives the same numbers to other things; nothing is blocked, and all of it is there."""
    with drilled(GUIDE, "GitLab is another instance now", house) as drill:
        house.submit(1)
        house.submit(2)
        house.until_landed()
        drill.run("gitlab-sync partitions pause access-prod --reason 'GitLab moves'")
        assert "there are no such batches" in drill.run("gitlab-sync batches list --status RUNNING").out
        assert "there are no such batches" in drill.run("gitlab-sync batches list --status BLOCKED").out
        house.stop()
        config = SimConfig(tmp_path / "other", "sim-token", timings=QUICK)
        with running_simulator(config) as other:
            files = house.gitlab.control.files(PROJECT)
            number = other.control.add_project(PROJECT, files, merge_level=30)["id"]
            other.control.set_plan(PROJECT, "success", duration_s=0.05)
            other.control.add_user("bot", token=BOT, role=40)
            assert house.rows("SELECT DISTINCT project_id FROM merge_batch") == [(number,)]
            drill.sql(
                "UPDATE merge_batch SET project_id = NULL"
                " WHERE status IN (2, 3) AND next_check_at >= '9999-01-01';"
            )
            house.gitlab = other
            house.set(GITLAB_URL=other.base_url)
            house.start()
            address = {"https://gitlab-sync.example.org": house.replicas[0].url}
            drill.run(
                "gitlab-sync hooks install --all --url https://gitlab-sync.example.org", instead=address
            )
            drill.run("gitlab-sync doctor --gitlab")
            drill.run("gitlab-sync doctor --strays")
            house.submit(3)
            drill.run("gitlab-sync partitions resume access-prod")
            house.until_landed()
            assert set(house.files()) == {f"access/item-{number}.txt" for number in (1, 2, 3)}
            assert set(landings_in(other.control.log(PROJECT)).values()) == {1}
            house.stop()


def test_a_project_is_archived(house: Installation) -> None:
    """The batch is blocked, requests are taken; unarchived, it goes on by a look."""
    with drilled(GUIDE, "A project is archived", house) as drill:
        house.gitlab.control.set_settings(PROJECT, archived=True)
        house.submit(1)
        house.until(lambda: house.rows("SELECT 1 FROM merge_batch WHERE status = 4"), "it is blocked")
        drill.run("gitlab-sync reconcile")
        told = drill.run("gitlab-sync doctor --gitlab", exit_code=1)
        drill.sees(
            told.out,
            "problem: project, platform/access: it is archived: nothing can be pushed or merged",
        )
        house.submit(2)
        house.gitlab.control.set_settings(PROJECT, archived=False)
        house.cli("reconcile")
        house.until_landed()


def test_a_project_is_deleted(house: Installation) -> None:
    """The operator's word ends the batch; the portal hears that its requests are closed."""
    with drilled(GUIDE, "A project is deleted", house) as drill:
        offered(house, 1)
        delete_project(house)
        house.until(lambda: house.rows("SELECT 1 FROM merge_batch WHERE status = 4"), "it is blocked")
        drill.run("gitlab-sync batches list --status BLOCKED")
        failed = drill.run("gitlab-sync batches fail 12 --version 7", instead=batch_of(house))
        drill.sees(failed.out, "batch 12 is FAILED at version 8")
        drill.run("gitlab-sync requests list --partition access-prod --status QUEUED")
        ((operation_id,),) = house.rows("SELECT LOWER(HEX(operation_id)) FROM operation")
        drill.run(
            f"gitlab-sync requests close {NO_ID} --reason 'the project is gone'",
            instead={NO_ID: str(operation_id)},
        )
        house.until(lambda: "request.closed" in house.sink.types, "the portal hears of it")
        assert house.cli("doctor", "--invariants").exit_code == 0
