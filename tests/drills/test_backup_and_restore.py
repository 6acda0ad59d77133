"""RECOVERY.md's backup and restore: dumped in the middle of load, lost, restored into another server, mended.

What the dump meets: a batch that is claimed and not yet published, requests that wait, one of which is closed
later and one whose file is written again later. After it everything lands, more is asked for and lands, and
a merge request stays open. Then the database is gone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from gitlab_sync.sandbox.database import DatabaseAddress, Durability, Flavour, PrivateServer
from gitlab_sync.setting_values import parse_database_url
from tests.conftest import MakePrivateServer
from tests.drills.backups import CREATE, DATABASE, DUMP, LOAD, clients, for_server, options_file
from tests.drills.scenes import NO_ID, offered
from tests.support.commands import PARTITION, PROJECT
from tests.support.guide import Drill, drilled
from tests.support.installation import Installation, put
from tests.support.landings import landings_in
from tests.support.portal import CALLERS, resubmit, submitting
from tests.support.servers import RunningServer

GUIDE: Final = "RECOVERY.md"
EARLIER, LATER, WITHDRAWN, OPEN = 9001, 9002, 9003, 9004  # numbers of requests, past those of the load
SHARED: Final = "access/shared.txt"
STRAY: Final = (
    "problem: stray branch, platform/access: gitlab-sync/access-prod/12-…: this database has no such batch"
)


@dataclass(slots=True)
class Story:
    """What was asked for, and when."""

    before: dict[int, str]  # acknowledged before the dump began
    asked: dict[int, str]  # acknowledged at any time
    withdrawn: str


@pytest.mark.timeout(300)
def test_restore_an_older_state(
    house: Installation, server: RunningServer, make_private_server: MakePrivateServer
) -> None:
    """Everything that was ever acknowledged lands, once; what is told twice is told under another name."""
    fresh = make_private_server(Durability.FAST)
    options_file(house.folder, "backup.cnf", server.tcp_address)
    options_file(house.folder, "restore.cnf", fresh.tcp_address)
    with drilled(GUIDE, "Back up", house) as backup:
        story = lived(house, backup, server.flavour)
        house.kill()
        with drilled(GUIDE, "Restore an older state", house) as drill:
            restored(house, drill, fresh)
            present = {row[0] for row in house.rows("SELECT LOWER(HEX(operation_id)) FROM operation")}
            assert {one.replace("-", "") for one in story.before.values()} <= present
            strays(house, drill)
            made_up_for(house, drill, story)
            house.until_landed(*story.asked.values())
            drill.sees(
                house.cli("doctor", "--strays").out,
                "nothing found: GitLab holds nothing of ours that is forgotten here",
            )
        rows = backup.run("gitlab-sync doctor --invariants --full")
        backup.sees(rows.out, "nothing found: the invariants hold")
        require_whole(house, story)
        house.kill()


def lived(house: Installation, backup: Drill, flavour: Flavour) -> Story:
    """Load, the dump in the middle of it, and what comes after."""
    control = house.gitlab.control
    with submitting(house) as portal:
        portal.until_more(CALLERS)
        house.until(lambda: landings_in(control.log(PROJECT)), "some of it has landed")
        control.add_fault("status", path="/repository/commits$", method="POST", status=502)
        house.until(lambda: control.faults()[0]["fired"], "a batch is claimed and cannot be published")
        assert house.rows(_CLAIMED)
        house.submit(EARLIER, edits=[put(SHARED, "earlier\n")])
        withdrawn = house.submit(WITHDRAWN)
        portal.until_more(CALLERS)
        before = dict(portal.acknowledged)
        name = parse_database_url(house.admin_url).name
        real = for_server(flavour) | {" gitlab_sync >": f" {name} >"}
        backup.shell(DUMP, path=clients(), instead=real)
        assert house.cli("requests", "close", withdrawn, "--reason", "no more").exit_code == 0
        control.clear_faults()
        portal.until_more(CALLERS)
    house.until(lambda: not house.rows("SELECT 1 FROM operation WHERE status IN (2, 3)"), "all has landed")
    house.submit(LATER, edits=[put(SHARED, "later\n")])
    house.until(lambda: control.files(PROJECT)[SHARED] == "later\n", "what came later has landed")
    offered(house, OPEN)
    house.until(lambda: not house.rows(_UNTOLD), "what has landed is told")
    return Story(before, dict(portal.acknowledged), withdrawn)


_UNTOLD: Final = "SELECT 1 FROM outbox WHERE event = 'request.merged' AND delivered_at IS NULL"
_CLAIMED: Final = "SELECT 1 FROM merge_batch WHERE status = 1 AND head_sha IS NULL"


def restored(house: Installation, drill: Drill, server: PrivateServer) -> None:
    """Steps 1 to 4."""
    drill.shell(CREATE, path=clients())
    drill.shell(LOAD, path=clients())
    house.move_database(server.dsn(DATABASE))
    for table in ("outbox", "merge_batch"):
        ((most,),) = house.rows(f"SELECT MAX(id) FROM {table}")
        beyond = {"1000000": f"{most + 1_000_000}"}
        drill.sql(f"ALTER TABLE {table} AUTO_INCREMENT = 1000000;", instead=beyond)
    drill.run("gitlab-sync migrate --if-needed")
    rows = drill.run("gitlab-sync doctor --invariants --full")
    drill.sees(rows.out, "nothing found: the invariants hold")
    paused = drill.run("gitlab-sync partitions pause access-prod --reason 'restored from a backup'")
    drill.sees(paused.out, "access-prod is paused")


def strays(house: Installation, drill: Drill) -> None:
    """Step 5: what was active settles, what nobody knows is told and taken away."""
    control = house.gitlab.control
    house.start()
    drill.run("gitlab-sync reconcile")
    house.until(lambda: not house.rows("SELECT 1 FROM merge_batch WHERE status = 1"), "it settles")
    listed = drill.run("gitlab-sync batches list --status RUNNING")
    drill.sees(listed.out, "there are no such batches")
    assert house.rows("SELECT status FROM merge_batch ORDER BY id DESC LIMIT 1") == [(2,)]
    told = drill.run("gitlab-sync doctor --strays", exit_code=1).out
    drill.sees(told, STRAY)
    project = control.audit()["projects"][PROJECT]
    (open_one,) = (mr for mr in project["merge_requests"] if mr["state"] == "opened")
    assert open_one["source_branch"] in told
    control.close_mr(PROJECT, open_one["iid"])
    control.delete_branch(PROJECT, open_one["source_branch"])
    control.set_plan(PROJECT, "success", duration_s=0.05)


def made_up_for(house: Installation, drill: Drill, story: Story) -> None:
    """Steps 6 and 7: whoever submits does again what they did; then the rounds begin."""
    again = resubmit(house, story.asked)
    assert {number: again[number] for number in story.before} == story.before
    story.asked = again
    queued = json.loads(house.cli("requests", "list", "--status", "QUEUED", "--limit", "200", "--json").out)
    assert story.withdrawn in {one["operation_id"] for one in queued["items"]}
    drill.run("gitlab-sync requests list --status QUEUED")
    drill.run(
        f"gitlab-sync requests close {NO_ID} --reason 'landed before the restore'",
        instead={NO_ID: story.withdrawn},
    )
    story.asked |= {
        EARLIER: house.submit(EARLIER, edits=[put(SHARED, "earlier\n")]),
        LATER: house.submit(LATER, edits=[put(SHARED, "later\n")]),
        OPEN: house.submit(OPEN),
    }
    resumed = drill.run("gitlab-sync partitions resume access-prod")
    drill.sees(resumed.out, "access-prod is not paused")


def require_whole(house: Installation, story: Story) -> None:
    """The files are those asked for last; each batch landed once; no name was given to two tellings."""
    wanted = {
        f"access/item-{number}.txt": f"item {number}\n" for number in story.asked if number not in _SHARED
    }
    assert house.files() == wanted | {SHARED: "later\n"}
    assert set(landings_in(house.gitlab.control.log(PROJECT)).values()) == {1}
    contents: defaultdict[str, set[bytes]] = defaultdict(set)
    told: defaultdict[str, set[str]] = defaultdict(set)
    for one in house.sink.received:
        contents[one.id].add(one.body)
        if one.type == "request.merged":
            told[str(one.operation_id)].add(one.id)
    assert [name for name, bodies in contents.items() if len(bodies) > 1] == []
    twice = [names for names in told.values() if len(names) > 1]
    assert twice, "the guide says that a landing is told again after a restore"
    assert {str(one) for one in story.asked.values()} <= set(told)


_SHARED: Final = (EARLIER, LATER)


@contextmanager
def empty_database_beside(url: str) -> Iterator[str]:
    """The address of another database on the same server, gone afterwards."""
    address, name = DatabaseAddress.from_url(url), f"{parse_database_url(url).name}_anew"
    address.create_database(name)
    try:
        yield address.dsn(name)
    finally:
        address.drop_database(name)


def test_begin_anew_without_a_backup(one_house: Installation) -> None:
    """Relations come back by the edits that brought them; nothing is written twice."""
    house = one_house
    house.submit(1)
    house.submit(2)
    house.until_landed()
    offered(house, 3)
    house.kill()
    landed = len(house.gitlab.control.log(PROJECT))
    with (
        empty_database_beside(house.admin_url) as url,
        drilled(GUIDE, "Begin anew without a backup", house) as drill,
    ):
        house.move_database(url)
        drill.sees(drill.run("gitlab-sync migrate").out, "applied: 0001_initial.sql")
        for table in ("outbox", "merge_batch"):
            drill.sql(f"ALTER TABLE {table} AUTO_INCREMENT = 1000000;")
        drill.run("gitlab-sync partitions pause access-prod --reason 'begun anew'")
        house.start()
        told = drill.run("gitlab-sync doctor --strays", exit_code=1)
        drill.sees(told.out, STRAY)
        control = house.gitlab.control
        project = control.audit()["projects"][PROJECT]
        (open_one,) = (mr for mr in project["merge_requests"] if mr["state"] == "opened")
        control.close_mr(PROJECT, open_one["iid"])
        control.delete_branch(PROJECT, open_one["source_branch"])
        control.set_plan(PROJECT, "success", duration_s=0.05)
        amended = request_of_a_relation(house, 1)
        assert amended == (409, "relation-busy")
        operations = [house.submit(1), house.submit(2)]
        drill.run("gitlab-sync partitions resume access-prod")
        house.until_landed(*operations)
        assert house.rows("SELECT DISTINCT reason_code FROM merge_batch") == [(b"already_there",)]
        assert len(control.log(PROJECT)) == landed
        assert house.rows("SELECT MIN(id) FROM merge_batch") == [(1_000_000,)]
        assert house.cli("doctor", "--strays").exit_code == 0
        house.kill()


def request_of_a_relation(house: Installation, number: int) -> tuple[int, str]:
    """An amend of a relation that the database does not know; its answer."""
    body = {
        "partition": PARTITION,
        "subject": f"user:{number}",
        "target": "db-orders",
        "action": "amend",
        "edits": [put(f"access/item-{number}.txt", "amended\n")],
        "title": "amend",
        "requested_by": "alice",
    }
    answer = house.post(body)
    return answer.status_code, str(answer.json()["type"]).rpartition(":")[2]
