-- name: request_peek_waiting
-- How many wait, counted up to a limit, and since when; a hint that takes no lock.
-- Below the limit the subquery is the whole waiting set, so the age is exact where it decides.
-- index: merge_batch_request.ix_request_claim
SELECT COUNT(*) AS waiting, TIMESTAMPDIFF(MICROSECOND, MIN(w.created_at), UTC_TIMESTAMP(6)) AS oldest_us
FROM (SELECT r.created_at
      FROM merge_batch_request r FORCE INDEX (ix_request_claim)
      WHERE r.partition_key = %(partition_key)s AND r.batch_id IS NULL
      LIMIT %(limit)s) w;

-- name: request_select_waiting
-- What a claim would take, in order. Reads without locking: enqueueing never waits for it; the guarded claim decides.
-- index: merge_batch_request.ix_request_claim
SELECT r.id, r.rounds
FROM merge_batch_request r FORCE INDEX (ix_request_claim)
WHERE r.partition_key = %(partition_key)s AND r.batch_id IS NULL
ORDER BY r.priority DESC, r.created_at, r.id
LIMIT %(limit)s;

-- name: request_claim_if_waiting
-- The guarded claim. Guard: still waiting; affected rows must equal the rows read, else the caller rolls back.
-- Driven from the ids through the primary key at every size, so it locks only the rows it takes.
-- index: merge_batch_request.PRIMARY
UPDATE JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN merge_batch_request r FORCE INDEX (PRIMARY) ON r.id = j.id
SET r.batch_id = %(batch_id)s, r.rounds = r.rounds + 1
WHERE r.batch_id IS NULL;

-- name: request_insert_moved
-- Puts the operations that this transaction has just queued into the waiting set; uk_operation_id refuses a second row.
-- index: operation.ix_operation_token
INSERT INTO merge_batch_request (operation_id, partition_key, batch_id, priority, rounds, created_at)
SELECT o.operation_id, o.partition_key, NULL, o.priority, o.rounds, UTC_TIMESTAMP(6)
FROM operation o FORCE INDEX (ix_operation_token)
WHERE o.attempt_token = %(token)s AND o.status = 2
ORDER BY o.id;

-- name: request_delete_waiting
-- Withdraws a request from the waiting set. Guard: not claimed; zero rows mean a round was quicker.
-- index: merge_batch_request.uk_operation_id
DELETE FROM merge_batch_request
WHERE operation_id = %(operation_id)s AND batch_id IS NULL;

-- name: request_delete_of_batch
-- Settled as landed: the processing rows go, history and audit stay.
-- index: merge_batch_request.ix_request_batch
DELETE r
FROM merge_batch_request r FORCE INDEX (ix_request_batch)
WHERE r.batch_id = %(batch_id)s;

-- name: request_delete_spent_of_batch
-- Settled as failed: rows whose members do not go back to the queue, by policy or because their rounds are used up.
-- index: merge_batch_request.ix_request_batch
DELETE r
FROM merge_batch_request r FORCE INDEX (ix_request_batch)
WHERE r.batch_id = %(batch_id)s AND r.rounds >= %(max_rounds)s;

-- name: request_requeue_of_batch
-- Settled as failed: what is left goes back into the waiting set and keeps its age. uncount 1: the round was not theirs.
-- index: merge_batch_request.ix_request_batch
UPDATE merge_batch_request r FORCE INDEX (ix_request_batch)
SET r.batch_id = NULL, r.rounds = r.rounds - %(uncount)s
WHERE r.batch_id = %(batch_id)s;

-- name: request_release_deferred
-- Members that this round could not take go back into the waiting set; a deferral does not use up a round.
-- index: merge_batch_request.uk_operation_id
UPDATE JSON_TABLE(%(members)s, '$[*]' COLUMNS (h CHAR(32) PATH '$.h', after_status INT PATH '$.s')) j
  STRAIGHT_JOIN merge_batch_request r FORCE INDEX (uk_operation_id) ON r.operation_id = UNHEX(j.h)
SET r.batch_id = NULL, r.rounds = r.rounds - 1
WHERE r.batch_id = %(batch_id)s AND j.after_status = 2;

-- name: request_delete_failed
-- Members whose own edits failed lose their processing rows; history and audit stay.
-- index: merge_batch_request.uk_operation_id
DELETE r
FROM JSON_TABLE(%(members)s, '$[*]' COLUMNS (h CHAR(32) PATH '$.h', after_status INT PATH '$.s')) j
  STRAIGHT_JOIN merge_batch_request r FORCE INDEX (uk_operation_id) ON r.operation_id = UNHEX(j.h)
WHERE r.batch_id = %(batch_id)s AND j.after_status = 5;

-- name: request_count_ahead
-- Position in the waiting set, counted up to a limit.
-- index: merge_batch_request.uk_operation_id, merge_batch_request.ix_request_claim
SELECT COUNT(*) AS ahead
FROM (SELECT 1
      FROM merge_batch_request me FORCE INDEX (uk_operation_id)
        STRAIGHT_JOIN merge_batch_request r FORCE INDEX (ix_request_claim)
          ON r.partition_key = me.partition_key AND r.batch_id IS NULL
      WHERE me.operation_id = %(operation_id)s AND me.batch_id IS NULL
        AND (r.priority > me.priority
             OR (r.priority = me.priority
                 AND (r.created_at < me.created_at OR (r.created_at = me.created_at AND r.id < me.id))))
      LIMIT %(limit)s) w;

-- name: request_select_waiting_partitions
-- Which partitions have something waiting: one look for all of them, a hint before the rounds.
-- index: merge_batch_request.ix_request_claim
SELECT DISTINCT r.partition_key
FROM merge_batch_request r FORCE INDEX (ix_request_claim)
WHERE r.batch_id IS NULL;
