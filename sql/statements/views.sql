-- name: view_operations
-- One page of requests, newest first, by the primary key.
-- index: operation.PRIMARY
SELECT o.id, o.operation_id, o.partition_key, o.status, o.version, o.action, o.subject_id, o.target_key, o.title,
       o.requested_by, o.priority, o.rounds, o.batch_id, o.expires_at, o.reason_code, o.reason_text,
       o.created_at, o.updated_at
FROM operation o FORCE INDEX (PRIMARY)
WHERE o.id < %(before_id)s
ORDER BY o.id DESC
LIMIT %(limit)s;

-- name: view_operations_by_status
-- One page of the requests in one status, the most recently moved first; keyset on (updated_at, id).
-- index: operation.ix_operation_status_updated
SELECT o.id, o.operation_id, o.partition_key, o.status, o.version, o.action, o.subject_id, o.target_key, o.title,
       o.requested_by, o.priority, o.rounds, o.batch_id, o.expires_at, o.reason_code, o.reason_text,
       o.created_at, o.updated_at
FROM operation o FORCE INDEX (ix_operation_status_updated)
WHERE o.status = %(status)s
  AND (o.updated_at < %(before_updated_at)s OR (o.updated_at = %(before_updated_at)s AND o.id < %(before_id)s))
ORDER BY o.updated_at DESC, o.id DESC
LIMIT %(limit)s;

-- name: view_operations_by_partition
-- One page of a partition's requests, newest first.
-- index: operation.ix_operation_partition
SELECT o.id, o.operation_id, o.partition_key, o.status, o.version, o.action, o.subject_id, o.target_key, o.title,
       o.requested_by, o.priority, o.rounds, o.batch_id, o.expires_at, o.reason_code, o.reason_text,
       o.created_at, o.updated_at
FROM operation o FORCE INDEX (ix_operation_partition)
WHERE o.partition_key = %(partition_key)s AND o.id < %(before_id)s
ORDER BY o.id DESC
LIMIT %(limit)s;

-- name: view_operations_by_partition_status
-- One page of a partition's requests in one status, newest first.
-- index: operation.ix_operation_partition_status
SELECT o.id, o.operation_id, o.partition_key, o.status, o.version, o.action, o.subject_id, o.target_key, o.title,
       o.requested_by, o.priority, o.rounds, o.batch_id, o.expires_at, o.reason_code, o.reason_text,
       o.created_at, o.updated_at
FROM operation o FORCE INDEX (ix_operation_partition_status)
WHERE o.partition_key = %(partition_key)s AND o.status = %(status)s AND o.id < %(before_id)s
ORDER BY o.id DESC
LIMIT %(limit)s;

-- name: view_operations_by_subject
-- One page of a subject's requests, newest first.
-- index: operation.ix_operation_subject
SELECT o.id, o.operation_id, o.partition_key, o.status, o.version, o.action, o.subject_id, o.target_key, o.title,
       o.requested_by, o.priority, o.rounds, o.batch_id, o.expires_at, o.reason_code, o.reason_text,
       o.created_at, o.updated_at
FROM operation o FORCE INDEX (ix_operation_subject)
WHERE o.subject_id = %(subject_id)s AND o.id < %(before_id)s
  AND (%(target_key)s IS NULL OR o.target_key = %(target_key)s)
  AND (%(partition_key)s IS NULL OR o.partition_key = %(partition_key)s)
  AND (%(status)s IS NULL OR o.status = %(status)s)
ORDER BY o.id DESC
LIMIT %(limit)s;

-- name: view_operations_by_target
-- One page of a target's requests, newest first.
-- index: operation.ix_operation_target
SELECT o.id, o.operation_id, o.partition_key, o.status, o.version, o.action, o.subject_id, o.target_key, o.title,
       o.requested_by, o.priority, o.rounds, o.batch_id, o.expires_at, o.reason_code, o.reason_text,
       o.created_at, o.updated_at
