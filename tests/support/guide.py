"""Lets tests do what a guide says: each command and each line of output that it shows, word for word.

A section is a heading of the second level with what follows. Fences of `sh` hold commands, one a line;
fences of `text` what is printed; fences of `sql` statements; fences of `yaml` pieces of files. A drill runs
what stands there and nothing else, and at its end everything that stands there has been run and seen, or is
named as something that cannot be run here.

Printed lines are compared by shape: a number stands for any number, `…` for anything, blanks for any blanks.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.commands import LIMIT_S, Ran
from tests.support.installation import HERE, Installation, Program
from tests.support.readme import ROOT, Document, read_document

GUIDES: Final = tuple(sorted(f"guides/{path.name}" for path in ROOT.glob("guides/*.md")))
#: What needs a cluster, and what people do at GitLab or at a desk.
ELSEWHERE: Final = ("kubectl ", "helm ", "docker ", "#", "git ")
_SECTION: Final = re.compile(r"^## (?P<heading>.+)\n(?P<body>(?:(?!## ).*\n?)*)", re.MULTILINE)


def sections(name: str) -> dict[str, Document]:
    """The sections of a guide by their headings."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return {found["heading"]: read_document(name, found["body"]) for found in _SECTION.finditer(text)}


def lines_of(section: Document, *kinds: str) -> list[str]:
    """The lines of the section's fences of these kinds; a line that ends with a backslash goes on."""
    found: list[str] = []
    for kind, text in section.fences:
        if kind in kinds:
            found += re.sub(r"\\\n\s*", "", text).splitlines()
    return [line.strip() for line in found if line.strip()]


@dataclass(slots=True)
class Drill:
    """One section on its way through a test."""

    installation: Installation
    section: Document
    done: set[str] = field(default_factory=set)

    def run(
        self,
        command: str,
        *,
        exit_code: int = 0,
        instead: Mapping[str, str] | None = None,
        program: Program = HERE,
    ) -> Ran:
        """Run a `gitlab-sync` line of the section; `instead` gives the real ids for the guide's."""
        self._tick(command, "sh")
        words = [(instead or {}).get(word, word) for word in shlex.split(command, comments=True)]
        assert words[0] == "gitlab-sync", command
        ran = self.installation.cli(*words[1:], program=program)
        assert ran.exit_code == exit_code, f"{command}\n{ran.out}{ran.err}\n{self.installation.standing()}"
        return ran

    def shell(self, command: str, *, path: Path, instead: Mapping[str, str] | None = None) -> str:
        """Run any other line of the section in the installation's folder; `path` holds its programs."""
        self._tick(command, "sh")
        for word, real in (instead or {}).items():
            command = command.replace(word, real)
        ended = subprocess.run(
            ["/bin/bash", "-ec", command],
            cwd=self.installation.folder,
            env={"PATH": f"{path}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stderr}"
        return ended.stdout

    def sql(self, statement: str, instead: Mapping[str, str] | None = None) -> list[tuple[object, ...]]:
        """Run a statement of the section on the installation's database."""
        self._tick(statement, "sql")
        for word, real in (instead or {}).items():
            statement = statement.replace(word, real)
        return self.installation.rows(statement)

    def sees(self, printed: str, *told: str) -> None:
        """What was printed holds these lines, and the section shows them."""
        for line in told:
            self._tick(line, "text")
            assert shape(line).search(printed), f"{line!r} is not in:\n{printed}"

    def leave(self, *lines: str) -> None:
        """Name lines of the section that are for another server than this one."""
        for line in lines:
            self._tick(line, "sql")

    def require_complete(self) -> None:
        """Everything that the section tells to do and shows was done and seen."""
        told = set(lines_of(self.section, "sh", "sql", "text"))
        left = {line for line in told - self.done if not line.startswith(ELSEWHERE)}
        assert left == set(), f"{self.section.name} tells what the drill does not do: {sorted(left)}"

    def _tick(self, line: str, kind: str) -> None:
        assert line in lines_of(self.section, kind), f"{self.section.name} does not say: {line}"
        self.done.add(line)


def shape(line: str) -> re.Pattern[str]:
    """Whatever looks like this line."""
    parts = re.split(r"(\d+(?:\.\d+)?|…|\s+)", line)
    return re.compile("".join(_part(part) for part in parts))


def _part(part: str) -> str:
    if not part:
        return ""
    if part == "…":
        return ".*?"
    if part.isspace():
        return r"\s+"
    return r"\d+(?:\.\d+)?" if part[0].isdigit() else re.escape(part)


@contextmanager
def drilled(guide: str, heading: str, installation: Installation) -> Iterator[Drill]:
    """Go through a section; at the end nothing of it may be left."""
    drill = Drill(installation, sections(f"guides/{guide}")[heading])
    yield drill
    drill.require_complete()
