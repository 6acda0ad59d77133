-- name: batch_insert_running
-- Takes the partition's slot: a duplicate of uk_active_slot means another batch is active.
-- First statement of its transaction; after a 1062 the caller rolls back at once.
-- index: none: inserts its own rows
INSERT INTO merge_batch
  (partition_key, status, version, attempt_token, marker, policy, base_sha, project_id,
   next_check_at, deadline_at, created_at, updated_at)
VALUES
  (%(partition_key)s, 1, 1, %(token)s, %(marker)s, %(policy)s, %(base_sha)s, %(project_id)s,
   UTC_TIMESTAMP(6) + INTERVAL %(check_in_s)s SECOND,
   UTC_TIMESTAMP(6) + INTERVAL %(deadline_s)s SECOND,
   UTC_TIMESTAMP(6), UTC_TIMESTAMP(6));

-- name: batch_get
-- One batch with its recorded facts; the deadline is judged by the database's clock.
-- index: merge_batch.PRIMARY
SELECT b.id, b.partition_key, b.status, b.version, b.marker, b.attempt, b.policy, b.base_sha, b.head_sha,
       b.project_id, b.mr_iid, b.mr_url, b.pipeline_id, b.published_at, b.merge_asked_at, b.merge_asks,
       b.landed_sha, b.ending_code, b.ending_members, b.reason_code, b.reason_text,
       b.settled_via, b.settled_at, b.next_check_at, b.deadline_at, b.created_at, b.updated_at,
       b.deadline_at <= UTC_TIMESTAMP(6) AS is_past_deadline,
       TIMESTAMPDIFF(MICROSECOND, b.created_at, UTC_TIMESTAMP(6)) AS age_us,
       TIMESTAMPDIFF(MICROSECOND, b.published_at, UTC_TIMESTAMP(6)) AS publish_age_us,
       TIMESTAMPDIFF(MICROSECOND, b.merge_asked_at, UTC_TIMESTAMP(6)) AS merge_asked_age_us
FROM merge_batch b
WHERE b.id = %(batch_id)s;

-- name: batch_find_active
-- The active batch of a partition, as a hint before a claim; only the slot decides.
-- index: merge_batch.uk_active_slot
SELECT b.id, b.status, b.version
FROM merge_batch b
WHERE b.active_slot = %(partition_key)s;

-- name: batch_find_by_merge_request
-- The batch that a merge request belongs to.
-- index: merge_batch.uk_merge_request
SELECT b.id, b.status
FROM merge_batch b
WHERE b.project_id = %(project_id)s AND b.mr_iid = %(mr_iid)s;

-- name: batch_lock_token
-- Locking read for the commit resolver: does the row carry the token of the attempt whose answer was lost?
-- index: merge_batch.PRIMARY
SELECT b.id, b.status, b.version
FROM merge_batch b
WHERE b.id = %(batch_id)s AND b.attempt_token = %(token)s
FOR UPDATE;

-- name: batch_select_due
-- Active batches that are due for a look. Rows another replica is taking at this moment are skipped.
-- index: merge_batch.ix_batch_status_check
SELECT b.id, b.status, b.version, b.project_id, b.mr_iid, b.deadline_at <= UTC_TIMESTAMP(6) AS is_past_deadline,
       UTC_TIMESTAMP(6) AS taken_at
FROM merge_batch b FORCE INDEX (ix_batch_status_check)
WHERE b.status IN (1, 4) AND b.next_check_at <= UTC_TIMESTAMP(6)
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED;

-- name: batch_select_due_settled
-- Settled batches whose clean-up at GitLab is not done. Apart from the active ones, so that they never crowd those out.
-- index: merge_batch.ix_batch_status_check
SELECT b.id, b.status, b.version, b.project_id, NULL AS mr_iid, b.deadline_at <= UTC_TIMESTAMP(6) AS is_past_deadline,
       UTC_TIMESTAMP(6) AS taken_at
FROM merge_batch b FORCE INDEX (ix_batch_status_check)
WHERE b.status IN (2, 3) AND b.next_check_at <= UTC_TIMESTAMP(6)
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED;

-- name: batch_postpone_due
-- A soft lease, not a state change: the replica that moves next_check_at is the one that looks. Active ones get a
-- moment that all share, so that they are due together and one list answers for all of a project.
-- A dead replica's batch becomes due again by time alone. Never later than the deadline, so the sweep needs no query
-- of its own. A clean-up that keeps failing is tried less and less often.
-- index: merge_batch.PRIMARY
UPDATE JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN merge_batch b FORCE INDEX (PRIMARY) ON b.id = j.id
SET b.next_check_at = CASE
    WHEN b.settled_at IS NULL AND b.deadline_at > UTC_TIMESTAMP(6)
    THEN LEAST(b.deadline_at, CAST(%(next_look_at)s AS DATETIME(6)))
    WHEN b.settled_at IS NULL THEN CAST(%(next_look_at)s AS DATETIME(6))
    ELSE UTC_TIMESTAMP(6) + INTERVAL GREATEST(%(check_in_s)s,
         COALESCE(TIMESTAMPDIFF(SECOND, b.settled_at, UTC_TIMESTAMP(6)) / 4, 0)) SECOND END
