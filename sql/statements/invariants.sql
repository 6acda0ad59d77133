-- Read-only looks for what must not be. Each row is a violation: `subject` says where, `detail` what.
-- A look takes a page of ids and reads these rows and their relatives by key, so its cost does not depend on the size
-- of any table; the few that take `limit` instead read only what is active, through an index.

-- name: invariant_one_active_batch
-- I1: at most one active batch for a partition, by status and not only by the slot.
-- index: merge_batch.ix_batch_status_updated
SELECT CONVERT(b.partition_key USING utf8mb4) AS subject, CONCAT(COUNT(*), ' active batches') AS detail
FROM merge_batch b FORCE INDEX (ix_batch_status_updated)
WHERE b.status IN (1, 4)
GROUP BY b.partition_key
HAVING COUNT(*) > 1
LIMIT %(limit)s;

-- name: invariant_nothing_stuck
-- Liveness: no active batch is long past its deadline; the sweep should have ended it.
-- index: merge_batch.ix_batch_status_deadline
SELECT CAST(b.id AS CHAR) AS subject, 'active more than 15 minutes past its deadline' AS detail
FROM merge_batch b FORCE INDEX (ix_batch_status_deadline)
WHERE b.status IN (1, 4) AND b.deadline_at < UTC_TIMESTAMP(6) - INTERVAL 15 MINUTE
LIMIT %(limit)s;

-- name: invariant_batch_is_looked_at
-- Liveness: somebody looks at every active batch when its time comes; else no replica polls.
-- index: merge_batch.ix_batch_status_check
SELECT CAST(b.id AS CHAR) AS subject, 'active, and nobody has looked at it for 15 minutes' AS detail
FROM merge_batch b FORCE INDEX (ix_batch_status_check)
WHERE b.status IN (1, 4) AND b.next_check_at < UTC_TIMESTAMP(6) - INTERVAL 15 MINUTE
LIMIT %(limit)s;

-- name: invariant_notification_is_tried
-- Liveness: somebody tries every due notification; else no replica delivers. Given up ones are no matter here.
-- index: outbox.ix_outbox_due
SELECT CAST(x.id AS CHAR) AS subject, 'a notification has been due for 15 minutes and nobody has tried it' AS detail
FROM outbox x FORCE INDEX (ix_outbox_due)
WHERE x.delivered_at IS NULL AND x.dead_at IS NULL AND x.next_attempt_at < UTC_TIMESTAMP(6) - INTERVAL 15 MINUTE
LIMIT %(limit)s;

-- name: invariant_expired_is_ended
-- Liveness: a relation whose time has passed gets its removal. One whose removal a person has withdrawn belongs to that
-- removal since, and is left alone.
-- index: binding.ix_binding_expires
SELECT CAST(b.id AS CHAR) AS subject, 'active more than an hour after its time has passed' AS detail
FROM binding b FORCE INDEX (ix_binding_expires)
WHERE b.expires_at < UTC_TIMESTAMP(6) - INTERVAL 1 HOUR AND b.status = 2 AND b.operation_id = b.active_operation_id
LIMIT %(limit)s;

-- name: invariant_slot_equals_status
-- I1: the generated slot says the same as the status.
-- index: merge_batch.PRIMARY
SELECT CAST(b.id AS CHAR) AS subject, 'slot and status disagree' AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN merge_batch b FORCE INDEX (PRIMARY) ON b.id = j.id
WHERE NOT (b.active_slot <=> CASE WHEN b.status IN (1, 4) THEN b.partition_key END);

-- name: invariant_settled_is_told
-- Every settlement of the last day has its one notification (older ones the janitor may have removed).
-- index: merge_batch.PRIMARY, outbox.uk_subject_event
SELECT CAST(b.id AS CHAR) AS subject, 'settled without its notification' AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN merge_batch b FORCE INDEX (PRIMARY) ON b.id = j.id
  LEFT JOIN outbox x FORCE INDEX (uk_subject_event)
    ON x.subject = CONCAT('batch:', b.id, ':', b.version)
   AND x.event = CASE b.status WHEN 2 THEN 'batch.succeeded' ELSE 'batch.failed' END
WHERE b.status IN (2, 3) AND b.settled_at > UTC_TIMESTAMP(6) - INTERVAL 24 HOUR AND x.id IS NULL;

