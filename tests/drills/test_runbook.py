"""RUNBOOK.md where nothing is wrong at GitLab: every command of these sections, and what it prints."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import pymysql

from gitlab_sync.setting_values import parse_database_url
from tests.drills.scenes import batch_of, offered
from tests.support.guide import drilled
from tests.support.installation import Installation
from tests.support.runbook_drill import look
from tests.support.sink import Reply

GUIDE: Final = "RUNBOOK.md"
HEX: Final = "018f4b8e000070008000000000000000"  # as the guide writes an operation_id


def test_looking_where_nothing_is_wrong(house: Installation) -> None:
    """Alerts of which the cause is outside: what healthy answers look like, so that others are seen."""
    house.submit(1)
    house.until_landed()
    with drilled(GUIDE, "GitlabSyncAbsent", house) as drill:
        look(drill, "gitlab-sync config check")
    with drilled(GUIDE, "GitlabSyncInvariantsUnchecked", house) as drill:
        look(drill, "gitlab-sync doctor --invariants")
    with drilled(GUIDE, "GitlabSyncPollerSilent", house) as drill:
        look(drill, "gitlab-sync reconcile")
    with drilled(GUIDE, "GitlabSyncRacesLostOften", house) as drill:
        look(drill, "gitlab-sync batches list --limit 5")
        look(drill, "gitlab-sync doctor --invariants")
    with drilled(GUIDE, "GitlabSyncExpiryRefused", house) as drill:
        look(drill, "gitlab-sync requests list --subject user:1 --limit 3")
        look(drill, "gitlab-sync config check")


def test_a_lock_that_somebody_holds(house: Installation) -> None:
    """The one who waits is told with the one in the way, and with what ends it."""
    house.submit(1)
    house.until_landed()
    with one_in_the_way(house), drilled(GUIDE, "GitlabSyncDatabaseRetries", house) as drill:
        house.until(
            lambda: "in the way is" in house.cli("doctor", "--database").out, "the server tells who waits"
        )
        look(drill, "gitlab-sync doctor --database", exit_code=1)


@contextmanager
def one_in_the_way(house: Installation) -> Iterator[None]:
    """Somebody holds a row of ours, and somebody else waits for it."""
    target = parse_database_url(house.environ["GITLAB_SYNC_DATABASE_URL"])
    reach: dict[str, Any] = {
        "host": target.host,
        "port": target.port,
        "unix_socket": target.unix_socket,
        "user": target.user,
        "password": target.password.reveal(),
        "database": target.name,
    }
    with closing(pymysql.connect(**reach)) as holder, closing(pymysql.connect(**reach)) as waiter:
        ((row_id,),) = house.rows("SELECT id FROM operation")
        holder.cursor().execute("SELECT id FROM operation WHERE id = %s FOR UPDATE", (row_id,))
        wish = ("SELECT id FROM operation WHERE id = %s FOR UPDATE", (row_id,))
        waiting = threading.Thread(target=waiter.cursor().execute, args=wish)
        waiting.start()
        try:
            yield
        finally:
            holder.rollback()
            waiting.join()


def test_a_database_that_is_away(house: Installation) -> None:
    """Commands say it in one line, with the address that was tried."""
    with drilled(GUIDE, "GitlabSyncDatabaseSilent", house) as drill:
        house.set(DATABASE_URL="mysql://somebody@127.0.0.1:9/nothing")
        look(drill, "gitlab-sync doctor", exit_code=1)
        look(drill, "gitlab-sync doctor --database", exit_code=1)


def test_rows_that_contradict_each_other(house: Installation) -> None:
    """A waiting row is gone: the finding leads to the request, and the request can be looked at."""
    house.submit(1)
    house.until_landed()
    assert house.cli("partitions", "pause", "access-prod", "--reason", "drill").exit_code == 0
    lost = house.submit(2).replace("-", "")
    house.rows("DELETE FROM merge_batch_request")
    with drilled(GUIDE, "GitlabSyncInvariantViolated", house) as drill:
        assert lost in look(drill, "gitlab-sync doctor --invariants", exit_code=1).out
        look(drill, f"gitlab-sync requests show {HEX}", instead={HEX: lost})
        look(drill, "gitlab-sync batches show 12", instead=batch_of(house))


def test_a_request_that_waits_long(house: Installation) -> None:
    """Somebody has paused the partition and went home."""
    assert house.cli("partitions", "pause", "access-prod", "--reason", "maintenance").exit_code == 0
    house.submit(1)
    house.submit(2)
    with drilled(GUIDE, "GitlabSyncWaitingTooLong", house) as drill:
        look(drill, "gitlab-sync partitions list")
        look(drill, "gitlab-sync batches list --partition access-prod --limit 3")
        look(drill, "gitlab-sync round access-prod")


def test_a_batch_that_nobody_looks_at(house: Installation) -> None:
    """No replica polls: the check says so, and a look by hand ends the batch that is past its deadline."""
    offered(house, 1)
    house.stop()
    house.rows("UPDATE merge_batch SET next_check_at = next_check_at - INTERVAL 1 HOUR WHERE status = 1")
    numbers = batch_of(house)
    with drilled(GUIDE, "GitlabSyncWorkLeftLying", house) as drill:
        look(drill, "gitlab-sync doctor --invariants", exit_code=1)
    house.rows("UPDATE merge_batch SET deadline_at = deadline_at - INTERVAL 2 HOUR WHERE status = 1")
    with drilled(GUIDE, "GitlabSyncBatchOverdue", house) as drill:
        look(drill, "gitlab-sync batches show 12", instead=numbers)
        look(drill, "gitlab-sync reconcile --batch 12", instead=numbers)


def test_a_receiver_that_refuses(house: Installation) -> None:
    """What waits is listed with what the receiver said; what was given up is sent after all."""
    house.sink.plan = lambda _notification: Reply(503)
    assert house.cli("partitions", "pause", "access-prod", "--reason", "drill").exit_code == 0
    house.submit(1)
    house.until(lambda: house.rows("SELECT 1 FROM outbox WHERE last_error IS NOT NULL"), "it was tried")
    with drilled(GUIDE, "GitlabSyncOutboxBacklog", house) as drill:
        look(drill, "gitlab-sync outbox list --limit 3")
        look(drill, "gitlab-sync config check")
    house.rows("UPDATE outbox SET dead_at = UTC_TIMESTAMP(6), lease_token = NULL WHERE delivered_at IS NULL")
    with drilled(GUIDE, "GitlabSyncNotificationsGivenUp", house) as drill:
        look(drill, "gitlab-sync outbox list --dead")
        look(drill, "gitlab-sync outbox list --limit 3")
        look(drill, "gitlab-sync config check")
        house.sink.plan = lambda _notification: Reply()
        look(drill, "gitlab-sync outbox replay --all-dead")
        house.until(lambda: not house.rows("SELECT 1 FROM outbox WHERE delivered_at IS NULL"), "it is sent")
