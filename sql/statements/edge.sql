-- name: idempotency_insert
-- Claims an idempotency key for this transaction; a duplicate of uk_request_id is a repeat or a twin in flight.
-- index: none: inserts its own rows
INSERT INTO idempotency_record (request_id, body_hash, operation_ids, attempt_token, created_at, expires_at)
VALUES (%(request_id)s, %(body_hash)s, %(operation_ids)s, %(token)s,
        UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL %(keep_s)s SECOND);

-- name: idempotency_get
-- What an idempotency key stands for.
-- index: idempotency_record.uk_request_id
SELECT i.body_hash, i.operation_ids, i.attempt_token
FROM idempotency_record i
WHERE i.request_id = %(request_id)s;

-- name: idempotency_select_expired
-- Janitor: expired keys, a small chunk, oldest first. Takes no lock, so it waits for nobody's fresh rows.
-- index: idempotency_record.ix_idempotency_expires
SELECT d.id
FROM idempotency_record d FORCE INDEX (ix_idempotency_expires)
WHERE d.expires_at < UTC_TIMESTAMP(6)
ORDER BY d.expires_at
LIMIT %(limit)s;

-- name: idempotency_delete_many
-- Janitor: that chunk, by primary key. Guard: none is needed, an expired key stays expired.
-- index: idempotency_record.PRIMARY
DELETE d
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN idempotency_record d FORCE INDEX (PRIMARY) ON d.id = j.id;

-- name: delivery_insert
-- Remembers a webhook delivery; a duplicate of uk_delivery_key means it came before.
-- index: none: inserts its own rows
INSERT INTO webhook_delivery (delivery_key, body_hash, attempt_token, event, received_at)
VALUES (%(delivery_key)s, %(body_hash)s, %(token)s, %(event)s, UTC_TIMESTAMP(6));

-- name: delivery_get
-- The body that came under a delivery key the first time.
-- index: webhook_delivery.uk_delivery_key
SELECT d.body_hash, d.attempt_token
FROM webhook_delivery d
WHERE d.delivery_key = %(delivery_key)s;

-- name: delivery_lock_token
-- Locking read for the commit resolver: did the attempt whose answer was lost remember this delivery?
-- index: webhook_delivery.uk_delivery_key
SELECT d.id
FROM webhook_delivery d
WHERE d.delivery_key = %(delivery_key)s AND d.attempt_token = %(token)s
FOR UPDATE;

-- name: delivery_select_old
-- Janitor: deliveries that GitLab can no longer resend, a small chunk, oldest first. Takes no lock, so it waits for nobody's fresh rows.
-- index: webhook_delivery.ix_delivery_received
SELECT d.id
FROM webhook_delivery d FORCE INDEX (ix_delivery_received)
WHERE d.received_at < UTC_TIMESTAMP(6) - INTERVAL %(keep_s)s SECOND
ORDER BY d.received_at
LIMIT %(limit)s;

-- name: delivery_delete_many
-- Janitor: that chunk, by primary key. Guard: none is needed, an old delivery stays old.
-- index: webhook_delivery.PRIMARY
DELETE d
FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) j
  STRAIGHT_JOIN webhook_delivery d FORCE INDEX (PRIMARY) ON d.id = j.id;

-- name: pause_insert
-- Pauses a partition's rounds; a duplicate key means it is paused already.
-- index: none: inserts its own rows
INSERT INTO partition_pause (partition_key, reason, actor, paused_at)
VALUES (%(partition_key)s, %(reason)s, %(actor)s, UTC_TIMESTAMP(6));

-- name: pause_replace
-- Says another reason for a pause that stands: the caller holds its lock. Guard: the row that was locked.
-- index: partition_pause.PRIMARY
UPDATE partition_pause p FORCE INDEX (PRIMARY)
SET p.reason = %(reason)s, p.actor = %(actor)s, p.paused_at = UTC_TIMESTAMP(6)
WHERE p.partition_key = %(partition_key)s;

-- name: pause_delete
-- Resumes a partition's rounds.
-- index: partition_pause.PRIMARY
DELETE FROM partition_pause
WHERE partition_key = %(partition_key)s;

-- name: pause_lock
-- The pause of a partition, locked: for who ends it, and for the commit resolver.
-- index: partition_pause.PRIMARY
SELECT p.reason, p.actor, p.paused_at
FROM partition_pause p FORCE INDEX (PRIMARY)
WHERE p.partition_key = %(partition_key)s
FOR UPDATE;

-- name: pause_select
-- All paused partitions; there are never many.
-- index: none: reads the whole of a tiny table
SELECT p.partition_key, p.reason, p.actor, p.paused_at
FROM partition_pause p;

-- name: pause_get
-- Whether one partition is paused; a hint before a round.
-- index: partition_pause.PRIMARY
SELECT p.reason, p.actor, p.paused_at
FROM partition_pause p
WHERE p.partition_key = %(partition_key)s;