WHERE b.status IN (1, 2, 3, 4);

-- name: batch_check_in
-- When to look at an active batch again; not a state change.
-- index: merge_batch.PRIMARY
UPDATE merge_batch b FORCE INDEX (PRIMARY)
SET b.next_check_at = CASE
    WHEN b.deadline_at > UTC_TIMESTAMP(6)
    THEN LEAST(b.deadline_at, UTC_TIMESTAMP(6) + INTERVAL %(check_in_s)s SECOND)
    ELSE UTC_TIMESTAMP(6) + INTERVAL %(check_in_s)s SECOND END
WHERE b.id = %(batch_id)s AND b.status IN (1, 4);

-- name: batch_wake_by_id
-- A webhook says look now; not a state change. Survives the receiver's death: the poller finds the batch due.
-- A FAILED batch becomes due for its clean-up again: an event of it means that something of it is still there.
-- index: merge_batch.PRIMARY
UPDATE merge_batch b FORCE INDEX (PRIMARY)
SET b.next_check_at = UTC_TIMESTAMP(6)
WHERE b.id = %(batch_id)s AND b.status IN (1, 3, 4);

-- name: batch_record_head_if_running
-- Publish, first half: the commit exists. Guard: running, version as read, no head recorded yet.
-- index: merge_batch.PRIMARY
UPDATE merge_batch b FORCE INDEX (PRIMARY)
SET b.head_sha = %(head_sha)s, b.version = b.version + 1, b.attempt_token = %(token)s,
    b.updated_at = UTC_TIMESTAMP(6)
WHERE b.id = %(batch_id)s AND b.status = 1 AND b.version = %(version)s AND b.head_sha IS NULL;

-- name: batch_record_merge_request_if_running
-- Publish, second half: the merge request exists. Guard: running, version as read, none recorded yet.
-- index: merge_batch.PRIMARY
UPDATE merge_batch b FORCE INDEX (PRIMARY)
SET b.project_id = %(project_id)s, b.mr_iid = %(mr_iid)s, b.mr_url = %(mr_url)s, b.published_at = UTC_TIMESTAMP(6),
    b.version = b.version + 1, b.attempt_token = %(token)s, b.updated_at = UTC_TIMESTAMP(6)
WHERE b.id = %(batch_id)s AND b.status = 1 AND b.version = %(version)s AND b.mr_iid IS NULL;

-- name: batch_count_attempt_if_running
-- A rebuild, first half, before the push: who is counted may push. What is asked of GitLab for the recorded head is
-- counted too, where people merge. Guard: running, version as read, a head recorded.
-- index: merge_batch.PRIMARY
UPDATE merge_batch b FORCE INDEX (PRIMARY)
SET b.attempt = b.attempt + 1, b.merge_asks = b.merge_asks + %(asks)s, b.version = b.version + 1, b.attempt_token = %(token)s,
    b.updated_at = UTC_TIMESTAMP(6)
WHERE b.id = %(batch_id)s AND b.status = 1 AND b.version = %(version)s AND b.head_sha IS NOT NULL;

-- name: batch_record_rebuild_if_running
-- A rebuild, second half: the branch stands on a new base. What was known of the old head is forgotten, and a pipeline
-- has its time to appear anew. Guard: running, version as read, the head that was replaced.
-- index: merge_batch.PRIMARY
UPDATE merge_batch b FORCE INDEX (PRIMARY)
SET b.base_sha = %(base_sha)s, b.head_sha = %(head_sha)s, b.published_at = UTC_TIMESTAMP(6), b.pipeline_id = NULL,
    b.merge_asked_at = NULL, b.merge_asks = 0,
    b.version = b.version + 1, b.attempt_token = %(token)s, b.updated_at = UTC_TIMESTAMP(6)
WHERE b.id = %(batch_id)s AND b.status = 1 AND b.version = %(version)s AND b.head_sha = %(head_before)s;

-- name: batch_record_pipeline_if_active
-- The pipeline that counts, as last seen. Guard: active, the status and version as read.
-- index: merge_batch.PRIMARY
UPDATE merge_batch b FORCE INDEX (PRIMARY)
SET b.pipeline_id = %(pipeline_id)s, b.version = b.version + 1, b.attempt_token = %(token)s,
    b.updated_at = UTC_TIMESTAMP(6)
WHERE b.id = %(batch_id)s AND b.status = %(before)s AND b.status IN (1, 4) AND b.version = %(version)s;

-- name: batch_record_merge_asked_if_running
-- Written before GitLab is asked to merge. Guard: running, version as read.
-- index: merge_batch.PRIMARY
UPDATE merge_batch b FORCE INDEX (PRIMARY)
SET b.merge_asked_at = UTC_TIMESTAMP(6), b.merge_asks = b.merge_asks + 1,
    b.version = b.version + 1, b.attempt_token = %(token)s, b.updated_at = UTC_TIMESTAMP(6)
