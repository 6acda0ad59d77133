-- name: operation_insert_many
-- Admits requests, all in one statement; identity columns come as hex, so bytes arrive as bytes.
-- A duplicate of uk_operation_operation_id means the client's own operation_id is taken.
-- index: none: inserts its own rows
INSERT INTO operation
  (operation_id, partition_key, status, version, attempt_token, action, subject_id, target_key, edits, on_expiry,
   title, requested_by, priority, expires_at, created_at, updated_at)
SELECT UNHEX(j.operation_id), UNHEX(j.partition_key), j.status, 1, %(token)s, j.action, UNHEX(j.subject_id),
       UNHEX(j.target_key), j.edits, j.on_expiry, UNHEX(j.title), UNHEX(j.requested_by), j.priority, j.expires_at,
       UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)
FROM JSON_TABLE(%(rows)s, '$[*]' COLUMNS (
       operation_id CHAR(32) PATH '$.operation_id',
       partition_key VARCHAR(128) PATH '$.partition_key',
       status INT PATH '$.status',
       action INT PATH '$.action',
       subject_id VARCHAR(510) PATH '$.subject_id',
       target_key VARCHAR(510) PATH '$.target_key',
       edits LONGTEXT PATH '$.edits',
       on_expiry LONGTEXT PATH '$.on_expiry',
       title VARCHAR(2040) PATH '$.title',
       requested_by VARCHAR(510) PATH '$.requested_by',
       priority INT PATH '$.priority',
       expires_at DATETIME(6) PATH '$.expires_at')) j;

-- name: operation_get
-- One operation, whole.
-- index: operation.uk_operation_operation_id
SELECT o.id, o.operation_id, o.partition_key, o.status, o.version, o.action, o.subject_id, o.target_key, o.title,
       o.requested_by, o.priority, o.rounds, o.batch_id, o.expires_at, o.reason_code, o.reason_text,
       o.created_at, o.updated_at, o.edits, o.on_expiry
FROM operation o
WHERE o.operation_id = %(operation_id)s;

-- name: operation_get_many
-- Several operations by their ids, in the order asked for.
-- index: operation.uk_operation_operation_id
SELECT o.id, o.operation_id, o.partition_key, o.status, o.version, o.action, o.subject_id, o.target_key, o.title,
       o.requested_by, o.priority, o.rounds, o.batch_id, o.expires_at, o.reason_code, o.reason_text,
       o.created_at, o.updated_at, o.edits, o.on_expiry
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (n FOR ORDINALITY, h CHAR(32) PATH '$')) j
  STRAIGHT_JOIN operation o FORCE INDEX (uk_operation_operation_id) ON o.operation_id = UNHEX(j.h)
ORDER BY j.n;

-- name: operation_lock_token
-- Locking read for the commit resolver: did the attempt whose answer was lost move this operation?
-- index: operation.uk_operation_operation_id
SELECT o.id
FROM operation o
WHERE o.operation_id = %(operation_id)s AND o.attempt_token = %(token)s
FOR UPDATE;

-- name: operation_move_if_status
-- One operation along one edge outside of a batch. Guard: status and version as read.
-- index: operation.uk_operation_operation_id
UPDATE operation o FORCE INDEX (uk_operation_operation_id)
SET o.status = %(after)s, o.rounds = 0, o.batch_id = NULL, o.reason_code = %(reason_code)s,
    o.reason_text = %(reason_text)s, o.version = o.version + 1, o.attempt_token = %(token)s,
    o.updated_at = UTC_TIMESTAMP(6)
WHERE o.operation_id = %(operation_id)s AND o.status = %(before)s AND o.version = %(version)s;

-- name: operation_claim_if_queued
-- QUEUED to MERGING for the members of a fresh batch. Guard: queued; affected rows must equal the members.
-- index: merge_batch_member.PRIMARY, operation.uk_operation_operation_id
UPDATE merge_batch_member m FORCE INDEX (PRIMARY)
  STRAIGHT_JOIN operation o FORCE INDEX (uk_operation_operation_id) ON o.operation_id = m.operation_id
SET o.status = 3, o.batch_id = m.batch_id, o.rounds = o.rounds + 1, o.reason_code = NULL, o.reason_text = NULL,
    o.version = o.version + 1, o.attempt_token = %(token)s, o.updated_at = UTC_TIMESTAMP(6)
