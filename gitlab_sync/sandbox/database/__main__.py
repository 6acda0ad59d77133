"""`python -m gitlab_sync.sandbox.database [mysql] [mariadb]`: get the servers ready before they are needed.

Prints one line for each. Exit 1 with the reason if one cannot be had, 2 for a flavour that does not exist.
"""

from __future__ import annotations

import os
import sys

from gitlab_sync.sandbox.database import Flavour, PrivateDatabaseError, find_or_install
from gitlab_sync.sandbox.database.choice import named_server


def main(arguments: list[str]) -> int:
    """Find or install the servers named in `arguments` (none: both)."""
    known = [flavour.value for flavour in Flavour]
    unknown = [argument for argument in arguments if argument not in known]
    if unknown:
        sys.stderr.write(f"no such server: {', '.join(unknown)}; there are {', '.join(known)}\n")
        return 2
    try:
        for flavour in arguments or known:
            print(f"{flavour}: {_where(Flavour(flavour))}")
    except PrivateDatabaseError as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return 0


def _where(flavour: Flavour) -> str:
    named = named_server(os.environ)
    if named is not None and named.flavour() is flavour:
        return f"{named} (named by GITLAB_SYNC_DATABASE_URL)"
    programs = find_or_install(flavour)
    return f"{programs.server} ({programs.version.rpartition('  ')[2]})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
