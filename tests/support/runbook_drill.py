"""Looks as the runbook tells to, and takes note of each line of it that is seen."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.commands import Ran
from tests.support.guide import Drill, lines_of, shape


def look(drill: Drill, command: str, *, exit_code: int = 0, instead: Mapping[str, str] | None = None) -> Ran:
    """Run a line of the section; whatever the section shows and this prints is seen."""
    ran = drill.run(command, exit_code=exit_code, instead=instead)
    printed = ran.out + ran.err
    drill.sees(printed, *(line for line in lines_of(drill.section, "text") if shape(line).search(printed)))
    return ran
