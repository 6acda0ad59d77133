-- name: probe_server_facts
-- What kind of server this is and how this session runs; the names differ between servers, so they come as rows.
-- index: none: reads no table
SHOW SESSION VARIABLES WHERE Variable_name IN
  ('version', 'version_comment', 'sql_mode', 'transaction_isolation', 'tx_isolation', 'read_only', 'super_read_only',
   'innodb_read_only', 'sync_binlog', 'innodb_flush_log_at_trx_commit', 'log_bin');

-- name: probe_slot_key
-- One row if the unique key that guards the slot is there.
-- index: none: reads the data dictionary
SELECT s.index_name AS name
FROM information_schema.statistics s
WHERE s.table_schema = DATABASE() AND s.table_name = 'merge_batch' AND s.index_name = 'uk_active_slot'
  AND s.non_unique = 0;

-- name: probe_lock_first_migration
-- Locks the first row of a tiny table, to see whether another session skips it; rolled back by the caller.
-- index: schema_migration.PRIMARY
SELECT m.file
FROM schema_migration m FORCE INDEX (PRIMARY)
ORDER BY m.file
LIMIT 1
FOR UPDATE;

-- name: probe_skip_locked
-- The same row, skipping what is locked: no row means that SKIP LOCKED is honoured.
-- index: schema_migration.PRIMARY
SELECT m.file
FROM schema_migration m FORCE INDEX (PRIMARY)
WHERE m.file = %(file)s
FOR UPDATE SKIP LOCKED;

-- name: probe_alive
-- Whether the database answers.
-- index: none: reads no table
SELECT 1 AS alive;
