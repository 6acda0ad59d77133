-- What `doctor --database` asks the server about itself. Reads no table of ours and takes no lock. The two servers tell of
-- locks in different places, so some questions come twice. Statements of others come as hex: they may hold any bytes.

-- name: doctor_settings
-- The server's own settings that carry the guarantees; what a server does not know is not in the answer.
-- index: none: reads no table
SHOW GLOBAL VARIABLES WHERE Variable_name IN
  ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'binlog_format', 'innodb_doublewrite', 'innodb_deadlock_detect',
   'innodb_autoinc_lock_mode', 'wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode', 'group_replication_consistency',
   'performance_schema');

-- name: doctor_lock_limits
-- How long this session would wait for locks: ours to set, and a proxy's to lose.
-- index: none: reads no table
SHOW SESSION VARIABLES WHERE Variable_name IN ('innodb_lock_wait_timeout', 'lock_wait_timeout');

-- name: doctor_clock
-- The database's clock, and which connection asks.
-- index: none: reads no table
SELECT UTC_TIMESTAMP(6) AS now_at, CONNECTION_ID() AS connection_id;

-- name: doctor_innodb_text
-- InnoDB's report: the open transactions and the latest deadlock stand nowhere else on both servers.
-- index: none: reads no table
SHOW ENGINE INNODB STATUS;

-- name: doctor_connections_mysql
-- Every connection with its present or last statement, without its values. The lists of processes and the statements
-- themselves are of no use here: MySQL cannot show them while one holds bytes (error 3854, or a warning for each look).
-- index: none: reads the server's own memory
SELECT t.processlist_id AS id, t.processlist_user AS user_name, t.processlist_host AS host, t.processlist_db AS db_name,
       t.processlist_command AS command, t.processlist_time AS seconds, t.processlist_state AS state,
       HEX(LEFT(e.digest_text, 200)) AS statement_hex
FROM performance_schema.threads t
  LEFT JOIN performance_schema.events_statements_current e ON e.thread_id = t.thread_id AND e.nesting_event_id IS NULL
WHERE t.processlist_id IS NOT NULL
ORDER BY t.processlist_id
LIMIT %(limit)s;

-- name: doctor_connections_mariadb
-- Every connection; without PROCESS only the user's own.
-- index: none: reads the server's own memory
SELECT p.id AS id, p.user AS user_name, p.host AS host, p.db AS db_name, p.command AS command, p.time AS seconds,
       p.state AS state, HEX(LEFT(p.info, 200)) AS statement_hex
FROM information_schema.processlist p
ORDER BY p.id
LIMIT %(limit)s;

-- name: doctor_row_waits_mysql
-- Who waits for a lock on rows or a table inside InnoDB, and who holds what is in the way.
-- index: none: reads the server's own memory
SELECT wt.processlist_id AS waiter, bt.processlist_id AS blocker, CONCAT(r.object_schema, '.', r.object_name) AS object,
       r.index_name AS index_name, r.lock_mode AS wanted, b.lock_mode AS held
FROM performance_schema.data_lock_waits w
  JOIN performance_schema.data_locks r ON r.engine_lock_id = w.requesting_engine_lock_id
  JOIN performance_schema.data_locks b ON b.engine_lock_id = w.blocking_engine_lock_id
  LEFT JOIN performance_schema.threads wt ON wt.thread_id = w.requesting_thread_id
  LEFT JOIN performance_schema.threads bt ON bt.thread_id = w.blocking_thread_id
LIMIT %(limit)s;

-- name: doctor_row_waits_mariadb
-- Who waits for a lock on rows or a table inside InnoDB, and who holds what is in the way.
-- index: none: reads the server's own memory
SELECT wt.trx_mysql_thread_id AS waiter, NULLIF(bt.trx_mysql_thread_id, 0) AS blocker, REPLACE(r.lock_table, '`', '') AS object,
       r.lock_index AS index_name, r.lock_mode AS wanted, b.lock_mode AS held
FROM information_schema.innodb_lock_waits w
  JOIN information_schema.innodb_locks r ON r.lock_id = w.requested_lock_id
  JOIN information_schema.innodb_locks b ON b.lock_id = w.blocking_lock_id
  JOIN information_schema.innodb_trx wt ON wt.trx_id = w.requesting_trx_id
  JOIN information_schema.innodb_trx bt ON bt.trx_id = w.blocking_trx_id
LIMIT %(limit)s;

-- name: doctor_row_locks_mysql
-- What one connection holds inside InnoDB, table by table.
-- index: none: reads the server's own memory
SELECT CONCAT(l.object_schema, '.', l.object_name) AS object, l.lock_type AS kind, l.lock_mode AS mode, COUNT(*) AS locks
FROM performance_schema.threads t
  JOIN performance_schema.data_locks l ON l.thread_id = t.thread_id
WHERE t.processlist_id = %(connection_id)s AND l.lock_status = 'GRANTED'
GROUP BY l.object_schema, l.object_name, l.lock_type, l.lock_mode
LIMIT %(limit)s;

-- name: doctor_table_waits
-- Who waits for a lock on a table's definition, and who holds one on the same thing. Empty where the instrument is off.
-- index: none: reads the server's own memory
SELECT wt.processlist_id AS waiter, bt.processlist_id AS blocker,
       CONCAT_WS('.', p.object_schema, p.object_name) AS object, p.object_type AS kind, p.lock_type AS wanted,
       g.lock_type AS held
FROM performance_schema.metadata_locks p
  JOIN performance_schema.metadata_locks g
    ON g.object_type = p.object_type AND g.object_schema <=> p.object_schema AND g.object_name <=> p.object_name
   AND g.lock_status = 'GRANTED' AND g.owner_thread_id <> p.owner_thread_id
  LEFT JOIN performance_schema.threads wt ON wt.thread_id = p.owner_thread_id
  LEFT JOIN performance_schema.threads bt ON bt.thread_id = g.owner_thread_id
WHERE p.lock_status = 'PENDING'
LIMIT %(limit)s;

-- name: doctor_table_locks
-- The tables whose definition one connection holds fast. Empty where the instrument is off.
-- index: none: reads the server's own memory
SELECT DISTINCT CONCAT_WS('.', m.object_schema, m.object_name) AS object, m.lock_type AS mode
FROM performance_schema.threads t
  JOIN performance_schema.metadata_locks m ON m.owner_thread_id = t.thread_id
WHERE t.processlist_id = %(connection_id)s AND m.lock_status = 'GRANTED' AND m.object_type = 'TABLE'
LIMIT %(limit)s;
