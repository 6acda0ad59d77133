-- Read-only looks for what must not be. Each row is a violation: `subject` says where, `detail` what.

-- name: invariant_one_active_batch
-- I1: at most one active batch for a partition, by status and not only by the slot.
-- index: none: reads every active batch
SELECT CONVERT(b.partition_key USING utf8mb4) AS subject, CONCAT(COUNT(*), ' active batches') AS detail
FROM merge_batch b
WHERE b.status IN (1, 4)
GROUP BY b.partition_key
HAVING COUNT(*) > 1;

-- name: invariant_slot_equals_status
-- I1: the generated slot says the same as the status.
-- index: none: reads every batch
SELECT CAST(b.id AS CHAR) AS subject, 'slot and status disagree' AS detail
FROM merge_batch b
WHERE NOT (b.active_slot <=> CASE WHEN b.status IN (1, 4) THEN b.partition_key END);

-- name: invariant_claimed_has_active_batch
-- I2: a claimed request's batch exists and is active.
-- index: none: reads every claimed request
SELECT LOWER(HEX(r.operation_id)) AS subject, CONCAT('claimed by batch ', r.batch_id, ', which is not active') AS detail
FROM merge_batch_request r
  LEFT JOIN merge_batch b ON b.id = r.batch_id
WHERE r.batch_id IS NOT NULL AND (b.id IS NULL OR b.status NOT IN (1, 4));

-- name: invariant_request_matches_operation
-- I2, I4: a waiting row belongs to a QUEUED operation, a claimed one to an operation MERGING in the same batch.
-- index: none: reads the whole waiting set
SELECT LOWER(HEX(r.operation_id)) AS subject, 'waiting row and operation disagree' AS detail
FROM merge_batch_request r
  LEFT JOIN operation o ON o.operation_id = r.operation_id
WHERE o.id IS NULL
   OR (r.batch_id IS NULL AND o.status <> 2)
   OR (r.batch_id IS NOT NULL AND (o.status <> 3 OR NOT (o.batch_id <=> r.batch_id)))
   OR r.partition_key <> o.partition_key;

-- name: invariant_operation_has_request
-- I4: a QUEUED or MERGING operation has its waiting or claimed row; nothing acknowledged is lost.
-- index: operation.ix_operation_status_updated
SELECT LOWER(HEX(o.operation_id)) AS subject, 'queued or merging without a row in the waiting set' AS detail
FROM operation o FORCE INDEX (ix_operation_status_updated)
  LEFT JOIN merge_batch_request r ON r.operation_id = o.operation_id
WHERE o.status IN (2, 3) AND r.id IS NULL;

-- name: invariant_binding_follows_operation
-- I5: a relation in progress has an operation in flight, and the reverse; an active one says what made it active.
-- index: none: reads every relation
SELECT CONCAT(b.id) AS subject, CONCAT('relation is ', b.status, ', its operation ', o.status) AS detail
FROM binding b
  LEFT JOIN operation o ON o.operation_id = b.operation_id
WHERE o.id IS NULL
   OR (b.status IN (1, 6, 7)) <> (o.status IN (1, 2, 3))
   OR (b.status = 3) <> (o.status = 5)
   OR (b.status IN (2, 6, 7) AND b.active_operation_id IS NULL);

-- name: invariant_one_row_for_each_relation
-- I5: a relation has one row, also where its UNIQUE key is missing.
-- index: binding.uk_relation
SELECT CONCAT(MIN(b.id)) AS subject, CONCAT(COUNT(*), ' rows for one subject and target') AS detail
FROM binding b FORCE INDEX (uk_relation)
GROUP BY b.subject_id, b.target_key
HAVING COUNT(*) > 1;

-- name: invariant_operation_holds_relation
-- I5: an operation in flight or waiting for recovery is the one that its relation names: nobody has overwritten it.
-- index: operation.ix_operation_status_updated, binding.uk_relation
SELECT LOWER(HEX(o.operation_id)) AS subject, CONCAT('operation is ', o.status, ', its relation names another one') AS detail
FROM operation o FORCE INDEX (ix_operation_status_updated)
  LEFT JOIN binding b FORCE INDEX (uk_relation)
    ON b.subject_id = o.subject_id AND b.target_key = o.target_key AND b.operation_id = o.operation_id
WHERE o.status IN (1, 2, 3, 5) AND b.id IS NULL;

