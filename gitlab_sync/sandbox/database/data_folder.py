"""Makes a server's data folder: once per server version as a template in the cache, afterwards by copying.

Initialising MySQL takes seconds, copying a fifth of one. A template holds no data, only system tables and a
root user without password who can be reached through the socket alone.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gitlab_sync.sandbox.database.cache import cache_folder, exclusive, writable
from gitlab_sync.sandbox.database.failure import ServerDied
from gitlab_sync.sandbox.database.flavour import Flavour
from gitlab_sync.sandbox.database.options import initialise_options, user_options
from gitlab_sync.sandbox.database.programs import ServerPrograms

_FORMAT = "1"  # raise it when the way a template is made changes
_LIMIT_S = 120
# Each server makes its own identity at its first start.
_IDENTITY = shutil.ignore_patterns("auto.cnf", "*.pid", "*.sock", "*.lock")


def make_data_folder(programs: ServerPrograms, data: Path, environ: Mapping[str, str]) -> None:
    """Fill the not yet existing folder `data`."""
    templates = cache_folder(environ) / "templates"
    template = templates / _name(programs)
    if not template.exists():
        if not writable(templates):
            _initialise(programs, data)
            return
        with exclusive(templates / f"{template.name}.lock"):
            if not template.exists():
                _make_template(programs, template)
    shutil.copytree(template, data, ignore=_IDENTITY)


def _name(programs: ServerPrograms) -> str:
    """A template fits one version of one program only."""
    text = "\n".join([_FORMAT, programs.version, str(programs.server.resolve())])
    return f"{programs.flavour}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _make_template(programs: ServerPrograms, template: Path) -> None:
    with tempfile.TemporaryDirectory(dir=template.parent, prefix=".new-") as scratch:
        _initialise(programs, Path(scratch) / "data")
        (Path(scratch) / "data").rename(template)


def _initialise(programs: ServerPrograms, data: Path) -> None:
    made = subprocess.run(
        _initialise_command(programs, data),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=_LIMIT_S,
    )
    if made.returncode != 0:
        raise ServerDied(f"{programs.server} could not make a data folder", made.stdout[-3000:])


def _initialise_command(programs: ServerPrograms, data: Path) -> list[str | Path]:
    if programs.flavour is Flavour.MYSQL:
        return [programs.server, *initialise_options(data)]
    assert programs.initialiser is not None  # noqa: S101 - find_on_path and the installer see to it
    if programs.initialiser.name == "mariadb-bootstrap":
        return [programs.initialiser, data]
    return [
        programs.initialiser,
        "--no-defaults",
        *user_options(),
        f"--datadir={data}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
    ]