-- name: invariant_claimed_has_active_batch
-- I2: a claimed request's batch exists and is active.
-- index: merge_batch_request.PRIMARY, merge_batch.PRIMARY
SELECT LOWER(HEX(r.operation_id)) AS subject, CONCAT('claimed by batch ', r.batch_id, ', which is not active') AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN merge_batch_request r FORCE INDEX (PRIMARY) ON r.id = j.id
  LEFT JOIN merge_batch b FORCE INDEX (PRIMARY) ON b.id = r.batch_id
WHERE r.batch_id IS NOT NULL AND (b.id IS NULL OR b.status NOT IN (1, 4));

-- name: invariant_request_matches_operation
-- I2, I4: a waiting row belongs to a QUEUED operation, a claimed one to an operation MERGING in the same batch.
-- index: merge_batch_request.PRIMARY, operation.uk_operation_operation_id
SELECT LOWER(HEX(r.operation_id)) AS subject, 'waiting row and operation disagree' AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN merge_batch_request r FORCE INDEX (PRIMARY) ON r.id = j.id
  LEFT JOIN operation o FORCE INDEX (uk_operation_operation_id) ON o.operation_id = r.operation_id
WHERE o.id IS NULL
   OR (r.batch_id IS NULL AND o.status <> 2)
   OR (r.batch_id IS NOT NULL AND (o.status <> 3 OR NOT (o.batch_id <=> r.batch_id)))
   OR r.partition_key <> o.partition_key;

-- name: invariant_operation_has_request
-- I4: a QUEUED or MERGING operation has its waiting or claimed row; nothing acknowledged is lost.
-- index: operation.PRIMARY, merge_batch_request.uk_operation_id
SELECT LOWER(HEX(o.operation_id)) AS subject, 'queued or merging without a row in the waiting set' AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN operation o FORCE INDEX (PRIMARY) ON o.id = j.id
  LEFT JOIN merge_batch_request r FORCE INDEX (uk_operation_id) ON r.operation_id = o.operation_id
WHERE o.status IN (2, 3) AND r.id IS NULL;

-- name: invariant_operation_holds_relation
-- I5: an operation in flight or waiting for recovery is the one that its relation names: nobody has overwritten it.
-- index: operation.PRIMARY, binding.uk_relation
SELECT LOWER(HEX(o.operation_id)) AS subject, CONCAT('operation is ', o.status, ', its relation names another one') AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN operation o FORCE INDEX (PRIMARY) ON o.id = j.id
  LEFT JOIN binding b FORCE INDEX (uk_relation)
    ON b.subject_id = o.subject_id AND b.target_key = o.target_key AND b.operation_id = o.operation_id
WHERE o.status IN (1, 2, 3, 5) AND b.id IS NULL;

-- name: invariant_audit_is_complete
-- I6: an operation's version is the number of its moves.
-- index: operation.PRIMARY, operation_audit.uk_audit
SELECT LOWER(HEX(o.operation_id)) AS subject, CONCAT('version ', o.version, ', ', COUNT(a.id), ' audit rows') AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN operation o FORCE INDEX (PRIMARY) ON o.id = j.id
  LEFT JOIN operation_audit a FORCE INDEX (uk_audit) ON a.operation_id = o.operation_id
GROUP BY o.id, o.operation_id, o.version
HAVING COUNT(a.id) <> o.version;

-- name: invariant_audit_tells_status
-- I6: an operation stands where its last move has led.
-- index: operation.PRIMARY, operation_audit.uk_audit
SELECT LOWER(HEX(o.operation_id)) AS subject,
       CONCAT('operation is ', o.status, ', its last move led to ', a.to_status) AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN operation o FORCE INDEX (PRIMARY) ON o.id = j.id
  STRAIGHT_JOIN operation_audit a FORCE INDEX (uk_audit) ON a.operation_id = o.operation_id AND a.version = o.version
WHERE a.to_status <> o.status;

-- name: invariant_members_agree_with_batch
-- Terminal agreement: a MERGED operation's batch SUCCEEDED, and who is in a SUCCEEDED batch is MERGED.
-- index: operation.PRIMARY, merge_batch.PRIMARY
SELECT LOWER(HEX(o.operation_id)) AS subject,
       CONCAT('operation ', o.status, ' in batch ', o.batch_id, ' which is ', COALESCE(b.status, 'not there')) AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN operation o FORCE INDEX (PRIMARY) ON o.id = j.id
  LEFT JOIN merge_batch b FORCE INDEX (PRIMARY) ON b.id = o.batch_id
