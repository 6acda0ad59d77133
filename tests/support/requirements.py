"""Writes requirements/*.txt, from which the image is installed: every file by its hash, no address.

    python -m tests.support.requirements

Resolved for every platform and for each Python from the oldest that is supported on.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from uv import find_uv_bin

ROOT: Final = Path(__file__).parents[2]
LOCKS: Final = {
    "requirements/run.txt": ("pyproject.toml", "What the image installs"),
    "requirements/build.txt": ("requirements/build.in", "What builds the wheel for the image"),
}
_OPTIONS: Final = (
    "--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate", "--quiet",
)  # fmt: skip


def main() -> None:
    """Resolve anew; what is locked already stays where it still fits."""
    for lock, (source, what) in LOCKS.items():
        path = ROOT / lock
        command = [find_uv_bin(), "pip", "compile", *_OPTIONS, "--output-file", str(path), source]
        subprocess.run(command, cwd=ROOT, check=True)
        head = f"# {what}, every file by its hash, without addresses; from `make requirements`.\n"
        text = "".join(
            line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line[0] != "#"
        )
        path.write_text(head + text, encoding="utf-8")


if __name__ == "__main__":
    main()
