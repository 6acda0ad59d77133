-- name: audit_lock_move
-- Locking read for the commit resolver: is this move in its operation's history? History stays, while a later move
-- covers the token on the operation: a round may claim it before the lost answer is asked about.
-- index: operation_audit.uk_audit
SELECT a.id
FROM operation_audit a FORCE INDEX (uk_audit)
WHERE a.operation_id = %(operation_id)s AND a.version = %(version)s AND a.to_status = %(after)s
  AND a.actor = %(actor)s AND a.cause = %(cause)s
FOR UPDATE;