WHERE b.id = %(batch_id)s AND b.status = 1 AND b.version = %(version)s;

-- name: batch_record_ending_if_active
-- Written before we close a merge request: why, and what it means for the members. Whoever finds it closed after our
-- death knows that it was us. Guard: active, the status and version as read, no ending recorded yet.
-- index: merge_batch.PRIMARY
UPDATE merge_batch b FORCE INDEX (PRIMARY)
SET b.ending_code = %(ending_code)s, b.ending_members = %(ending_members)s,
    b.version = b.version + 1, b.attempt_token = %(token)s, b.updated_at = UTC_TIMESTAMP(6)
WHERE b.id = %(batch_id)s AND b.status = %(before)s AND b.status IN (1, 4) AND b.version = %(version)s
  AND b.ending_code IS NULL;

-- name: batch_keep_running_if_running
-- Takes the batch row before members are released from it. Guard: running, version as read, nothing published.
-- index: merge_batch.PRIMARY
UPDATE merge_batch b FORCE INDEX (PRIMARY)
SET b.version = b.version + 1, b.attempt_token = %(token)s, b.updated_at = UTC_TIMESTAMP(6)
WHERE b.id = %(batch_id)s AND b.status = 1 AND b.version = %(version)s AND b.head_sha IS NULL;

-- name: batch_block_if_running
-- RUNNING to BLOCKED: keeps the slot and says why. Guard: running, version as read.
-- index: merge_batch.PRIMARY
UPDATE merge_batch b FORCE INDEX (PRIMARY)
SET b.status = 4, b.reason_code = %(reason_code)s, b.reason_text = %(reason_text)s,
    b.version = b.version + 1, b.attempt_token = %(token)s, b.updated_at = UTC_TIMESTAMP(6)
WHERE b.id = %(batch_id)s AND b.status = 1 AND b.version = %(version)s;

-- name: batch_unblock_if_blocked
-- BLOCKED back to RUNNING: the cause is gone, or an operator says so. Guard: blocked, version as read.
-- index: merge_batch.PRIMARY
UPDATE merge_batch b FORCE INDEX (PRIMARY)
SET b.status = 1, b.reason_code = NULL, b.reason_text = NULL, b.merge_asks = 0,
    b.next_check_at = UTC_TIMESTAMP(6),
    b.version = b.version + 1, b.attempt_token = %(token)s, b.updated_at = UTC_TIMESTAMP(6)
WHERE b.id = %(batch_id)s AND b.status = 4 AND b.version = %(version)s;

-- name: batch_settle_if_status
-- The only write of a terminal state. Guard: status and version as read; one affected row means this caller won.
-- Takes the batch row first; requests, operations and bindings follow.
-- index: merge_batch.PRIMARY
UPDATE merge_batch b FORCE INDEX (PRIMARY)
SET b.status = %(after)s, b.reason_code = %(reason_code)s, b.reason_text = %(reason_text)s,
    b.landed_sha = %(landed_sha)s, b.settled_via = %(via)s, b.settled_at = UTC_TIMESTAMP(6),
    b.next_check_at = UTC_TIMESTAMP(6) + INTERVAL %(check_in_s)s SECOND,
    b.version = b.version + 1, b.attempt_token = %(token)s, b.updated_at = UTC_TIMESTAMP(6)
WHERE b.id = %(batch_id)s AND b.status = %(before)s AND b.version = %(version)s;

-- name: batch_next_due
-- How long until a batch is due for a look: a hint that takes no lock, so an idle poller opens no transaction. The
-- first entry of each status, whatever the number of batches.
-- index: merge_batch.ix_batch_status_check
SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), MIN(due.next_check_at)) AS wait_us
FROM ((SELECT r.next_check_at FROM merge_batch r FORCE INDEX (ix_batch_status_check)
       WHERE r.status = 1 ORDER BY r.next_check_at LIMIT 1)
      UNION ALL
      (SELECT s.next_check_at FROM merge_batch s FORCE INDEX (ix_batch_status_check)
       WHERE s.status = 2 ORDER BY s.next_check_at LIMIT 1)
      UNION ALL
      (SELECT f.next_check_at FROM merge_batch f FORCE INDEX (ix_batch_status_check)
       WHERE f.status = 3 ORDER BY f.next_check_at LIMIT 1)
      UNION ALL
      (SELECT k.next_check_at FROM merge_batch k FORCE INDEX (ix_batch_status_check)
       WHERE k.status = 4 ORDER BY k.next_check_at LIMIT 1)) due;

-- name: batch_mark_cleaned_if_settled
-- Nothing of a settled batch is left at GitLab: it is never due again. Not a state change.
-- index: merge_batch.PRIMARY
UPDATE merge_batch b FORCE INDEX (PRIMARY)
SET b.next_check_at = '9999-12-31 00:00:00'
WHERE b.id = %(batch_id)s AND b.status IN (2, 3);
