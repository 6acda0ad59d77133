"""The command line: what the API does for people at a terminal, and what only an operator does.

Commands work directly on the database with the engine's own functions, so they are safe beside a running
service. Nothing here decides about a request or a batch. Each command imports what it needs when it runs.

Exit codes: 0 done, 1 found something or failed, 2 wrong usage or configuration.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point `gitlab-sync`."""
    from gitlab_sync.cli.app import run

    sys.exit(run(sys.argv[1:]))
