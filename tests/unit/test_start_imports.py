"""What a process loads before it is of use: a count that stays small, and libraries that come later or never.

Times of a start depend on the machine; what is loaded does not. Each look is a process of its own.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import gitlab_sync.cli.serve

# Whoever adds a module looks at what it brings along, and raises the number if that is needed at a start.
MOST_OF_A_REPLICA: Final = 780
MOST_OF_A_COMMAND: Final = 360
_ENTRY: Final = (
    "from gitlab_sync import last_words",
    "last_words.install()",
    "import gitlab_sync.cli.signals, gitlab_sync.cli.app",
)
_TELL: Final = (
    "import json, sys; print(json.dumps(sorted(n for n, m in sys.modules.items() if m is not None)))"
)


def test_a_replica_that_is_ready_has_loaded_nothing_that_can_wait() -> None:
    """GitLab's client comes after the start, HTTP's with a receiver, the API's document when asked for."""
    loaded = _loaded(f"{_imports_of_serve()}\n{_TELL}")
    later = {"gitlab", "requests", "urllib3", "httpx2", "rich", "pygments", "attr"}
    assert _packages(loaded) & later == set()
    assert loaded & {"hooks.openapi", "gitlab_sync.gitlab_client", "gitlab_sync.admin_port"} == set()
    assert not [name for name in loaded if name.startswith("gitlab_sync.sandbox")]
    assert {"uvicorn", "starlette", "aiomysql", "hooks.app", "gitlab_sync.service"} <= loaded
    assert len(loaded) <= MOST_OF_A_REPLICA


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["batches", "--help"], ["hooks", "--help"]])
def test_a_command_that_only_explains_itself_loads_no_library_of_the_service(arguments: list[str]) -> None:
    """A person waits for it. Typer alone brings pydantic along where a command has a text for an option."""
    loaded = _loaded(f"from gitlab_sync.cli.app import run\nrun({arguments!r})\nprint()\n{_TELL}")
    service = {"gitlab", "requests", "uvicorn", "starlette", "aiomysql", "pymysql", "httpx2"}
    service |= {"structlog", "ruamel", "prometheus_client", "cryptography", "hooks", "rich"}
    assert _packages(loaded) & service == set()
    assert len(loaded) <= MOST_OF_A_COMMAND


def test_rich_can_be_had_after_structlog_was_imported_without_it() -> None:
    """Only structlog is told that there is none."""
    code = (
        "from gitlab_sync.bare_structlog import import_structlog as i; i(); i(); import structlog, rich.table"
    )
    assert {"structlog", "rich.table"} <= _loaded(f"{code}\n{_TELL}")


def _imports_of_serve() -> str:
    """Everything that the module and its functions import, in order, as a program; types are left out."""
    tree = ast.parse(Path(gitlab_sync.cli.serve.__file__).read_text(encoding="utf-8"))
    inside = [node for each in tree.body if not isinstance(each, ast.If) for node in ast.walk(each)]
    lines = [ast.unparse(node) for node in inside if isinstance(node, ast.Import | ast.ImportFrom)]
    future = [line for line in lines if "__future__" in line]
    first = ["from gitlab_sync.bare_structlog import import_structlog", "import_structlog()"]
    assert first[0] in lines
    return "\n".join([*future, *_ENTRY, *first, *(line for line in lines if line not in future)])


def _packages(loaded: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in loaded}


def _loaded(code: str) -> set[str]:
    """The modules that a fresh process has after running `code`; its last line is their list."""
    bare = {name: text for name, text in os.environ.items() if not name.startswith(("GITLAB_SYNC_", "COV_"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=bare)
    assert done.returncode == 0, done.stderr
    loaded: list[str] = json.loads(done.stdout.splitlines()[-1])
    return set(loaded)