FROM operation o FORCE INDEX (ix_operation_target)
WHERE o.target_key = %(target_key)s AND o.id < %(before_id)s
  AND (%(partition_key)s IS NULL OR o.partition_key = %(partition_key)s)
  AND (%(status)s IS NULL OR o.status = %(status)s)
ORDER BY o.id DESC
LIMIT %(limit)s;

-- name: view_batches
-- One page of batches, newest first, by the primary key; with how many it was claimed with.
-- index: merge_batch.PRIMARY, merge_batch_member.PRIMARY
SELECT b.id, b.partition_key, b.status, b.version, b.marker, b.attempt, b.policy, b.base_sha, b.head_sha,
       b.project_id, b.mr_iid, b.mr_url, b.pipeline_id, b.published_at, b.merge_asked_at, b.merge_asks,
       b.landed_sha, b.ending_code, b.ending_members, b.reason_code, b.reason_text,
       b.settled_via, b.settled_at, b.next_check_at, b.deadline_at, b.created_at, b.updated_at,
       b.deadline_at <= UTC_TIMESTAMP(6) AS is_past_deadline,
       TIMESTAMPDIFF(MICROSECOND, b.created_at, UTC_TIMESTAMP(6)) AS age_us,
       TIMESTAMPDIFF(MICROSECOND, b.published_at, UTC_TIMESTAMP(6)) AS publish_age_us,
       TIMESTAMPDIFF(MICROSECOND, b.merge_asked_at, UTC_TIMESTAMP(6)) AS merge_asked_age_us,
       (SELECT COUNT(*) FROM merge_batch_member m WHERE m.batch_id = b.id) AS members
FROM merge_batch b FORCE INDEX (PRIMARY)
WHERE b.id < %(before_id)s
ORDER BY b.id DESC
LIMIT %(limit)s;

-- name: view_batches_by_status
-- One page of the batches in one status, the most recently moved first; keyset on (updated_at, id).
-- index: merge_batch.ix_batch_status_updated, merge_batch_member.PRIMARY
SELECT b.id, b.partition_key, b.status, b.version, b.marker, b.attempt, b.policy, b.base_sha, b.head_sha,
       b.project_id, b.mr_iid, b.mr_url, b.pipeline_id, b.published_at, b.merge_asked_at, b.merge_asks,
       b.landed_sha, b.ending_code, b.ending_members, b.reason_code, b.reason_text,
       b.settled_via, b.settled_at, b.next_check_at, b.deadline_at, b.created_at, b.updated_at,
       b.deadline_at <= UTC_TIMESTAMP(6) AS is_past_deadline,
       TIMESTAMPDIFF(MICROSECOND, b.created_at, UTC_TIMESTAMP(6)) AS age_us,
       TIMESTAMPDIFF(MICROSECOND, b.published_at, UTC_TIMESTAMP(6)) AS publish_age_us,
       TIMESTAMPDIFF(MICROSECOND, b.merge_asked_at, UTC_TIMESTAMP(6)) AS merge_asked_age_us,
       (SELECT COUNT(*) FROM merge_batch_member m WHERE m.batch_id = b.id) AS members
FROM merge_batch b FORCE INDEX (ix_batch_status_updated)
WHERE b.status = %(status)s
  AND (b.updated_at < %(before_updated_at)s OR (b.updated_at = %(before_updated_at)s AND b.id < %(before_id)s))
ORDER BY b.updated_at DESC, b.id DESC
LIMIT %(limit)s;