WHERE m.batch_id = %(batch_id)s AND o.status = 2;

-- name: operation_land_if_merging
-- MERGING to MERGED for what is still in the batch. Guard: merging in exactly this batch.
-- index: merge_batch_member.PRIMARY, operation.uk_operation_operation_id
UPDATE merge_batch_member m FORCE INDEX (PRIMARY)
  STRAIGHT_JOIN operation o FORCE INDEX (uk_operation_operation_id) ON o.operation_id = m.operation_id
SET o.status = 4, o.reason_code = NULL, o.reason_text = NULL,
    o.version = o.version + 1, o.attempt_token = %(token)s, o.updated_at = UTC_TIMESTAMP(6)
WHERE m.batch_id = %(batch_id)s AND o.batch_id = m.batch_id AND o.status = 3;

-- name: operation_fail_or_requeue_if_merging
-- MERGING to QUEUED while rounds are left, else to FAILED. Guard: merging in exactly this batch.
-- max_rounds 0 sends every member to FAILED; a round that does not count comes with uncount 1 and no limit, so the
-- order in which the server evaluates the assignments does not matter. Same arithmetic as request_delete_spent_of_batch.
-- index: merge_batch_member.PRIMARY, operation.uk_operation_operation_id
UPDATE merge_batch_member m FORCE INDEX (PRIMARY)
  STRAIGHT_JOIN operation o FORCE INDEX (uk_operation_operation_id) ON o.operation_id = m.operation_id
SET o.status = CASE WHEN o.rounds < %(max_rounds)s THEN 2 ELSE 5 END,
    o.batch_id = CASE WHEN o.rounds < %(max_rounds)s THEN NULL ELSE m.batch_id END,
    o.rounds = o.rounds - %(uncount)s,
    o.reason_code = %(reason_code)s, o.reason_text = %(reason_text)s,
    o.version = o.version + 1, o.attempt_token = %(token)s, o.updated_at = UTC_TIMESTAMP(6)
WHERE m.batch_id = %(batch_id)s AND o.batch_id = m.batch_id AND o.status = 3;

-- name: operation_release_if_merging
-- Members that leave a running batch before it is published: deferred ones to QUEUED, failing ones to FAILED with their own reason.
-- They are in no batch any more; member history and audit remember. Guard: merging in exactly this batch.
-- index: operation.uk_operation_operation_id
UPDATE JSON_TABLE(%(members)s, '$[*]' COLUMNS (
         h CHAR(32) PATH '$.h', after_status INT PATH '$.s',
         code VARCHAR(64) PATH '$.c', text_ VARCHAR(1000) PATH '$.t')) j
  STRAIGHT_JOIN operation o FORCE INDEX (uk_operation_operation_id) ON o.operation_id = UNHEX(j.h)
SET o.status = j.after_status,
    o.batch_id = NULL,
    o.rounds = CASE WHEN j.after_status = 2 THEN o.rounds - 1 ELSE o.rounds END,
    o.reason_code = j.code, o.reason_text = j.text_,
    o.version = o.version + 1, o.attempt_token = %(token)s, o.updated_at = UTC_TIMESTAMP(6)
WHERE o.batch_id = %(batch_id)s AND o.status = 3;

-- name: audit_insert_moved
-- One audit row for each operation that this transaction has just moved; the version makes it unique.
-- index: operation.ix_operation_token
INSERT INTO operation_audit
  (operation_id, version, from_status, to_status, via, actor, cause, batch_id, created_at)
SELECT o.operation_id, o.version, %(before)s, o.status, %(via)s, %(actor)s,
       COALESCE(o.reason_text, %(cause)s), %(batch_id)s, UTC_TIMESTAMP(6)
FROM operation o FORCE INDEX (ix_operation_token)
WHERE o.attempt_token = %(token)s;

-- name: audit_select
-- The history of one operation, oldest first.
-- index: operation_audit.uk_audit
SELECT a.operation_id, a.version, a.from_status, a.to_status, a.via, a.actor, a.cause, a.batch_id, a.created_at
FROM operation_audit a
WHERE a.operation_id = %(operation_id)s
ORDER BY a.version;
