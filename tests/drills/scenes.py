"""What the drills bring about before they begin, and a person at GitLab."""

from __future__ import annotations

import httpx2

from tests.support.commands import PARTITION, PROJECT
from tests.support.installation import Installation

NO_ID = "018f4b8e-0000-7000-8000-000000000000"  # as the guides write one


def offered(house: Installation, *numbers: int) -> int:
    """Requests in one merge request whose pipeline does not end; the merge request's number."""
    house.gitlab.control.set_plan(PROJECT, "running")
    assert house.cli("partitions", "pause", PARTITION, "--reason", "into one batch").exit_code == 0
    ((before,),) = house.rows(
        "SELECT COALESCE(MAX(id), 0) FROM merge_batch"
    )  # one of these may be landing now
    for number in numbers:
        house.submit(number)
    assert house.cli("partitions", "resume", PARTITION).exit_code == 0
    found = "SELECT mr_iid FROM merge_batch WHERE pipeline_id > 0 AND status = 1 AND id > %s"
    house.until(lambda: house.rows(found, before), "it is offered, and its pipeline runs")
    ((iid,),) = house.rows(found, before)
    return int(iid)


def pipelines_succeed(house: Installation) -> None:
    """Let what runs end well, and what comes too."""
    house.gitlab.control.set_plan(PROJECT, "success", duration_s=0.05)
    for (pipeline_id,) in house.rows(
        "SELECT pipeline_id FROM merge_batch WHERE pipeline_id > 0 AND status IN (1, 4)"
    ):
        house.gitlab.control.set_pipeline(PROJECT, pipeline_id, "success")


def delete_project(house: Installation) -> None:
    """Delete the project as its owner does."""
    house.gitlab.control.add_user("owner", token="owner-token", role=50)
    url = f"{house.gitlab.base_url}/api/v4/projects/{PROJECT.replace('/', '%2F')}"
    answer = httpx2.delete(url, headers={"PRIVATE-TOKEN": "owner-token"}, trust_env=False)
    assert answer.is_success, answer.text


def batch_of(house: Installation) -> dict[str, str]:
    """Number and version of the newest batch, for the guide's 12 and 7."""
    ((number, version),) = house.rows("SELECT id, version FROM merge_batch ORDER BY id DESC LIMIT 1")
    return {"12": f"{number}", "7": f"{version}"}
