-- The migration runner's own book-keeping. Every statement that changes the schema commits by itself, so each step is
-- recorded after it has run: a row in state `started` with n statements done says where a run stopped.

-- name: schema_migration_create
-- Make the runner's table on a fresh database. Guard: IF NOT EXISTS is left to schema_migration_table_exists, because
-- it would raise a warning on the second run.
-- index: none, it is DDL
CREATE TABLE schema_migration (
  file             VARBINARY(255) NOT NULL,
  checksum         BINARY(64)     NOT NULL,
  state            VARBINARY(16)  NOT NULL,
  statements_done  INT            NOT NULL DEFAULT 0,
  started_at       DATETIME(6)    NOT NULL,
  finished_at      DATETIME(6)    NULL,
  PRIMARY KEY (file),
  CONSTRAINT ck_migration_state CHECK (state IN ('started', 'done')),
  CONSTRAINT ck_migration_finished CHECK ((state = 'done') = (finished_at IS NOT NULL))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- name: schema_migration_table_exists
-- One row if the runner has ever worked on this database.
-- index: none, it reads the data dictionary
SELECT table_name AS name FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = 'schema_migration';

-- name: schema_migration_list
-- Everything applied or begun, in order. The loader takes this name as the sign that the right package is loaded.
-- index: none: reads the whole of a tiny table
SELECT file, checksum, state, statements_done, started_at, finished_at
FROM schema_migration
ORDER BY file;

-- name: schema_migration_start
-- Say that a file is about to run. A duplicate key means that somebody works without the lock.
-- index: none, an INSERT
INSERT INTO schema_migration (file, checksum, state, statements_done, started_at)
VALUES (%(file)s, %(checksum)s, 'started', 0, UTC_TIMESTAMP(6));

-- name: schema_migration_advance_if_started
-- Record that statement number %(done)s has run. Guard: begun, and the statement before it is the last one recorded.
-- index: schema_migration.PRIMARY
UPDATE schema_migration SET statements_done = %(done)s
WHERE file = %(file)s AND state = 'started' AND statements_done = %(done)s - 1;

-- name: schema_migration_finish_if_started
-- Close a file's row. Guard: begun, with all of its statements recorded.
-- index: schema_migration.PRIMARY
UPDATE schema_migration SET state = 'done', finished_at = UTC_TIMESTAMP(6)
WHERE file = %(file)s AND state = 'started' AND statements_done = %(done)s;

-- name: schema_migration_forget_if_nothing_done
-- Take a file's row back after its first statement was refused. Guard: begun, with nothing recorded.
-- index: schema_migration.PRIMARY
DELETE FROM schema_migration
WHERE file = %(file)s AND state = 'started' AND statements_done = 0;

-- name: schema_migration_session_isolation
-- Session of the runner's own connection, as everywhere: READ COMMITTED.
-- index: none, it reads no table
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;

-- name: schema_migration_session_limits
-- UTC, and short waits: an ALTER that waits for an idle transaction would stop all readers of the table behind it.
-- index: none, it reads no table
SET SESSION time_zone = '+00:00', innodb_lock_wait_timeout = 3, lock_wait_timeout = %(wait_s)s;

-- name: schema_migration_lock
-- Wait for the only runner's place: 1 taken, 0 not in time. The server frees it when this connection ends.
-- index: none, it reads no table
SELECT GET_LOCK(CONCAT('gitlab-sync-migrate-', LEFT(SHA2(DATABASE(), 256), 32)), %(wait_s)s) AS taken;

-- name: schema_migration_session_cipher
-- Whether the connection is encrypted: an empty value means plain text, which the driver does not mind.
-- index: none, it reads no table
SHOW SESSION STATUS LIKE 'Ssl_cipher';
