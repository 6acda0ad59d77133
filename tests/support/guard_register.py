"""Every guard of the service, what it protects, how it is taken away, and the test that goes red then.

A register, not a list of wishes: `tests/races/test_guard_register.py` takes each one away and runs the test
that is named beside it. Who adds a UNIQUE key or a guarded UPDATE must add a line here, or say in `NOT_HERE`
why not.
"""

from __future__ import annotations

from typing import Final

from gitlab_sync import batch_writes, rounds, settlement
from gitlab_sync.moves import approve
from gitlab_sync.states import Action, BatchStatus, OperationStatus
from tests.support.commits import never_sent
from tests.support.guard_removal import (
    Kind,
    any_number_starts,
    as_it_was,
    code,
    every_settlement_wins,
    key,
    members_first,
    nothing_to_say,
    where,
)
from tests.support.replicas import LANDED
from tests.support.rows import REFUSED

RUNNING, BLOCKED = BatchStatus.RUNNING, BatchStatus.BLOCKED

_FACT: Final = "integration/test_edges_batch.py::test_a_fact_is_written_exactly_from_its_status_and_version"
_GRID: Final = "races/test_stale_batch_writes.py::test_no_stale_write_moves_a_batch"
_MEMBERS: Final = "races/test_stale_writes.py::test_members_that_moved_on_are_not_moved_by_their_old_batch"
_ROWS: Final = "races/test_stale_writes.py::test_a_claimed_row_is_neither_claimed_again_nor_withdrawn"
_TWIN_ROW: Final = "races/test_guards_alone.py::test_a_table_refuses_a_second_row_under_its_key"
_REBUILD: Final = "integration/test_edges_rebuild.py::test_a_rebuild_is_counted_and_recorded_by_one_of_two"
_RELEASE: Final = (
    "integration/test_edges_operation_batch.py"
    "::test_the_release_itself_moves_nobody_who_is_not_merging_in_the_batch"
)
_STRANGERS: Final = (
    "integration/test_edges_operation_batch.py::test_a_settlement_leaves_whoever_is_not_merging_in_it"
)
_MOVE: Final = "races/test_stale_writes.py::test_no_stale_move_changes_an_operation"
_START: Final = "races/test_stale_writes.py::test_no_stale_start_changes_a_relation"
_TAKEN_OVER: Final = "races/test_guards_alone.py::test_a_lease_that_was_taken_over_writes_nothing"
_VERSION: Final = " AND b.version = %(version)s"
_FACTS: Final = {
    "batch_record_head_if_running": ("record_head", " AND b.status = 1"),
    "batch_record_merge_request_if_running": ("record_merge_request", " AND b.status = 1"),
    "batch_record_merge_asked_if_running": ("record_merge_asked", " AND b.status = 1"),
    "batch_keep_running_if_running": ("keep_running", " AND b.status = 1"),
    "batch_block_if_running": ("block", " AND b.status = 1"),
    "batch_unblock_if_blocked": ("unblock", " AND b.status = 4"),
}

KEYS: Final = (
    key(
        "merge_batch.uk_active_slot",
        "I1",
        "races/test_one_active_batch.py::test_eight_claimers_of_one_partition_leave_one_active_batch",
    ),
    key("merge_batch.uk_merge_request", "one batch for a merge request", _TWIN_ROW, table="merge_batch"),
    key("merge_batch_member.uk_member", "I2", _TWIN_ROW, table="merge_batch_member"),
    key(
        "operation.uk_operation_operation_id",
        "I4",
        "integration/test_submit_repeats.py::test_an_operation_id_is_already_queued_also_after_it_has_landed",
        action=Action.AMEND,
    ),
    key("merge_batch_request.uk_operation_id", "I4", _TWIN_ROW, table="merge_batch_request"),
    key("operation_audit.uk_audit", "I6, history", _TWIN_ROW, table="operation_audit"),
    key(
        "binding.uk_relation",
        "I5",
        "races/test_one_row_for_each_relation.py::test_ten_first_requests_for_one_relation_let_one_in",
    ),
    key("binding_history.uk_binding_history", "I6, history", _TWIN_ROW, table="binding_history"),
    key("idempotency_record.uk_request_id", "I4", _TWIN_ROW, table="idempotency_record"),
    key(
        "webhook_delivery.uk_delivery_key",
        "a delivery is taken once",
        "races/test_hints_at_once.py::test_a_delivery_that_arrives_ten_times_at_once_is_taken_once",
    ),
    key("outbox.uk_subject_event", "told once", _TWIN_ROW, table="outbox"),
)