WHERE o.batch_id IS NOT NULL
  AND (b.id IS NULL OR (o.status = 4) <> (b.status = 2) OR (o.status = 3 AND b.status NOT IN (1, 4)));

-- name: invariant_operation_is_told
-- Every move of the last day to a state that somebody waits for has its one notification.
-- index: operation.PRIMARY, outbox.uk_subject_event
SELECT LOWER(HEX(o.operation_id)) AS subject, CONCAT('operation is ', o.status, ' without its notification') AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN operation o FORCE INDEX (PRIMARY) ON o.id = j.id
  LEFT JOIN outbox x FORCE INDEX (uk_subject_event)
    ON x.subject = CONCAT('request:', LOWER(HEX(o.operation_id)), ':', o.version)
   AND x.event = CASE o.status WHEN 2 THEN 'request.queued' WHEN 4 THEN 'request.merged' WHEN 5 THEN 'request.failed'
                               WHEN 6 THEN 'request.rejected' ELSE 'request.closed' END
WHERE o.status IN (2, 4, 5, 6, 7) AND o.updated_at > UTC_TIMESTAMP(6) - INTERVAL 24 HOUR AND x.id IS NULL;

-- name: invariant_audit_has_operation
-- I6: a move belongs to an operation.
-- index: operation_audit.PRIMARY, operation.uk_operation_operation_id
SELECT LOWER(HEX(a.operation_id)) AS subject, CONCAT('move ', a.version, ' of an operation that is not there') AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN operation_audit a FORCE INDEX (PRIMARY) ON a.id = j.id
  LEFT JOIN operation o FORCE INDEX (uk_operation_operation_id) ON o.operation_id = a.operation_id
WHERE o.id IS NULL;

-- name: invariant_audit_is_a_chain
-- I6: versions rise by one, and each move starts where the one before ended, along a legal edge.
-- index: operation_audit.PRIMARY, operation_audit.uk_audit
SELECT LOWER(HEX(a.operation_id)) AS subject, CONCAT('version ', a.version, ' does not follow') AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN operation_audit a FORCE INDEX (PRIMARY) ON a.id = j.id
  LEFT JOIN operation_audit p FORCE INDEX (uk_audit) ON p.operation_id = a.operation_id AND p.version = a.version - 1
WHERE (a.version = 1) <> (a.from_status IS NULL)
   OR (a.version > 1 AND NOT (p.to_status <=> a.from_status))
   OR (a.version = 1 AND a.to_status NOT IN (1, 2))
   OR (a.version > 1 AND (a.from_status, a.to_status) NOT IN
       ((1, 2), (1, 6), (1, 7), (2, 3), (2, 7), (3, 4), (3, 2), (3, 5), (5, 2), (5, 7)));

-- name: invariant_landed_once
-- An operation lands once: no move to MERGED after another one.
-- index: operation_audit.PRIMARY, operation_audit.uk_audit
SELECT LOWER(HEX(a.operation_id)) AS subject, CONCAT('merged again with version ', a.version) AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN operation_audit a FORCE INDEX (PRIMARY) ON a.id = j.id
  STRAIGHT_JOIN operation_audit p FORCE INDEX (uk_audit) ON p.operation_id = a.operation_id AND p.version < a.version
WHERE a.to_status = 4 AND p.to_status = 4
GROUP BY a.id, a.operation_id, a.version;

-- name: invariant_binding_follows_operation
-- I5: a relation is where its own operation has brought it; a relation that is active says what made it so.
-- index: binding.PRIMARY, operation.uk_operation_operation_id
SELECT CAST(b.id AS CHAR) AS subject,
       CONCAT('relation is ', b.status, ', its operation ', COALESCE(o.status, 'not there')) AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN binding b FORCE INDEX (PRIMARY) ON b.id = j.id
  LEFT JOIN operation o FORCE INDEX (uk_operation_operation_id) ON o.operation_id = b.operation_id
