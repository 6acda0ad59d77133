"""What an error of the engine means at a terminal: its lines and its exit code. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from gitlab_sync.errors import ConfigError, DatabaseDefect, GitLabSyncError, InvalidRequest, StaleWrite

_NO_SCHEMA: Final = "the schema is missing or older than this release: run `gitlab-sync migrate`"
_NO_RIGHT: Final = "the database user lacks a right that README.md names under its GRANT"
#: MySQL Server Error Message Reference: no such table, unknown column; denied on a table, on a column.
_REMEDIES: Final = {1146: _NO_SCHEMA, 1054: _NO_SCHEMA, 1142: _NO_RIGHT, 1143: _NO_RIGHT}


class ExitCode(IntEnum):
    """The promise of every command."""

    DONE = 0
    FOUND = 1  # found something, or failed
    USAGE = 2  # wrong usage or configuration
    HANGUP = 129  # ended by a signal, as shells tell it: SIGHUP
    CTRL_C = 130  # SIGINT
    TERMINATED = 143  # SIGTERM


class Failure(Exception):
    """A command ends here: what to say on stderr, and the exit code."""

    def __init__(self, exit_code: ExitCode, lines: Sequence[str]) -> None:
        super().__init__("; ".join(lines))
        self.exit_code = exit_code
        self.lines = tuple(lines)


def explain(error: GitLabSyncError) -> Failure:
    """One line for each problem. Wrong settings and malformed requests are wrong usage, the rest failed."""
    match error:
        case ConfigError(problems=problems):
            return Failure(ExitCode.USAGE, problems)
        case InvalidRequest(problems=found):
            return Failure(ExitCode.USAGE, [f"{one.pointer or '/'}: {one.message}" for one in found])
        case StaleWrite(present=present) if present:
            facts = ", ".join(f"{name}={value}" for name, value in present.items())
            return Failure(ExitCode.FOUND, [f"{error} (now: {facts})"])
        case DatabaseDefect(code=code) if code in _REMEDIES:
            return Failure(ExitCode.FOUND, [str(error), _REMEDIES[code]])
        case _:
            return Failure(ExitCode.FOUND, [f"{error}" or type(error).__name__])