BATCHES: Final = (
    *(
        where(name, guard, "I6", _FACT, name=fact, status=RUNNING if fact == "unblock" else BLOCKED)
        for name, (fact, guard) in _FACTS.items()
    ),
    *(
        where(name, _VERSION, "I6", _FACT, name=fact, status=BLOCKED if fact == "unblock" else RUNNING)
        for name, (fact, _) in _FACTS.items()
    ),
    where("batch_record_pipeline_if_active", " AND b.status = %(before)s", "I6", _GRID),
    where("batch_record_pipeline_if_active", _VERSION, "I6", _GRID),
    where("batch_record_ending_if_active", " AND b.status = %(before)s", "I6", _GRID),
    where("batch_record_ending_if_active", _VERSION, "I6", _GRID),
    where(
        "batch_record_ending_if_active",
        "\n  AND b.ending_code IS NULL",
        "the first reason stays",
        "races/test_guards_alone.py::test_why_a_batch_is_given_up_is_recorded_once",
    ),
    where(
        "batch_settle_if_status",
        " AND b.status = %(before)s",
        "I6, one end",
        "integration/test_edges_settle.py::test_a_batch_that_was_read_otherwise_is_lost_and_no_row_changes",
        is_now=BLOCKED,
    ),
    where(
        "batch_settle_if_status",
        _VERSION,
        "I6, one end",
        "integration/test_edges_settle.py::test_a_batch_whose_version_has_moved_is_not_settled",
        status=RUNNING,
    ),
    where("batch_count_attempt_if_running", _VERSION, "I6", _REBUILD),
    where("batch_record_rebuild_if_running", _VERSION, "I6", _REBUILD),
    *(
        where(
            name,
            " AND b.status = 1",
            "I6",
            "races/test_guards_alone.py::test_a_blocked_batch_is_not_rebuilt",
            name=fact,
        )
        for name, fact in (
            ("batch_count_attempt_if_running", "count_attempt"),
            ("batch_record_rebuild_if_running", "record_rebuild"),
        )
    ),
    *(
        where(
            f"batch_{fact}_if_running",
            guard,
            "a fact is recorded once",
            "integration/test_edges_batch.py::test_a_fact_of_publishing_is_recorded_once",
            name=fact,
        )
        for fact, guard in (
            ("record_head", " AND b.head_sha IS NULL"),
            ("record_merge_request", " AND b.mr_iid IS NULL"),
        )
    ),
    where(
        "batch_keep_running_if_running",
        " AND b.head_sha IS NULL",
        "nobody leaves what is pushed",
        "integration/test_edges_batch.py::test_nobody_is_released_once_the_head_is_pushed",
    ),
)

MEMBERS: Final = (
    where("operation_move_if_status", " AND o.status = %(before)s", "I6", _MOVE),
    where("operation_move_if_status", " AND o.version = %(version)s", "I6", _MOVE),
    where("operation_claim_if_queued", " AND o.status = 2", "I2", _MEMBERS),
    where("operation_land_if_merging", " AND o.status = 3", "I2, I6", _MEMBERS),
    where("operation_fail_or_requeue_if_merging", " AND o.status = 3", "I2, I6", _MEMBERS),
    where(
        "operation_land_if_merging",
        " AND o.batch_id = m.batch_id",
        "I2, earlier lives",
        _STRANGERS,
        ending=LANDED,
    ),
    where(
        "operation_fail_or_requeue_if_merging",
        " AND o.batch_id = m.batch_id",
        "I2, earlier lives",
        _STRANGERS,
        ending=REFUSED,
    ),
    where(
        "operation_release_if_merging", " AND o.status = 3", "I2, I6", _RELEASE, after=OperationStatus.FAILED
    ),
    where(
        "operation_release_if_merging",
        "o.batch_id = %(batch_id)s AND ",
        "I2, earlier lives",
        _RELEASE,
        after=OperationStatus.FAILED,
    ),
    where("request_claim_if_waiting", "WHERE r.batch_id IS NULL", "I2", _ROWS),
    where("request_delete_waiting", " AND batch_id IS NULL", "I2", _ROWS),
    where(
        "request_insert_moved",
        " AND o.status = 2",
        "nothing waits that nobody approved",
        "races/test_guards_alone.py::test_what_nobody_has_approved_does_not_wait",
    ),
    where("binding_start_if_unchanged", "b.status = j.before_status AND ", "I5, I6", _START),
    where("binding_start_if_unchanged", " AND b.version = j.version", "I5, I6", _START),
    where(
        "binding_follow_moved",
        "\n  AND b.operation_id = o.operation_id",
        "I5, earlier lives",
        "races/test_earlier_lives.py"
        "::test_a_landing_does_not_touch_a_relation_that_belongs_to_a_later_operation",
    ),
)