-- name: view_batches_by_partition
-- One page of a partition's batches, newest first; an absent status is NULL.
-- index: merge_batch.ix_batch_partition, merge_batch_member.PRIMARY
SELECT b.id, b.partition_key, b.status, b.version, b.marker, b.attempt, b.policy, b.base_sha, b.head_sha,
       b.project_id, b.mr_iid, b.mr_url, b.pipeline_id, b.published_at, b.merge_asked_at, b.merge_asks,
       b.landed_sha, b.ending_code, b.ending_members, b.reason_code, b.reason_text,
       b.settled_via, b.settled_at, b.next_check_at, b.deadline_at, b.created_at, b.updated_at,
       b.deadline_at <= UTC_TIMESTAMP(6) AS is_past_deadline,
       TIMESTAMPDIFF(MICROSECOND, b.created_at, UTC_TIMESTAMP(6)) AS age_us,
       TIMESTAMPDIFF(MICROSECOND, b.published_at, UTC_TIMESTAMP(6)) AS publish_age_us,
       TIMESTAMPDIFF(MICROSECOND, b.merge_asked_at, UTC_TIMESTAMP(6)) AS merge_asked_age_us,
       (SELECT COUNT(*) FROM merge_batch_member m WHERE m.batch_id = b.id) AS members
FROM merge_batch b FORCE INDEX (ix_batch_partition)
WHERE b.partition_key = %(partition_key)s AND b.id < %(before_id)s
  AND (%(status)s IS NULL OR b.status = %(status)s)
ORDER BY b.id DESC
LIMIT %(limit)s;

-- name: view_waiting
-- The waiting set of every partition in numbers, for gauges and the partitions list, counted in the order of partitions
-- up to a limit: where all together come to it, the last one is cut and those behind it are missing.
-- index: merge_batch_request.ix_request_claim
SELECT w.partition_key, COUNT(*) AS waiting,
       TIMESTAMPDIFF(MICROSECOND, MIN(w.created_at), UTC_TIMESTAMP(6)) AS oldest_us
FROM (SELECT r.partition_key, r.created_at
      FROM merge_batch_request r FORCE INDEX (ix_request_claim)
      WHERE r.batch_id IS NULL
      ORDER BY r.partition_key
      LIMIT %(limit)s) w
GROUP BY w.partition_key;

-- name: view_active_batches
-- The active batches, for gauges and the partitions list; at most one for each partition.
-- index: merge_batch.ix_batch_status_check
SELECT b.id, b.partition_key, b.status, b.version, b.reason_code, b.mr_url,
       TIMESTAMPDIFF(MICROSECOND, b.created_at, UTC_TIMESTAMP(6)) AS age_us,
       TIMESTAMPDIFF(MICROSECOND, b.deadline_at, UTC_TIMESTAMP(6)) AS overdue_us
FROM merge_batch b FORCE INDEX (ix_batch_status_check)
WHERE b.status IN (1, 4);

-- name: view_landed_waits
-- How long the requests of a landed batch have waited since their submit, summed up for each bucket of the
-- histogram (its bounds, plus one microsecond: a bound belongs to the bucket below); read after the settlement.
-- index: merge_batch_member.PRIMARY, operation.uk_operation_operation_id
SELECT INTERVAL(TIMESTAMPDIFF(MICROSECOND, o.created_at, o.updated_at), 1000001, 5000001, 15000001, 60000001,
                300000001, 600000001, 1200000001, 1800000001, 3600000001, 7200000001, 14400000001,
                86400000001) AS bucket,
       COUNT(*) AS requests,
       SUM(TIMESTAMPDIFF(MICROSECOND, o.created_at, o.updated_at)) AS waited_us,
       MAX(CONCAT(LPAD(TIMESTAMPDIFF(MICROSECOND, o.created_at, o.updated_at), 20, '0'),
                  o.operation_id)) AS slowest
FROM merge_batch_member m FORCE INDEX (PRIMARY)
  STRAIGHT_JOIN operation o FORCE INDEX (uk_operation_operation_id) ON o.operation_id = m.operation_id
WHERE m.batch_id = %(batch_id)s AND o.batch_id = m.batch_id AND o.status = 4
GROUP BY bucket;

-- name: view_settled_by_via
-- How many batches each path has settled, for summaries; reads every settled batch's index entry and row.
-- index: merge_batch.ix_batch_status_updated
SELECT b.settled_via, COUNT(*) AS batches
FROM merge_batch b FORCE INDEX (ix_batch_status_updated)
WHERE b.status IN (2, 3)
GROUP BY b.settled_via;
