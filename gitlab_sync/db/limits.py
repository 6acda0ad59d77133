"""How long anything of the database port may take, in one place, because the limits nest.

    a lock's wait  <  a statement  <  COMMIT  <  a whole call

Each outer limit leaves the inner one the time to fire first, so that what a caller meets is the error that
says most: the server's "lock wait timeout" leaves a connection that can go on, a statement's limit costs a
connection, an unanswered COMMIT costs the knowledge of what happened.

`COMMIT_LIMIT_S + RESOLVE_LIMIT_S` stays below the lease of a freshly claimed batch (`rounds.PUBLISH_LEASE_S`)
and of notifications: until a lost claim is found out, no other replica writes to its batch, which would cover
the attempt's token.
"""

from __future__ import annotations

from typing import Final

LOCK_WAIT_S: Final = 3  # kept by the server, for row and metadata locks: its defaults are 50 s and a year
STATEMENT_LIMIT_S: Final = 10.0  # the driver has no read timeout; three lock waits and slow disks fit in
COMMIT_LIMIT_S: Final = 12.0  # longer than any statement: giving COMMIT up costs most
RESOLVE_LIMIT_S: Final = 12.0  # to find out what became of a lost COMMIT; three lock waits fit in
CALL_LIMIT_S: Final = 45.0  # one transaction() with all its attempts; what calls us must allow more

ACQUIRE_LIMIT_S: Final = 5.0  # waiting for a free connection: longer queues are answered "busy"
CONNECT_LIMIT_S: Final = 5.0  # name, socket, greeting, TLS, password and session set-up together
RECYCLE_AFTER_S: Final = (
    1800.0  # of a connection's age: names are resolved again, the server gets memory back
)
KILL_LIMIT_S: Final = 5.0  # ending one statement that nobody waits for any more
