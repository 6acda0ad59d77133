"""RUNBOOK.md where something is the matter at GitLab: every command of these sections, and what it prints."""

from __future__ import annotations

from typing import Final

from tests.drills.scenes import batch_of, offered, pipelines_succeed
from tests.drills.test_partition_frozen import branches
from tests.support.commands import BOT, PROJECT
from tests.support.guide import drilled
from tests.support.installation import Installation
from tests.support.runbook_drill import look

GUIDE: Final = "RUNBOOK.md"
ADDRESS: Final = "https://gitlab-sync.example.org"


def test_a_batch_that_waits_for_a_person(house: Installation) -> None:
    """An approval is missing: listed, shown, let go on, and ended."""
    house.gitlab.control.set_rules(PROJECT, approvals_required=1)
    house.submit(1)
    house.until(lambda: house.rows("SELECT 1 FROM merge_batch WHERE status = 4"), "it is blocked")
    with drilled(GUIDE, "GitlabSyncBatchBlocked", house) as drill:
        look(drill, "gitlab-sync batches list --status BLOCKED")
        look(drill, "gitlab-sync batches show 12", instead=batch_of(house))
        look(drill, "gitlab-sync doctor --gitlab", exit_code=1)
        house.stop()  # so that nobody blocks it again between the two commands
        look(drill, "gitlab-sync batches retry 12 --version 7", instead=batch_of(house))
        look(drill, "gitlab-sync batches fail 12 --version 7", instead=batch_of(house))


def test_a_merge_that_brought_nothing(house: Installation) -> None:
    """The partition has paused itself, and says why and how it goes on."""
    house.partitions_file.write_text(house.partitions_file.read_text() + "    merge: manual\n")
    house.restart_all()
    iid = offered(house, 1)
    (branch,) = [name for name in branches(house) if name.startswith("gitlab-sync/")]
    house.gitlab.control.push(PROJECT, branch, deleted=["access/item-1.txt"])
    pipelines_succeed(house)
    house.gitlab.control.merge(PROJECT, iid)
    house.until(lambda: house.rows("SELECT 1 FROM partition_pause"), "the partition is frozen")
    with drilled(GUIDE, "GitlabSyncLandedMismatch", house) as drill:
        look(drill, "gitlab-sync partitions list")
        look(drill, "gitlab-sync batches list --partition access-prod --limit 3")
        look(drill, "gitlab-sync batches show 12", instead=batch_of(house))
        look(drill, "gitlab-sync partitions resume access-prod")


def test_webhooks_that_do_not_arrive(house: Installation) -> None:
    """There is none: `hooks status` says so, `hooks install` makes it and proves it."""
    house.submit(1)
    house.until_landed()  # a test delivery is made from a merge request
    with drilled(GUIDE, "GitlabSyncWebhooksMissed", house) as drill:
        look(drill, "gitlab-sync hooks status access-prod", exit_code=1)
        look(drill, "gitlab-sync doctor --gitlab", exit_code=1)
        install = f"gitlab-sync hooks install access-prod --url {ADDRESS} --test"
        look(drill, install, instead={ADDRESS: house.replicas[0].url})
    with drilled(GUIDE, "GitlabSyncWebhooksUnauthorized", house) as drill:
        look(drill, "gitlab-sync hooks status access-prod")
        look(drill, "gitlab-sync config check")


def test_a_token_that_is_dead(house: Installation) -> None:
    """The doctor says which of the two sides it is."""
    with drilled(GUIDE, "GitlabSyncGitlabErrors", house) as drill:
        house.gitlab.control.revoke_token(BOT)
        look(drill, "gitlab-sync doctor --gitlab", exit_code=1)
        look(drill, "gitlab-sync reconcile")
        house.gitlab.control.restore_token(BOT)