-- name: invariant_audit_is_complete
-- I6: an operation's version is the number of its moves.
-- index: operation_audit.uk_audit
SELECT LOWER(HEX(o.operation_id)) AS subject, CONCAT('version ', o.version, ', ', COUNT(a.id), ' audit rows') AS detail
FROM operation o
  LEFT JOIN operation_audit a FORCE INDEX (uk_audit) ON a.operation_id = o.operation_id
GROUP BY o.id, o.operation_id, o.version
HAVING COUNT(a.id) <> o.version;

-- name: invariant_audit_is_a_chain
-- I6: versions rise by one, and each move starts where the one before ended, along a legal edge.
-- index: operation_audit.uk_audit
SELECT LOWER(HEX(a.operation_id)) AS subject, CONCAT('version ', a.version, ' does not follow') AS detail
FROM operation_audit a
  LEFT JOIN operation_audit p FORCE INDEX (uk_audit) ON p.operation_id = a.operation_id AND p.version = a.version - 1
WHERE (a.version = 1) <> (a.from_status IS NULL)
   OR (a.version > 1 AND NOT (p.to_status <=> a.from_status))
   OR (a.version = 1 AND a.to_status NOT IN (1, 2))
   OR (a.version > 1 AND (a.from_status, a.to_status) NOT IN
       ((1, 2), (1, 6), (1, 7), (2, 3), (2, 7), (3, 4), (3, 2), (3, 5), (5, 2), (5, 7)));

-- name: invariant_landed_once
-- An operation lands once: one move to MERGED at most, and none after it.
-- index: none: reads the whole audit
SELECT LOWER(HEX(a.operation_id)) AS subject, CONCAT('merged ', COUNT(*), ' times') AS detail
FROM operation_audit a
WHERE a.to_status = 4
GROUP BY a.operation_id
HAVING COUNT(*) > 1;

-- name: invariant_members_agree_with_batch
-- Terminal agreement: a MERGED operation's batch SUCCEEDED, and who is in a SUCCEEDED batch is MERGED.
-- index: none: reads every operation that was in a batch
SELECT LOWER(HEX(o.operation_id)) AS subject, CONCAT('operation ', o.status, ' in batch ', b.id, ' which is ', b.status) AS detail
FROM operation o
  JOIN merge_batch b ON b.id = o.batch_id
WHERE (o.status = 4) <> (b.status = 2)
   OR (o.status = 3 AND b.status NOT IN (1, 4));

-- name: invariant_settled_is_told
-- Every settlement of the last hour has its one notification (older ones the janitor may have removed).
-- index: outbox.uk_subject_event
SELECT CAST(b.id AS CHAR) AS subject, 'settled without its notification' AS detail
FROM merge_batch b
  LEFT JOIN outbox x FORCE INDEX (uk_subject_event)
    ON x.subject = CONCAT('batch:', b.id, ':', b.version)
   AND x.event = CASE b.status WHEN 2 THEN 'batch.succeeded' ELSE 'batch.failed' END
WHERE b.status IN (2, 3) AND b.settled_at > UTC_TIMESTAMP(6) - INTERVAL 1 HOUR AND x.id IS NULL;

-- name: invariant_merged_is_told
-- Every landing of the last hour has its one notification.
-- index: outbox.uk_subject_event
SELECT LOWER(HEX(o.operation_id)) AS subject, 'merged without its notification' AS detail
FROM operation o FORCE INDEX (ix_operation_status_updated)
  LEFT JOIN outbox x FORCE INDEX (uk_subject_event)
    ON x.subject = CONCAT('request:', LOWER(HEX(o.operation_id)), ':', o.version) AND x.event = 'request.merged'
WHERE o.status = 4 AND o.updated_at > UTC_TIMESTAMP(6) - INTERVAL 1 HOUR AND x.id IS NULL;

-- name: invariant_nothing_stuck
-- Liveness: no active batch is long past its deadline; the sweep should have ended it.
-- index: merge_batch.ix_batch_status_deadline
SELECT CAST(b.id AS CHAR) AS subject, 'active more than 15 minutes past its deadline' AS detail
FROM merge_batch b FORCE INDEX (ix_batch_status_deadline)
WHERE b.status IN (1, 4) AND b.deadline_at < UTC_TIMESTAMP(6) - INTERVAL 15 MINUTE;
