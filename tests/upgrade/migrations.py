"""Migrations of releases that do not exist: one only adds, as each must, one takes that away, one stops."""

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

#: A release later: what nobody uses any more goes, beside replicas that have never used it.
CONTRACT: Final = {
    "0003_contract.sql": """\
ALTER TABLE operation DROP COLUMN note;

ALTER TABLE merge_batch DROP KEY ix_batch_weight, DROP COLUMN weight;

DROP TABLE label;

DROP INDEX ix_outbox_event ON outbox;
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
