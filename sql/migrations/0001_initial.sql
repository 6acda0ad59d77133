-- The whole schema. One statement ends where a line ends with a semicolon.
-- Identity columns are VARBINARY: compared byte for byte, no case, accent or trailing-blank folding.
-- All times are UTC by the database's clock, DATETIME(6). Numbers of statuses: gitlab_sync/states.py.

CREATE TABLE merge_batch (
  id               BIGINT         NOT NULL AUTO_INCREMENT,
  partition_key    VARBINARY(64)  NOT NULL,
  status           TINYINT        NOT NULL,
  active_slot      VARBINARY(64)  GENERATED ALWAYS AS (CASE WHEN status IN (1, 4) THEN partition_key END) STORED,
  version          INT            NOT NULL DEFAULT 1,
  attempt_token    BINARY(16)     NOT NULL,
  marker           BINARY(16)     NOT NULL,
  attempt          INT            NOT NULL DEFAULT 1,
  policy           JSON           NOT NULL,
  base_sha         VARBINARY(64)  NULL,
  head_sha         VARBINARY(64)  NULL,
  project_id       BIGINT         NULL,
  mr_iid           BIGINT         NULL,
  mr_url           VARCHAR(2000)  NULL,
  pipeline_id      BIGINT         NULL,
  published_at     DATETIME(6)    NULL,
  merge_asked_at   DATETIME(6)    NULL,
  merge_asks       INT            NOT NULL DEFAULT 0,
  landed_sha       VARBINARY(64)  NULL,
  ending_code      VARBINARY(64)  NULL,
  ending_members   VARBINARY(16)  NULL,
  reason_code      VARBINARY(64)  NULL,
  reason_text      VARCHAR(1000)  NULL,
  settled_via      VARBINARY(16)  NULL,
  settled_at       DATETIME(6)    NULL,
  next_check_at    DATETIME(6)    NOT NULL,
  deadline_at      DATETIME(6)    NOT NULL,
  created_at       DATETIME(6)    NOT NULL,
  updated_at       DATETIME(6)    NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_active_slot (active_slot),
  UNIQUE KEY uk_merge_request (project_id, mr_iid),
  KEY ix_batch_status_updated (status, updated_at),
  KEY ix_batch_status_check (status, next_check_at),
  KEY ix_batch_status_deadline (status, deadline_at),
  KEY ix_batch_partition (partition_key, id),
  CONSTRAINT ck_batch_status CHECK (status IN (1, 2, 3, 4)),
  CONSTRAINT ck_batch_settled CHECK ((status IN (2, 3)) = (settled_at IS NOT NULL)),
  CONSTRAINT ck_batch_settled_via CHECK ((settled_at IS NULL) = (settled_via IS NULL)),
  CONSTRAINT ck_batch_blocked CHECK (status <> 4 OR reason_code IS NOT NULL)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE operation (
  id               BIGINT         NOT NULL AUTO_INCREMENT,
  operation_id     BINARY(16)     NOT NULL,
  partition_key    VARBINARY(64)  NOT NULL,
  status           TINYINT        NOT NULL,
  version          INT            NOT NULL DEFAULT 1,
  attempt_token    BINARY(16)     NOT NULL,
  action           TINYINT        NOT NULL,
  subject_id       VARBINARY(255) NOT NULL,
  target_key       VARBINARY(255) NOT NULL,
  edits            LONGTEXT       NOT NULL,
  on_expiry        LONGTEXT       NULL,
  title            VARBINARY(1020) NOT NULL,
  requested_by     VARBINARY(255) NOT NULL,
  priority         INT            NOT NULL DEFAULT 0,
  rounds           INT            NOT NULL DEFAULT 0,
  batch_id         BIGINT         NULL,
  expires_at       DATETIME(6)    NULL,
  reason_code      VARBINARY(64)  NULL,
  reason_text      VARCHAR(1000)  NULL,
  created_at       DATETIME(6)    NOT NULL,
  updated_at       DATETIME(6)    NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_operation_operation_id (operation_id),
  KEY ix_operation_token (attempt_token),
  KEY ix_operation_status_updated (status, updated_at),
  KEY ix_operation_partition (partition_key, id),
  KEY ix_operation_partition_status (partition_key, status, id),
  KEY ix_operation_subject (subject_id, id),
  KEY ix_operation_target (target_key, id),
  CONSTRAINT ck_operation_status CHECK (status IN (1, 2, 3, 4, 5, 6, 7)),
  CONSTRAINT ck_operation_action CHECK (action IN (1, 2, 3)),
  CONSTRAINT ck_operation_merging CHECK (status NOT IN (3, 4) OR batch_id IS NOT NULL)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE merge_batch_request (
  id               BIGINT         NOT NULL AUTO_INCREMENT,
  operation_id     BINARY(16)     NOT NULL,
  partition_key    VARBINARY(64)  NOT NULL,
  batch_id         BIGINT         NULL,
  priority         INT            NOT NULL DEFAULT 0,
  rounds           INT            NOT NULL DEFAULT 0,
  created_at       DATETIME(6)    NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_operation_id (operation_id),
  KEY ix_request_claim (partition_key, batch_id, priority DESC, created_at, id),
  KEY ix_request_batch (batch_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE merge_batch_member (
  batch_id         BIGINT         NOT NULL,
  position         INT            NOT NULL,
  operation_id     BINARY(16)     NOT NULL,
  claimed_at       DATETIME(6)    NOT NULL,
  PRIMARY KEY (batch_id, position),
  UNIQUE KEY uk_member (operation_id, batch_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE operation_audit (
  id               BIGINT         NOT NULL AUTO_INCREMENT,
  operation_id     BINARY(16)     NOT NULL,
  version          INT            NOT NULL,
  from_status      TINYINT        NULL,
  to_status        TINYINT        NOT NULL,
  via              VARBINARY(16)  NOT NULL,
  actor            VARBINARY(255) NOT NULL,
  cause            VARCHAR(1000)  NOT NULL,
  batch_id         BIGINT         NULL,
  created_at       DATETIME(6)    NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_audit (operation_id, version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE binding (
  id                  BIGINT         NOT NULL AUTO_INCREMENT,
  subject_id          VARBINARY(255) NOT NULL,
  target_key          VARBINARY(255) NOT NULL,
  status              TINYINT        NOT NULL,
  version             INT            NOT NULL DEFAULT 1,
  operation_id        BINARY(16)     NOT NULL,
  active_operation_id BINARY(16)     NULL,
  attempt_token       BINARY(16)     NOT NULL,
  expires_at          DATETIME(6)    NULL,
  created_at          DATETIME(6)    NOT NULL,
  updated_at          DATETIME(6)    NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_relation (subject_id, target_key),
  KEY ix_binding_expires (status, expires_at),
  CONSTRAINT ck_binding_status CHECK (status IN (1, 2, 3, 4, 5, 6, 7, 8)),
  CONSTRAINT ck_binding_active CHECK (status NOT IN (2, 6, 7) OR active_operation_id IS NOT NULL)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE binding_history (
  id               BIGINT         NOT NULL AUTO_INCREMENT,
  binding_id       BIGINT         NOT NULL,
  version          INT            NOT NULL,
  to_status        TINYINT        NOT NULL,
  operation_id     BINARY(16)     NOT NULL,
  via              VARBINARY(16)  NOT NULL,
  created_at       DATETIME(6)    NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_binding_history (binding_id, version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE idempotency_record (
  id               BIGINT         NOT NULL AUTO_INCREMENT,
  request_id       VARBINARY(320) NOT NULL,
  body_hash        BINARY(32)     NOT NULL,
  operation_ids    JSON           NOT NULL,
  attempt_token    BINARY(16)     NOT NULL,
  created_at       DATETIME(6)    NOT NULL,
  expires_at       DATETIME(6)    NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_request_id (request_id),
  KEY ix_idempotency_expires (expires_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE webhook_delivery (
  id               BIGINT         NOT NULL AUTO_INCREMENT,
  delivery_key     VARBINARY(255) NOT NULL,
  body_hash        BINARY(32)     NOT NULL,
  attempt_token    BINARY(16)     NOT NULL,
  event            VARBINARY(64)  NOT NULL,
  received_at      DATETIME(6)    NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_delivery_key (delivery_key),
  KEY ix_delivery_received (received_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE outbox (
  id               BIGINT         NOT NULL AUTO_INCREMENT,
  subject          VARBINARY(120) NOT NULL,
  event            VARBINARY(64)  NOT NULL,
  operation_id     BINARY(16)     NULL,
  batch_id         BIGINT         NULL,
  payload          JSON           NOT NULL,
  lease_token      BINARY(16)     NULL,
  attempts         INT            NOT NULL DEFAULT 0,
  next_attempt_at  DATETIME(6)    NOT NULL,
  last_error       VARCHAR(1000)  NULL,
  created_at       DATETIME(6)    NOT NULL,
  delivered_at     DATETIME(6)    NULL,
  dead_at          DATETIME(6)    NULL,
  refusals         INT            NOT NULL DEFAULT 0,
  stream           VARBINARY(120) GENERATED ALWAYS AS (SUBSTRING_INDEX(subject, ':', 2)) STORED,
  PRIMARY KEY (id),
  UNIQUE KEY uk_subject_event (subject, event),
  KEY ix_outbox_due (delivered_at, dead_at, next_attempt_at, id),
  KEY ix_outbox_stream (stream, delivered_at, dead_at, id),
  CONSTRAINT ck_outbox_ended CHECK (delivered_at IS NULL OR dead_at IS NULL)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE partition_pause (
  partition_key    VARBINARY(64)  NOT NULL,
  reason           VARCHAR(1000)  NOT NULL,
  actor            VARBINARY(255) NOT NULL,
  paused_at        DATETIME(6)    NOT NULL,
  PRIMARY KEY (partition_key)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