TOKENS: Final = (
    where(
        "batch_lock_token",
        " AND b.attempt_token = %(token)s",
        "a lost COMMIT's answer",
        "races/test_lost_commits.py::test_a_settlement_whose_commit_is_unanswered_is_won_and_counted_once",
        act=never_sent,
    ),
    where(
        "operation_lock_token",
        " AND o.attempt_token = %(token)s",
        "a lost COMMIT's answer",
        "races/test_lost_commits.py::test_a_retry_whose_commit_is_unanswered_moves_the_request_once",
        act=never_sent,
    ),
    where(
        "audit_lock_move",
        "WHERE a.operation_id",
        "a lost COMMIT's answer",
        "crash/test_lost_commits_of_every_flow.py"
        "::test_a_move_that_a_round_has_covered_meanwhile_is_not_told_as_refused",
        instead="WHERE FALSE AND a.operation_id",
        start="PENDING",
        verb=approve,
    ),
    *(
        where(f"outbox_{name}", "x.lease_token = %(token)s AND ", "delivery in order", _TAKEN_OVER, name=name)
        for name in ("mark_delivered", "postpone_if_leased", "bury_if_leased", "return_if_leased")
    ),
)

CHECKS: Final = (
    code(
        "settlement: one affected row",
        Kind.ROWS,
        "I6, one end",
        every_settlement_wins,
        "races/test_statement_counts.py::test_who_loses_a_settlement_has_run_one_guarded_write",
    ),
    code(
        "settlement: as many operations as requests",
        Kind.ROWS,
        "I2",
        nothing_to_say(settlement, "_require_same"),
        "races/test_guards_alone.py::test_a_settlement_that_misses_a_member_is_rolled_back",
    ),
    code(
        "claim: as many taken as read",
        Kind.ROWS,
        "I2",
        nothing_to_say(rounds, "_require_all"),
        "races/test_claimed_once.py::test_a_withdrawal_between_reading_and_claiming_leaves_the_request_out",
    ),
    code(
        "fact: one affected row",
        Kind.ROWS,
        "I6",
        nothing_to_say(batch_writes, "require_won"),
        _FACT,
        name="record_head",
        status=BLOCKED,
    ),
    code(
        "submit: as many relations started as planned",
        Kind.ROWS,
        "I5",
        any_number_starts,
        "races/test_one_row_for_each_relation.py"
        "::test_a_rival_that_read_the_relation_before_the_winner_committed_changes_nothing",
    ),
    code(
        "settlement: the batch write first",
        Kind.ORDER,
        "lock order, LOST writes nothing",
        members_first,
        "races/test_statement_counts.py::test_who_loses_a_settlement_has_run_one_guarded_write",
    ),
    code(
        "ending: close, then read again",
        Kind.REREAD,
        "merged wins",
        as_it_was,
        "races/test_guards_alone.py::test_a_merge_that_is_quicker_than_our_close_lands",
    ),
)

REGISTER: Final = (*KEYS, *BATCHES, *MEMBERS, *TOKENS, *CHECKS)

#: Guards without a mutation, and why.
NOT_HERE: Final[dict[str, str]] = {}  # none so far
