"""Rows that hold words of another release: read, shown, carried on, by this release and the one before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import httpx2

from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.verdict import BlockReason, SettleReason
from tests.support.commands import PROJECT
from tests.support.installation import TOKEN, Installation, Program, installed
from tests.support.sink import SinkServer

LATER: Final = "of_a_later_release"
#: Words of this release at which the one before stumbles; each stands in guides/UPGRADING.md.
EXCEPTIONS: Final[frozenset[str]] = frozenset()


def published(house: Installation) -> str:
    """One request in a batch whose pipeline runs for ever; its operation_id."""
    house.gitlab.control.set_plan(PROJECT, "running")
    operation_id = house.submit(1)
    house.until(lambda: house.rows("SELECT 1 FROM merge_batch WHERE pipeline_id > 0"), "it is published")
    return operation_id


def pipeline_ends_well(house: Installation) -> None:
    """Let the pipeline of the one merge request succeed."""
    ((pipeline_id,),) = house.rows("SELECT pipeline_id FROM merge_batch WHERE pipeline_id > 0")
    house.gitlab.control.set_pipeline(PROJECT, pipeline_id, "success")


def test_a_batch_under_a_policy_of_a_later_release_waits_for_people(
    tmp_path: Path, one_database_url: str, gitlab: Running, sink: SinkServer
) -> None:
    """An unknown way to merge never merges by itself; a person's merge lands, with its odd history."""
    with installed(tmp_path / "house", one_database_url, gitlab, sink) as house:
        operation_id = published(house)
        house.stop()
        house.rows(
            "UPDATE merge_batch"
            " SET policy = JSON_SET(policy, '$.merge', %s, '$.on_failure', %s, '$.mood', 1)",
            LATER,
            LATER,
        )
        house.rows("UPDATE operation_audit SET via = 'carrier_pigeon'")
        pipeline_ends_well(house)
        house.start()
        ((iid,),) = house.rows("SELECT mr_iid FROM merge_batch")
        looked = json.loads(house.cli("reconcile", "--json").out)
        assert [one["result"] for one in looked] == ["waiting"]
        gitlab.control.merge(PROJECT, iid)
        house.until_landed(operation_id)
        told = house.cli("requests", "show", operation_id)
        assert (told.exit_code, "carrier_pigeon" in told.out) == (0, True), told
        url = f"{house.replicas[0].url}/api/v1/requests/{operation_id}"
        answer = httpx2.get(url, headers={"Authorization": f"Bearer {TOKEN}"})
        assert (answer.status_code, "carrier_pigeon" in answer.text) == (200, True)
        assert "Traceback" not in house.replicas[0].log


def test_a_merge_request_closed_for_a_reason_of_a_later_release_blames_nobody(
    tmp_path: Path, one_database_url: str, gitlab: Running, sink: SinkServer
) -> None:
    """The newer replica died between close and settlement; the older one ends it, the members land anew."""
    with installed(tmp_path / "house", one_database_url, gitlab, sink) as house:
        operation_id = published(house)
        house.stop()
        house.rows("UPDATE merge_batch SET ending_code = %s, ending_members = 'spare'", LATER)
        ((iid,),) = house.rows("SELECT mr_iid FROM merge_batch")
        gitlab.control.close_mr(PROJECT, iid)
        gitlab.control.set_plan(PROJECT, "success", duration_s=0.05)
        house.start()
        house.until_landed(operation_id)
        assert house.rows("SELECT reason_code FROM merge_batch ORDER BY id")[0] == (b"given_up",)
        assert house.rows("SELECT rounds FROM operation") == [(1,)]  # the one that landed it, no other


def test_a_later_release_s_block_stays_until_somebody_knows_it(
    tmp_path: Path, one_database_url: str, gitlab: Running, sink: SinkServer
) -> None:
    """Shown, counted, left alone: by its word; what it means is not guessed."""
    with installed(tmp_path / "house", one_database_url, gitlab, sink) as house:
        published(house)
        house.rows("UPDATE merge_batch SET status = 4, reason_code = %s, version = version + 1", LATER)
        assert 'reason="other"' in metrics_of(house)
        assert LATER in house.cli("batches", "list", "--json").out
        assert json.loads(house.cli("reconcile", "--json").out)[0]["result"] == "blocked"
        assert house.cli("doctor", "--invariants").exit_code == 0


def metrics_of(house: Installation) -> str:
    """What the first replica counts, once the database was asked for it."""
    scraped = [""]

    def told() -> bool:
        scraped[0] = httpx2.get(f"{house.replicas[0].url}/metrics").text
        return "gitlab_sync_blocked_batches{" in scraped[0]

    house.until(told, "a blocked batch is counted")
    return scraped[0]


def test_the_release_before_reads_every_word_of_this_one(
    tmp_path: Path, one_database_url: str, gitlab: Running, sink: SinkServer, previous: Program
) -> None:
    """Every reason to block and to end, in a list, a scrape, a look; it changes nothing unknown to it."""
    blocks = [reason for reason in BlockReason if reason not in EXCEPTIONS]
    with installed(tmp_path / "house", one_database_url, gitlab, sink, names=()) as house:
        line = "  {}: {{project: platform/access, target_branch: main}}\n"
        more = "".join(line.format(f"blocked-{reason}") for reason in blocks)
        house.partitions_file.write_text(house.partitions_file.read_text() + more)
        for reason in blocks:
            copy_of_a_batch(house, f"blocked-{reason}", 4, reason, via=None)
        for ended in set(SettleReason) - EXCEPTIONS:
            copy_of_a_batch(house, f"ended-{ended}", 3, ended, via="poller")
        house.start("one", previous)
        listed = json.loads(house.cli("batches", "list", "--limit", "200", "--json", program=previous).out)
        told = {one["reason"]["code"] for one in listed["items"]}
        assert told == {*blocks, *(set(SettleReason) - EXCEPTIONS)}
        scraped = metrics_of(house)
        assert {reason for reason in blocks if f'reason="{reason}"' not in scraped} == set()
        assert house.cli("reconcile", program=previous).exit_code == 0
        assert "Traceback" not in house.replicas[0].log


def copy_of_a_batch(house: Installation, key: str, status: int, reason: str, *, via: str | None) -> None:
    """A batch without members that stands where it stands; nobody has to look at it for a day."""
    now, tomorrow = "UTC_TIMESTAMP(6)", "UTC_TIMESTAMP(6) + INTERVAL 1 DAY"
    settled, due = (now, "'9999-12-31'") if via else ("NULL", tomorrow)
    house.rows(
        "INSERT INTO merge_batch (partition_key, status, attempt_token, marker, policy, base_sha, project_id,"
        " reason_code, reason_text, settled_via, settled_at, next_check_at, deadline_at, created_at,"
        " updated_at) VALUES (%s, %s, RANDOM_BYTES(16), RANDOM_BYTES(16), %s, %s, 1, %s, 'x', %s,"
        f" {settled}, {due}, {tomorrow}, {now}, {now})",
        key,
        status,
        json.dumps({"key": key, "project": PROJECT, "target_branch": "main"}),
        "a" * 40,
        reason,
        via,
    )
