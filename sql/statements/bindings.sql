-- name: binding_select_many
-- The present state of several relations, as a hint before a submit; the guarded writes decide.
-- index: binding.uk_relation
SELECT b.id, b.subject_id, b.target_key, b.status, b.version, b.operation_id, b.active_operation_id, b.expires_at
FROM JSON_TABLE(%(relations)s, '$[*]' COLUMNS (
       subject_id VARCHAR(510) PATH '$.subject_id', target_key VARCHAR(510) PATH '$.target_key')) j
  STRAIGHT_JOIN binding b FORCE INDEX (uk_relation)
    ON b.subject_id = UNHEX(j.subject_id) AND b.target_key = UNHEX(j.target_key);

-- name: binding_get
-- The present state of one relation.
-- index: binding.uk_relation
SELECT b.id, b.subject_id, b.target_key, b.status, b.version, b.operation_id, b.active_operation_id, b.expires_at
FROM binding b
WHERE b.subject_id = %(subject_id)s AND b.target_key = %(target_key)s;

-- name: binding_insert_many
-- First life of relations. A duplicate of uk_relation means somebody was quicker: the caller rolls back and reads anew.
-- index: none: inserts its own rows
INSERT INTO binding
  (subject_id, target_key, status, version, operation_id, active_operation_id, attempt_token, created_at, updated_at)
SELECT UNHEX(j.subject_id), UNHEX(j.target_key), 1, 1, UNHEX(j.operation_id), NULL, %(token)s,
       UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)
FROM JSON_TABLE(%(rows)s, '$[*]' COLUMNS (
       operation_id CHAR(32) PATH '$.operation_id',
       subject_id VARCHAR(510) PATH '$.subject_id', target_key VARCHAR(510) PATH '$.target_key')) j
ORDER BY j.subject_id, j.target_key;

-- name: binding_start_if_unchanged
-- Starts a new life or a change of relations. Guard: status and version exactly as read; affected rows must equal the rows sent.
-- index: binding.PRIMARY
UPDATE JSON_TABLE(%(rows)s, '$[*]' COLUMNS (
         id BIGINT PATH '$.id', before_status INT PATH '$.before', version INT PATH '$.version',
         after_status INT PATH '$.after', operation_id CHAR(32) PATH '$.operation_id')) j
  STRAIGHT_JOIN binding b FORCE INDEX (PRIMARY) ON b.id = j.id
SET b.status = j.after_status, b.operation_id = UNHEX(j.operation_id),
    b.version = b.version + 1, b.attempt_token = %(token)s, b.updated_at = UTC_TIMESTAMP(6)
WHERE b.status = j.before_status AND b.version = j.version;

-- name: binding_follow_moved
-- Relations follow the operations that this transaction has just moved out of PENDING, QUEUED or MERGING.
-- Guard: the relation still belongs to that operation and is in progress; an earlier life's operation changes nothing.
-- index: operation.ix_operation_token, binding.uk_relation
UPDATE operation o FORCE INDEX (ix_operation_token)
  STRAIGHT_JOIN binding b FORCE INDEX (uk_relation)
    ON b.subject_id = o.subject_id AND b.target_key = o.target_key
SET b.status = CASE o.status
      WHEN 4 THEN CASE o.action WHEN 3 THEN 8 ELSE 2 END
      WHEN 5 THEN 3
      WHEN 6 THEN CASE o.action WHEN 1 THEN 4 ELSE 2 END
      ELSE CASE o.action WHEN 1 THEN 5 ELSE 2 END END,
    b.active_operation_id = CASE
      WHEN o.status = 4 AND o.action = 3 THEN NULL
      WHEN o.status = 4 THEN o.operation_id
      ELSE b.active_operation_id END,
    b.expires_at = CASE
      WHEN o.status = 4 AND o.action = 3 THEN NULL
      WHEN o.status = 4 THEN o.expires_at
      ELSE b.expires_at END,
    b.version = b.version + 1, b.attempt_token = %(token)s, b.updated_at = UTC_TIMESTAMP(6)
WHERE o.attempt_token = %(token)s AND o.status IN (4, 5, 6, 7)
  AND b.operation_id = o.operation_id
  AND b.status = CASE o.action WHEN 1 THEN 1 WHEN 2 THEN 6 ELSE 7 END;

-- name: binding_recover_moved
-- Relations follow operations that this transaction has just moved out of FAILED: a retry goes back into progress, a close ends it.
-- Guard: the relation still belongs to that operation and is FAILED.
-- index: operation.ix_operation_token, binding.uk_relation
UPDATE operation o FORCE INDEX (ix_operation_token)
  STRAIGHT_JOIN binding b FORCE INDEX (uk_relation)
    ON b.subject_id = o.subject_id AND b.target_key = o.target_key
SET b.status = CASE o.status
      WHEN 2 THEN CASE o.action WHEN 1 THEN 1 WHEN 2 THEN 6 ELSE 7 END
      ELSE CASE o.action WHEN 1 THEN 5 ELSE 2 END END,
    b.version = b.version + 1, b.attempt_token = %(token)s, b.updated_at = UTC_TIMESTAMP(6)
WHERE o.attempt_token = %(token)s AND o.status IN (2, 7)
  AND b.operation_id = o.operation_id
  AND b.status = 3;

-- name: binding_history_insert_moved
-- One history row for each relation that this transaction has just moved; the version makes it unique.
-- index: operation.ix_operation_token, binding.uk_relation
INSERT INTO binding_history (binding_id, version, to_status, operation_id, via, created_at)
SELECT b.id, b.version, b.status, b.operation_id, %(via)s, UTC_TIMESTAMP(6)
FROM operation o FORCE INDEX (ix_operation_token)
  STRAIGHT_JOIN binding b FORCE INDEX (uk_relation)
    ON b.subject_id = o.subject_id AND b.target_key = o.target_key
WHERE o.attempt_token = %(token)s AND b.attempt_token = %(token)s;

-- name: binding_select_expired
-- Active relations whose time has passed, with what made them active; the oldest first, after the last one seen.
-- A hint that takes no lock: the removal's own guarded start decides.
-- index: binding.ix_binding_expires, operation.uk_operation_operation_id
SELECT b.id, b.expires_at, b.subject_id, b.target_key, o.operation_id, o.partition_key, o.title, o.requested_by,
       o.priority, o.edits, o.on_expiry
FROM binding b FORCE INDEX (ix_binding_expires)
  STRAIGHT_JOIN operation o FORCE INDEX (uk_operation_operation_id) ON o.operation_id = b.active_operation_id
WHERE b.status = 2 AND b.expires_at <= UTC_TIMESTAMP(6)
  AND b.expires_at >= %(after_expires_at)s AND (b.expires_at > %(after_expires_at)s OR b.id > %(after_id)s)
ORDER BY b.expires_at, b.id
LIMIT %(limit)s;

-- name: binding_next_expiry
-- How long until the next active relation's time has passed; those of the past are not waited for.
-- index: binding.ix_binding_expires
SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), b.expires_at) AS due_us
FROM binding b FORCE INDEX (ix_binding_expires)
WHERE b.status = 2 AND b.expires_at > UTC_TIMESTAMP(6)
ORDER BY b.expires_at
LIMIT 1;
