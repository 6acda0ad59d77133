-- name: member_insert_claimed
-- Append-only history of who was in which batch, in the claim's order.
-- index: merge_batch_request.PRIMARY
INSERT INTO merge_batch_member (batch_id, position, operation_id, claimed_at)
SELECT %(batch_id)s, j.position, r.operation_id, UTC_TIMESTAMP(6)
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (position FOR ORDINALITY, id BIGINT PATH '$')) j
  STRAIGHT_JOIN merge_batch_request r FORCE INDEX (PRIMARY) ON r.id = j.id;

-- name: member_select_of_batch
-- The members that are still in a batch, in the claim's order, with what composing needs.
-- index: merge_batch_member.PRIMARY, operation.uk_operation_operation_id
SELECT m.position, o.operation_id, o.version, o.status, o.action, o.subject_id, o.target_key, o.title,
       o.requested_by, o.rounds, o.edits
FROM merge_batch_member m FORCE INDEX (PRIMARY)
  STRAIGHT_JOIN operation o FORCE INDEX (uk_operation_operation_id) ON o.operation_id = m.operation_id
WHERE m.batch_id = %(batch_id)s AND o.batch_id = m.batch_id
ORDER BY m.position;

-- name: member_select_history_of_batch
-- Everybody who ever was in a batch, for its page; without the edits.
-- index: merge_batch_member.PRIMARY, operation.uk_operation_operation_id
SELECT m.position, o.operation_id, o.status, o.title, o.subject_id, o.target_key, o.requested_by,
       o.batch_id, o.reason_code, o.reason_text
FROM merge_batch_member m FORCE INDEX (PRIMARY)
  STRAIGHT_JOIN operation o FORCE INDEX (uk_operation_operation_id) ON o.operation_id = m.operation_id
WHERE m.batch_id = %(batch_id)s
ORDER BY m.position;