WHERE o.id IS NULL
   OR o.subject_id <> b.subject_id OR o.target_key <> b.target_key
   OR b.status <> CASE o.status
        WHEN 4 THEN CASE o.action WHEN 3 THEN 8 ELSE 2 END
        WHEN 5 THEN 3
        WHEN 6 THEN CASE o.action WHEN 1 THEN 4 ELSE 2 END
        WHEN 7 THEN CASE o.action WHEN 1 THEN 5 ELSE 2 END
        ELSE CASE o.action WHEN 1 THEN 1 WHEN 2 THEN 6 ELSE 7 END END
   OR (b.status IN (2, 6, 7) AND b.active_operation_id IS NULL);

-- name: invariant_one_row_for_each_relation
-- I5: a relation has one row, also where its UNIQUE key is missing.
-- index: binding.PRIMARY, binding.uk_relation
SELECT CAST(b.id AS CHAR) AS subject, CONCAT('row ', MIN(p.id), ' is of the same subject and target') AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN binding b FORCE INDEX (PRIMARY) ON b.id = j.id
  STRAIGHT_JOIN binding p FORCE INDEX (uk_relation)
    ON p.subject_id = b.subject_id AND p.target_key = b.target_key AND p.id < b.id
GROUP BY b.id;

-- name: invariant_history_is_complete
-- I6: a relation's version is the number of its moves.
-- index: binding.PRIMARY, binding_history.uk_binding_history
SELECT CAST(b.id AS CHAR) AS subject, CONCAT('version ', b.version, ', ', COUNT(h.id), ' rows of history') AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN binding b FORCE INDEX (PRIMARY) ON b.id = j.id
  LEFT JOIN binding_history h FORCE INDEX (uk_binding_history) ON h.binding_id = b.id
GROUP BY b.id, b.version
HAVING COUNT(h.id) <> b.version;

-- name: invariant_history_tells_status
-- I6: a relation stands where its last move has led, and belongs to the operation that moved it.
-- index: binding.PRIMARY, binding_history.uk_binding_history
SELECT CAST(b.id AS CHAR) AS subject, CONCAT('relation is ', b.status, ', its last move led to ', h.to_status) AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN binding b FORCE INDEX (PRIMARY) ON b.id = j.id
  STRAIGHT_JOIN binding_history h FORCE INDEX (uk_binding_history) ON h.binding_id = b.id AND h.version = b.version
WHERE h.to_status <> b.status OR h.operation_id <> b.operation_id;

-- name: invariant_history_has_binding
-- I6: a move belongs to a relation.
-- index: binding_history.PRIMARY, binding.PRIMARY
SELECT CAST(h.binding_id AS CHAR) AS subject, CONCAT('move ', h.version, ' of a relation that is not there') AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN binding_history h FORCE INDEX (PRIMARY) ON h.id = j.id
  LEFT JOIN binding b FORCE INDEX (PRIMARY) ON b.id = h.binding_id
WHERE b.id IS NULL;

-- name: invariant_history_is_a_chain
-- I6: versions of a relation rise by one, each along a legal edge; the first life begins PENDING.
-- index: binding_history.PRIMARY, binding_history.uk_binding_history
SELECT CAST(h.binding_id AS CHAR) AS subject, CONCAT('version ', h.version, ' does not follow') AS detail
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN binding_history h FORCE INDEX (PRIMARY) ON h.id = j.id
  LEFT JOIN binding_history p FORCE INDEX (uk_binding_history) ON p.binding_id = h.binding_id AND p.version = h.version - 1
WHERE (h.version = 1 AND h.to_status <> 1)
   OR (h.version <> 1 AND p.id IS NULL)
   OR (h.version <> 1 AND (p.to_status, h.to_status) NOT IN
       ((4, 1), (5, 1), (8, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 6), (2, 7), (6, 2), (6, 3), (7, 8), (7, 2), (7, 3),
        (3, 1), (3, 6), (3, 7), (3, 5), (3, 2)));

-- name: page_of_merge_batch
-- The next rows of the whole table, by key.
-- index: merge_batch.PRIMARY
SELECT b.id
FROM merge_batch b FORCE INDEX (PRIMARY)
WHERE b.id > %(after_id)s AND b.id <= %(until_id)s
ORDER BY b.id
LIMIT %(limit)s;

