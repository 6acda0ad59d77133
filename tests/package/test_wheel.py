"""What is shipped: built offline, opened, installed elsewhere and used there."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PACKAGES = ("hooks", "gitlab_sync", "sql")


@pytest.fixture(scope="module")
def sources() -> set[str]:
    """The files that a wheel made now has to carry."""
    return _sources(".py", ".sql", ".sh", ".html", ".css", ".js", "py.typed")


@pytest.fixture(scope="module")
def built(sources: set[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel that was built from it."""
    assert sources, "look before building: a file may be added meanwhile"
    folder = tmp_path_factory.mktemp("dist")
    _python("-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The one wheel."""
    (wheel,) = built.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    """The files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    """The wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def _python(*arguments: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _sources(*suffixes: str) -> set[str]:
    found = {path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()}
    return {str(path.relative_to(ROOT)) for path in found if path.suffix in suffixes or path.name in suffixes}


def test_the_wheel_carries_every_module_statement_and_script(names: set[str], sources: set[str]) -> None:
    """A .sql file that stays behind would be missed only in production."""
    assert len({name for name in sources if name.endswith(".sql")}) > 3
    assert sources <= names


def test_the_wheel_carries_nothing_but_the_three_packages(names: set[str]) -> None:
    """Tests, the chart and the benchmarks stay out; `docs` and `examples` would collide with aiomysql's."""
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    assert not [name for name in names if "__pycache__" in name]


def test_the_source_distribution_builds_the_wheel_and_holds_no_tests(built: Path) -> None:
    """The wheel above was built from it, so it is complete; it must not hold more."""
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert tops == {*PACKAGES, "LICENSE", "README.md", "pyproject.toml", "PKG-INFO", ".gitignore"}


def test_the_distribution_cannot_be_uploaded_by_mistake(metadata: Message) -> None:
    """Public distributions with our packages' names exist."""
    assert metadata["Name"] == "gitlab-sync-service"
    assert "Private :: Do Not Upload" in metadata.get_all("Classifier", [])


def test_the_driver_is_pinned_below_the_releases_that_break_it(metadata: Message) -> None:
    """With PyMySQL 1.2.1 and 1.2.2 aiomysql fails on import, with later ones on every bytes parameter."""
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    (driver,) = (item for item in requirements if item.name.lower() == "pymysql")
    assert not [
        bad for bad in ("1.2.1", "1.2.2", "1.2.3", "1.2.4", "1.3.0") if driver.specifier.contains(bad)
    ]
    assert driver.specifier.contains("1.2.0")
    assert Version(version("PyMySQL")) in driver.specifier


def test_the_wheel_works_where_no_checkout_is(wheel: Path, tmp_path: Path) -> None:
    """Installed elsewhere, every statement and migration loads, and the installer script is at hand."""
    target = tmp_path / "site"
    _python(
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
        str(wheel),
        cwd=tmp_path,
    )
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import sql, hooks, gitlab_sync\n"
        "from importlib.resources import files\n"
        "for package in (sql, hooks, gitlab_sync): assert package.__file__.startswith(sys.argv[1]), package\n"
        "assert (files('gitlab_sync.sandbox.database') / 'install-mysql.sh').is_file()\n"
        "print(len(sql.all_statements()), len(sql.migrations()))\n"
    )
    statements, migrations = _python("-c", script, str(target), cwd=tmp_path).split()
    assert int(statements) > 10
    assert int(migrations) > 0


def test_the_command_line_starts_without_the_sandbox(tmp_path: Path) -> None:
    """The sandbox is an extra: nothing but its own command may need it."""
    script = "import sys, gitlab_sync.cli; print([name for name in sys.modules if '.sandbox' in name])"
    assert _python("-c", script, cwd=tmp_path).strip() == "[]"
