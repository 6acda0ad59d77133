"""`python -m gitlab_sync.sandbox.database [mysql] [mariadb]`: get the servers ready before they are needed.

Prints one line for each. Exit 1 with the reason if one cannot be had, 2 for a flavour that does not exist.
"""

from __future__ import annotations

import sys

from gitlab_sync.sandbox.database import Flavour, PrivateDatabaseError, find_or_install


def main(arguments: list[str]) -> int:
    """Find or install the servers named in `arguments` (none: both)."""
    known = [flavour.value for flavour in Flavour]
    unknown = [argument for argument in arguments if argument not in known]
    if unknown:
        sys.stderr.write(f"no such server: {', '.join(unknown)}; there are {', '.join(known)}\n")
        return 2
    for flavour in arguments or known:
        try:
            programs = find_or_install(Flavour(flavour))
        except PrivateDatabaseError as failure:
            sys.stderr.write(f"{failure}\n")
            return 1
        print(f"{flavour}: {programs.server}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