-- name: page_of_merge_batch_request
-- The next rows of the whole table, by key.
-- index: merge_batch_request.PRIMARY
SELECT r.id
FROM merge_batch_request r FORCE INDEX (PRIMARY)
WHERE r.id > %(after_id)s AND r.id <= %(until_id)s
ORDER BY r.id
LIMIT %(limit)s;

-- name: page_of_operation
-- The next rows of the whole table, by key.
-- index: operation.PRIMARY
SELECT o.id
FROM operation o FORCE INDEX (PRIMARY)
WHERE o.id > %(after_id)s AND o.id <= %(until_id)s
ORDER BY o.id
LIMIT %(limit)s;

-- name: page_of_operation_audit
-- The next rows of the whole table, by key.
-- index: operation_audit.PRIMARY
SELECT a.id
FROM operation_audit a FORCE INDEX (PRIMARY)
WHERE a.id > %(after_id)s AND a.id <= %(until_id)s
ORDER BY a.id
LIMIT %(limit)s;

-- name: page_of_binding
-- The next rows of the whole table, by key.
-- index: binding.PRIMARY
SELECT b.id
FROM binding b FORCE INDEX (PRIMARY)
WHERE b.id > %(after_id)s AND b.id <= %(until_id)s
ORDER BY b.id
LIMIT %(limit)s;

-- name: page_of_binding_history
-- The next rows of the whole table, by key.
-- index: binding_history.PRIMARY
SELECT h.id
FROM binding_history h FORCE INDEX (PRIMARY)
WHERE h.id > %(after_id)s AND h.id <= %(until_id)s
ORDER BY h.id
LIMIT %(limit)s;

-- name: page_of_recent_merge_batch
-- The next rows of one status that have moved since, the longest ago first.
-- index: merge_batch.ix_batch_status_updated
SELECT b.id, b.updated_at
FROM merge_batch b FORCE INDEX (ix_batch_status_updated)
WHERE b.status = %(status)s AND b.updated_at >= %(since)s AND (b.updated_at > %(since)s OR b.id > %(after_id)s)
ORDER BY b.updated_at, b.id
LIMIT %(limit)s;

-- name: page_of_recent_operation
-- The next rows of one status that have moved since, the longest ago first.
-- index: operation.ix_operation_status_updated
SELECT o.id, o.updated_at
FROM operation o FORCE INDEX (ix_operation_status_updated)
WHERE o.status = %(status)s AND o.updated_at >= %(since)s AND (o.updated_at > %(since)s OR o.id > %(after_id)s)
ORDER BY o.updated_at, o.id
LIMIT %(limit)s;

-- name: page_of_recent_operation_audit
-- The next older rows of an append-only table, the newest first; the caller stops at the first that is too old.
-- index: operation_audit.PRIMARY
SELECT a.id, a.created_at
FROM operation_audit a FORCE INDEX (PRIMARY)
WHERE a.id < %(before_id)s
ORDER BY a.id DESC
LIMIT %(limit)s;

-- name: page_of_recent_binding_history
-- The next older rows of an append-only table, the newest first; the caller stops at the first that is too old.
-- index: binding_history.PRIMARY
SELECT h.id, h.created_at
FROM binding_history h FORCE INDEX (PRIMARY)
WHERE h.id < %(before_id)s
ORDER BY h.id DESC
LIMIT %(limit)s;

-- name: page_of_bindings_of_operations
-- The relations of some operations: a relation moves only together with one of its operations.
-- index: operation.PRIMARY, binding.uk_relation
SELECT DISTINCT b.id
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN operation o FORCE INDEX (PRIMARY) ON o.id = j.id
  STRAIGHT_JOIN binding b FORCE INDEX (uk_relation) ON b.subject_id = o.subject_id AND b.target_key = o.target_key;

-- name: page_ends
-- How far each walk goes, and since when a row counts as recent, by the database's clock.
-- index: none: reads the ends of primary keys
SELECT (SELECT MAX(b.id) FROM merge_batch b) AS batches,
       (SELECT MAX(r.id) FROM merge_batch_request r) AS requests,
       (SELECT MAX(o.id) FROM operation o) AS operations,
       (SELECT MAX(a.id) FROM operation_audit a) AS audit,
       (SELECT MAX(b.id) FROM binding b) AS relations,
       (SELECT MAX(h.id) FROM binding_history h) AS history,
       UTC_TIMESTAMP(6) - INTERVAL %(recent_s)s SECOND AS since;
