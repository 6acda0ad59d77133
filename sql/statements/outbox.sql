-- name: outbox_insert_moved
-- One notification for each operation that this transaction has just moved to a state somebody waits for.
-- Unique per (subject, event); the subject carries the version, so a later life's move is another subject.
-- Every VARBINARY is converted: one left binary turns the whole object into latin1 (MariaDB) or its text into base64
-- (MySQL).
-- index: operation.ix_operation_token
INSERT INTO outbox (subject, event, operation_id, batch_id, payload, next_attempt_at, created_at)
SELECT CONCAT('request:', LOWER(HEX(o.operation_id)), ':', o.version),
       CASE o.status WHEN 2 THEN 'request.queued' WHEN 4 THEN 'request.merged' WHEN 5 THEN 'request.failed'
                     WHEN 6 THEN 'request.rejected' ELSE 'request.closed' END,
       o.operation_id, o.batch_id,
       JSON_OBJECT(
         'operation_id',
         INSERT(INSERT(INSERT(INSERT(LOWER(HEX(o.operation_id)), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-'),
         'version', o.version,
         'partition', CONVERT(o.partition_key USING utf8mb4),
         'subject', CONVERT(o.subject_id USING utf8mb4),
         'target', CONVERT(o.target_key USING utf8mb4),
         'batch', o.batch_id,
         'reason', CONVERT(o.reason_code USING utf8mb4)),
       UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)
FROM operation o FORCE INDEX (ix_operation_token)
WHERE o.attempt_token = %(token)s AND o.status IN (2, 4, 5, 6, 7);

-- name: outbox_insert_settled
-- The members' notifications of a settlement and the batch's own, in one statement.
-- index: operation.ix_operation_token, merge_batch.PRIMARY
INSERT INTO outbox (subject, event, operation_id, batch_id, payload, next_attempt_at, created_at)
SELECT CONCAT('request:', LOWER(HEX(o.operation_id)), ':', o.version),
       CASE o.status WHEN 2 THEN 'request.queued' WHEN 4 THEN 'request.merged' ELSE 'request.failed' END,
       o.operation_id, %(batch_id)s,
       JSON_OBJECT(
         'operation_id',
         INSERT(INSERT(INSERT(INSERT(LOWER(HEX(o.operation_id)), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-'),
         'version', o.version,
         'partition', CONVERT(o.partition_key USING utf8mb4),
         'subject', CONVERT(o.subject_id USING utf8mb4),
         'target', CONVERT(o.target_key USING utf8mb4),
         'batch', %(batch_id)s,
         'reason', CONVERT(o.reason_code USING utf8mb4)),
       UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)
FROM operation o FORCE INDEX (ix_operation_token)
WHERE o.attempt_token = %(token)s
UNION ALL
SELECT CONCAT('batch:', b.id, ':', b.version),
       CASE b.status WHEN 2 THEN 'batch.succeeded' ELSE 'batch.failed' END,
       NULL, b.id,
       JSON_OBJECT('batch', b.id, 'partition', CONVERT(b.partition_key USING utf8mb4), 'project_id', b.project_id,
                   'mr_iid', b.mr_iid, 'reason', CONVERT(b.reason_code USING utf8mb4),
                   'settled_via', CONVERT(b.settled_via USING utf8mb4)),
       UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)
FROM merge_batch b FORCE INDEX (PRIMARY)
WHERE b.id = %(batch_id)s;

-- name: outbox_insert_batch
-- A batch's own notification about a move that is not its end (published, blocked).
-- index: merge_batch.PRIMARY
INSERT INTO outbox (subject, event, operation_id, batch_id, payload, next_attempt_at, created_at)
SELECT %(subject)s, %(event)s, NULL, b.id,
       JSON_OBJECT('batch', b.id, 'partition', CONVERT(b.partition_key USING utf8mb4), 'project_id', b.project_id,
                   'mr_iid', b.mr_iid, 'reason', CONVERT(b.reason_code USING utf8mb4)),
       UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)
FROM merge_batch b FORCE INDEX (PRIMARY)
WHERE b.id = %(batch_id)s;

-- name: outbox_find_told
-- Whether this was told before. The caller holds the batch row, so nobody tells the same beside it; the key refuses a twin.
-- index: outbox.uk_subject_event
SELECT x.id
FROM outbox x FORCE INDEX (uk_subject_event)
WHERE x.subject = %(subject)s AND x.event = %(event)s;

-- name: outbox_peek_due
-- Whether any notification is due: a hint that takes no lock.
-- index: outbox.ix_outbox_due
SELECT 1 AS due
FROM outbox x FORCE INDEX (ix_outbox_due)
WHERE x.delivered_at IS NULL AND x.dead_at IS NULL AND x.next_attempt_at <= UTC_TIMESTAMP(6)
LIMIT 1;

-- name: outbox_select_due
-- Notifications that are due; rows another replica is leasing at this moment are skipped.
-- index: outbox.ix_outbox_due
SELECT x.id, x.subject, x.event, x.payload, x.attempts, x.refusals, x.created_at, UTC_TIMESTAMP(6) AS now_at
FROM outbox x FORCE INDEX (ix_outbox_due)
WHERE x.delivered_at IS NULL AND x.dead_at IS NULL AND x.next_attempt_at <= UTC_TIMESTAMP(6)
ORDER BY x.next_attempt_at, x.id
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED;

-- name: outbox_select_held
-- Of these rows those that an earlier one of their stream holds back: neither delivered nor dead yet. `held_us` is how
-- long that one will wait itself. Plain on purpose: a locking read would skip a locked predecessor, and miss it.
-- index: outbox.PRIMARY, outbox.ix_outbox_stream
SELECT x.id,
       (SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), e.next_attempt_at)
        FROM outbox e FORCE INDEX (ix_outbox_stream)
        WHERE e.stream = x.stream AND e.delivered_at IS NULL AND e.dead_at IS NULL AND e.id < x.id
        ORDER BY e.id
        LIMIT 1) AS held_us
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN outbox x FORCE INDEX (PRIMARY) ON x.id = j.id;

-- name: outbox_park
-- Puts rows that are held back out of the way until their predecessor's own time; woken when that one ends.
-- index: outbox.PRIMARY
UPDATE JSON_TABLE(%(rows)s, '$[*]' COLUMNS (id BIGINT PATH '$.id', delay_us BIGINT PATH '$.delay_us')) j
  STRAIGHT_JOIN outbox x FORCE INDEX (PRIMARY) ON x.id = j.id
SET x.next_attempt_at = UTC_TIMESTAMP(6) + INTERVAL j.delay_us MICROSECOND
WHERE x.delivered_at IS NULL AND x.dead_at IS NULL;

-- name: outbox_lease
-- Leases rows for delivery: they become due again by time alone if this process dies.
-- index: outbox.PRIMARY
UPDATE JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN outbox x FORCE INDEX (PRIMARY) ON x.id = j.id
SET x.lease_token = %(token)s, x.attempts = x.attempts + 1,
    x.next_attempt_at = UTC_TIMESTAMP(6) + INTERVAL %(lease_s)s SECOND
WHERE x.delivered_at IS NULL AND x.dead_at IS NULL;

-- name: outbox_mark_delivered
-- Delivered rows of this lease; a lease that was taken over meanwhile is left alone.
-- index: outbox.PRIMARY
UPDATE JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN outbox x FORCE INDEX (PRIMARY) ON x.id = j.id
SET x.delivered_at = UTC_TIMESTAMP(6), x.lease_token = NULL, x.last_error = NULL
WHERE x.lease_token = %(token)s AND x.delivered_at IS NULL AND x.dead_at IS NULL;

-- name: outbox_postpone_if_leased
-- Rows of this lease whose attempt failed, each until its next attempt.
-- index: outbox.PRIMARY
UPDATE JSON_TABLE(%(rows)s, '$[*]' COLUMNS (
         id BIGINT PATH '$.id', delay_us BIGINT PATH '$.delay_us', refusals INT PATH '$.refusals',
         text_ VARCHAR(1000) PATH '$.text')) j
  STRAIGHT_JOIN outbox x FORCE INDEX (PRIMARY) ON x.id = j.id
SET x.next_attempt_at = UTC_TIMESTAMP(6) + INTERVAL j.delay_us MICROSECOND, x.lease_token = NULL,
    x.refusals = j.refusals, x.last_error = j.text_
WHERE x.lease_token = %(token)s AND x.delivered_at IS NULL AND x.dead_at IS NULL;

-- name: outbox_bury_if_leased
-- Rows of this lease that have no attempt left: dead letters, until somebody replays them.
-- index: outbox.PRIMARY
UPDATE JSON_TABLE(%(rows)s, '$[*]' COLUMNS (
         id BIGINT PATH '$.id', refusals INT PATH '$.refusals', text_ VARCHAR(1000) PATH '$.text')) j
  STRAIGHT_JOIN outbox x FORCE INDEX (PRIMARY) ON x.id = j.id
SET x.dead_at = UTC_TIMESTAMP(6), x.lease_token = NULL, x.refusals = j.refusals, x.last_error = j.text_
WHERE x.lease_token = %(token)s AND x.delivered_at IS NULL AND x.dead_at IS NULL;

-- name: outbox_return_if_leased
-- Rows of this lease that nobody began to send: due again, the attempt uncounted.
-- index: outbox.PRIMARY
UPDATE JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN outbox x FORCE INDEX (PRIMARY) ON x.id = j.id
SET x.next_attempt_at = UTC_TIMESTAMP(6), x.lease_token = NULL, x.attempts = x.attempts - 1
WHERE x.lease_token = %(token)s AND x.delivered_at IS NULL AND x.dead_at IS NULL;

-- name: outbox_select_followers
-- For each of these ended rows the first of its stream that still has to go; NULL if there is none.
-- index: outbox.PRIMARY, outbox.ix_outbox_stream
SELECT (SELECT f.id
        FROM outbox f FORCE INDEX (ix_outbox_stream)
        WHERE f.stream = x.stream AND f.delivered_at IS NULL AND f.dead_at IS NULL
        ORDER BY f.id
        LIMIT 1) AS id
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN outbox x FORCE INDEX (PRIMARY) ON x.id = j.id;

-- name: outbox_wake
-- Parked rows whose turn it is. Guard: never attempted, so a row that waits for an attempt of its own keeps its time.
-- index: outbox.PRIMARY
UPDATE JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN outbox x FORCE INDEX (PRIMARY) ON x.id = j.id
SET x.next_attempt_at = UTC_TIMESTAMP(6)
WHERE x.delivered_at IS NULL AND x.dead_at IS NULL AND x.attempts = 0;

-- name: outbox_count_pending
-- How many notifications wait, counted up to a limit.
-- index: outbox.ix_outbox_due
SELECT COUNT(*) AS pending
FROM (SELECT 1 FROM outbox x FORCE INDEX (ix_outbox_due)
      WHERE x.delivered_at IS NULL AND x.dead_at IS NULL LIMIT %(limit)s) w;

-- name: outbox_count_dead
-- How many dead letters there are, counted up to a limit.
-- index: outbox.ix_outbox_due
SELECT COUNT(*) AS dead
FROM (SELECT 1 FROM outbox x FORCE INDEX (ix_outbox_due)
      WHERE x.delivered_at IS NULL AND x.dead_at > '1970-01-01' LIMIT %(limit)s) w;

-- name: outbox_list_pending
-- For people: what waits to be delivered, the next one first.
-- index: outbox.ix_outbox_due
SELECT x.id, x.subject, x.event, x.payload, x.attempts, x.refusals, x.last_error, x.created_at, x.next_attempt_at,
       x.dead_at
FROM outbox x FORCE INDEX (ix_outbox_due)
WHERE x.delivered_at IS NULL AND x.dead_at IS NULL
ORDER BY x.next_attempt_at, x.id
LIMIT %(limit)s;

-- name: outbox_list_dead
-- For people: one page of dead letters, oldest death first; keyset on (dead_at, next_attempt_at, id) as the index has it.
-- index: outbox.ix_outbox_due
SELECT x.id, x.subject, x.event, x.payload, x.attempts, x.refusals, x.last_error, x.created_at, x.next_attempt_at,
       x.dead_at
FROM outbox x FORCE INDEX (ix_outbox_due)
WHERE x.delivered_at IS NULL AND x.dead_at >= %(after_dead_at)s
  AND (x.dead_at > %(after_dead_at)s OR x.next_attempt_at > %(after_next_attempt_at)s
       OR (x.next_attempt_at = %(after_next_attempt_at)s AND x.id > %(after_id)s))
ORDER BY x.dead_at, x.next_attempt_at, x.id
LIMIT %(limit)s;

-- name: outbox_select_dead
-- The oldest dead letters of those that died before a moment: what is replayed and dies anew is not among them.
-- index: outbox.ix_outbox_due
SELECT x.id
FROM outbox x FORCE INDEX (ix_outbox_due)
WHERE x.delivered_at IS NULL AND x.dead_at <= %(until)s
ORDER BY x.dead_at, x.next_attempt_at, x.id
LIMIT %(limit)s;

-- name: outbox_replay_if_dead
-- Dead letters that are to be delivered after all, with every attempt before them. Guard: dead.
-- index: outbox.PRIMARY
UPDATE JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN outbox x FORCE INDEX (PRIMARY) ON x.id = j.id
SET x.dead_at = NULL, x.attempts = 0, x.refusals = 0, x.next_attempt_at = UTC_TIMESTAMP(6)
WHERE x.dead_at IS NOT NULL AND x.delivered_at IS NULL;

-- name: outbox_now
-- The database's clock.
-- index: none
SELECT UTC_TIMESTAMP(6) AS now_at;

-- name: outbox_select_delivered
-- Janitor: notifications delivered long ago, a small chunk, oldest first. Takes no lock, so it waits for nobody's fresh rows.
-- index: outbox.ix_outbox_due
SELECT d.id
FROM outbox d FORCE INDEX (ix_outbox_due)
WHERE d.delivered_at < UTC_TIMESTAMP(6) - INTERVAL %(keep_s)s SECOND
ORDER BY d.delivered_at
LIMIT %(limit)s;

-- name: outbox_delete_many
-- Janitor: that chunk, by primary key. Guard: none is needed, a delivered row stays delivered.
-- index: outbox.PRIMARY
DELETE d
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN outbox d FORCE INDEX (PRIMARY) ON d.id = j.id;
