"""Migrations of a release that does not exist: one that only adds, as each must, and one that stops."""

from __future__ import annotations

from typing import Final

EXPAND: Final = {
    "0002_expand.sql": """\
ALTER TABLE operation ADD COLUMN note VARCHAR(100) NULL;

ALTER TABLE merge_batch ADD COLUMN weight INT NOT NULL DEFAULT 1, ADD KEY ix_batch_weight (weight, id);

CREATE TABLE label (
  id    BIGINT        NOT NULL AUTO_INCREMENT,
  name  VARBINARY(64) NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE INDEX ix_outbox_event ON outbox (event, id);

ALTER TABLE merge_batch
  DROP CONSTRAINT ck_batch_status,
  ADD CONSTRAINT ck_batch_status CHECK (status IN (1, 2, 3, 4, 5));
"""
}

#: Its second statement is refused while two requests have one title.
STOPS: Final = {
    "0002_stops.sql": """\
ALTER TABLE operation ADD COLUMN note VARCHAR(100) NULL;

CREATE UNIQUE INDEX uk_title ON operation (title);

CREATE INDEX ix_note ON operation (note);
"""
}
