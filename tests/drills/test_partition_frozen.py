"""RECOVERY.md where the service has paused a partition by itself."""

from __future__ import annotations

import pytest

from tests.drills.scenes import NO_ID, offered, pipelines_succeed
from tests.support.commands import PROJECT
from tests.support.guide import drilled
from tests.support.installation import Installation


@pytest.fixture
def house(one_house: Installation) -> Installation:
    """The database has no part here: one server for each drill."""
    return one_house


def test_a_partition_is_frozen(house: Installation) -> None:
    """A person empties a batch's branch and merges it: one request is taken back, the other made again."""
    policy = house.partitions_file.read_text() + "    merge: manual\n"
    house.partitions_file.write_text(policy)
    house.restart_all()
    with drilled("RECOVERY.md", "A partition is frozen", house) as drill:
        iid = offered(house, 1, 2)
        ((batch_id,),) = house.rows("SELECT id FROM merge_batch")
        (branch,) = [name for name in branches(house) if name.startswith("gitlab-sync/")]
        house.gitlab.control.push(PROJECT, branch, deleted=["access/item-1.txt", "access/item-2.txt"])
        pipelines_succeed(house)
        house.gitlab.control.merge(PROJECT, iid)
        house.until(lambda: house.rows("SELECT 1 FROM partition_pause"), "the partition is frozen")
        listed = drill.run("gitlab-sync partitions list")
        drill.sees(
            listed.out,
            "access-prod platform/access main … by gitlab-sync: landed_mismatch: batch 12 is merged, "
            "but the target branch does not hold what was composed: …",
        )
        drill.run("gitlab-sync batches show 12", instead={"12": f"{batch_id}"})
        ((undone,),) = house.rows(
            "SELECT LOWER(HEX(operation_id)) FROM operation WHERE subject_id = 'user:1'"
        )
        drill.run(
            f"gitlab-sync requests close {NO_ID} --reason 'undone on purpose in !12'",
            instead={NO_ID: str(undone)},
        )
        house.partitions_file.write_text(policy.replace("merge: manual", "merge: auto"))
        house.restart_all()
        resumed = drill.run("gitlab-sync partitions resume access-prod")
        drill.sees(resumed.out, "access-prod is not paused")
        ((wanted,),) = house.rows(
            "SELECT LOWER(HEX(operation_id)) FROM operation WHERE subject_id = 'user:2'"
        )
        house.until_landed(str(wanted))
        assert house.files() == {"access/item-2.txt": "item 2\n"}


def branches(house: Installation) -> list[str]:
    """The names of the project's branches."""
    return list(house.gitlab.control.audit()["projects"][PROJECT]["branches"])
