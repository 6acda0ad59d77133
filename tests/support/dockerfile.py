"""Reads a Dockerfile as far as ours goes, and runs the steps of its first stage below a folder."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
# Where the image has folders of its own; everything else in a step is relative or the machine's.
PLACES: Final = ("/build", "/opt/gitlab-sync")


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction, its continued lines joined."""

    word: str
    text: str

    @property
    def items(self) -> list[str]:
        """The JSON form of a command."""
        items: list[str] = json.loads(self.text[self.text.index("[") :])
        return items

    @property
    def variables(self) -> dict[str, str]:
        """What ENV sets."""
        return dict(pair.split("=", 1) for pair in shlex.split(self.text))


def stages() -> list[list[Step]]:
    """The steps of each stage, without its FROM."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    steps = [Step(*line.split(maxsplit=1)) for line in lines if line.strip()]
    found: list[list[Step]] = []
    for step in steps:
        if step.word == "FROM":
            found.append([])
        elif found:
            found[-1].append(step)
    return found


def run_steps(steps: list[Step], root: Path, python: str) -> None:
    """Do what the steps say, with the places of the image below `root` and `python` as its `python`."""
    tools = root / "interpreter"
    tools.mkdir()
    (tools / "python").symlink_to(python)
    here, environ = root, _environment(tools)
    for step in steps:
        match step.word:
            case "ENV":
                environ |= step.variables
            case "WORKDIR":
                here = Path(_below(step.text, root))
                here.mkdir(parents=True)
            case "COPY":
                _copy(step.text.split(), here)
            case "RUN":
                _run(_below(step.text, root), here, environ)
            case other:
                assert other == "ARG", f"{other} is new in the first stage; teach this module"


def _environment(tools: Path) -> dict[str, str]:
    """The machine's own; where pip takes packages from is its business."""
    foreign = ("GITLAB_SYNC_", "PYTHON", "VIRTUAL_")
    here = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
    return here | {"PATH": f"{tools}:{os.environ['PATH']}"}


def _below(text: str, root: Path) -> str:
    for place in PLACES:
        text = re.sub(rf"(?<![\w/.]){place}\b", f"{root}{place}", text)
    return text


def _copy(words: list[str], here: Path) -> None:
    *sources, target = words
    for source in sources:
        path = ROOT / source
        if path.is_dir():
            shutil.copytree(path, here / target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (here / target).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, here / target)


def _run(command: str, here: Path, environ: dict[str, str]) -> None:
    quick = environ | {"PIP_NO_CACHE_DIR": "0"}  # an image must not keep the cache; a test may use the user's
    done = subprocess.run(
        ["sh", "-ec", command], cwd=here, env=quick, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
