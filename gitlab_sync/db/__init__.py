"""The database port: connections, transactions, what an error means. The only room that knows aiomysql.

Never knows a statement: `store` brings those. Who uses it sees `Database`, `Session`, `Abandon` and
`errors.py`.
"""

from gitlab_sync.db.database import Abandon, Database, run_again
from gitlab_sync.db.resolver import Confirm
from gitlab_sync.db.session import Row, RunAgain, Session, StatementText
from gitlab_sync.db.telling import Observer

__all__ = [
    "Abandon",
    "Confirm",
    "Database",
    "Observer",
    "Row",
    "RunAgain",
    "Session",
    "StatementText",
    "run_again",
]
