"""Finding a server: which programs are taken, which are refused and why, and what a person is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import gitlab_sync.sandbox.database.installer as installer_module
from gitlab_sync.sandbox.database import (
    DatabaseAddress,
    Durability,
    Flavour,
    NoServerFound,
    PrivateDatabaseError,
    find_on_path,
    find_or_install,
    open_server,
)
from gitlab_sync.sandbox.database.__main__ import main
from gitlab_sync.sandbox.database.cache import cache_folder, substitute_folder, writable
from gitlab_sync.sandbox.database.flavour import flavour_of, is_recent_enough
from gitlab_sync.sandbox.database.installer import InstallFailed, _run, install
from gitlab_sync.sandbox.database.options import Place, start_options
from gitlab_sync.setting_values import parse_database_url

_MYSQL = "/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))"
_MARIADB = "mariadbd  Ver 10.11.18-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)"

MakeProgram = Callable[[str, str], Path]


@pytest.fixture
def make_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeProgram:
    """A factory of programs on a PATH of their own that only say their version."""
    monkeypatch.setattr("gitlab_sync.sandbox.database.programs._SERVER_FOLDERS", ())
    monkeypatch.setenv("PATH", str(tmp_path))

    def make(name: str, version: str) -> Path:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho '{version}'\n")
        program.chmod(0o755)
        return program

    return make


@pytest.mark.parametrize(
    ("version", "family", "taken"),
    [
        (_MYSQL, Flavour.MYSQL, True),
        ("9.7.4-2", Flavour.MYSQL, True),
        ("mysqld  Ver 8.0.15 for Linux", Flavour.MYSQL, False),
        ("8.0.16", Flavour.MYSQL, True),
        (_MARIADB, Flavour.MARIADB, True),
        ("10.11.18-MariaDB-0+deb12u1", Flavour.MARIADB, True),
        ("10.5.29-MariaDB", Flavour.MARIADB, False),
        ("no numbers", Flavour.MYSQL, False),
    ],
)
def test_versions_too_old_for_our_checks_are_refused(version: str, family: Flavour, *, taken: bool) -> None:
    """Before 8.0.16 MySQL reads CHECK constraints and ignores them."""
    assert flavour_of(version) is family
    assert is_recent_enough(version) is taken


def test_a_server_on_the_path_is_taken_before_anything_is_fetched(make_program: MakeProgram) -> None:
    """The machine's own program comes before the installer."""
    program = make_program("mysqld", _MYSQL)
    found = find_or_install(Flavour.MYSQL)
    assert (found.server, found.version) == (program, _MYSQL)


def test_a_mysqld_that_is_really_mariadb_is_not_taken_for_mysql(make_program: MakeProgram) -> None:
    """Debian's MariaDB brings a mysqld of its own; the version text decides."""
    program = make_program("mysqld", _MARIADB)
    initialiser = make_program("mariadb-install-db", "")
    assert find_on_path(Flavour.MYSQL, os.environ) is None
    found = find_on_path(Flavour.MARIADB, os.environ)
    assert found is not None
    assert (found.server, found.initialiser) == (program, initialiser)


def test_a_mariadb_without_its_initialiser_is_passed_over(make_program: MakeProgram) -> None:
    """A server whose data folder cannot be made is of no use."""
    make_program("mariadbd", _MARIADB)
    obstacles: list[str] = []
    assert find_on_path(Flavour.MARIADB, os.environ, obstacles) is None
    assert "mariadb-install-db" in obstacles[0]


def test_who_has_no_server_is_told_all_three_ways_and_what_was_in_the_way(make_program: MakeProgram) -> None:
    """The machine has an old server, and is not of Debian's family."""
    make_program("mysqld", "mysqld  Ver 5.7.44 for Linux")
    with pytest.raises(NoServerFound) as raised:
        find_or_install(Flavour.MYSQL)
    said = str(raised.value)
    for part in (
        "GITLAB_SYNC_DATABASE_URL=",
        "on PATH",
        "installer",
        "5.7.44",
        "8.0.16",
        "Debian-family",
        "apt-get",
    ):
        assert part in said


def test_an_installer_that_gives_up_shows_its_last_lines(tmp_path: Path) -> None:
    """The mirror's own words are what helps, whatever else was printed before."""
    script = tmp_path / "script"
    script.write_text("for n in $(seq 40); do echo line $n >&2; done; echo mirror is away >&2; exit 7")
    with pytest.raises(InstallFailed, match="mirror is away") as raised:
        _run(["sh", str(script)], os.environ)
    assert "line 40" in str(raised.value)
    assert "line 3\n" not in str(raised.value)


def test_an_installer_shows_progress_and_answers_with_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only its own lines are shown, and not that everything was there already; stdout stays clean."""
    script = tmp_path / "script"
    script.write_text(
        "echo 'install-mysql: unpacking' >&2; echo apt noise >&2; "
        "echo 'install-mysql: already there: x' >&2; echo /some/mysqld"
    )
    assert _run(["sh", str(script)], os.environ) == Path("/some/mysqld")
    shown = capsys.readouterr()
    assert shown.err == "install-mysql: unpacking\n"
    assert shown.out == ""


@pytest.mark.parametrize("family", Flavour, ids=str)
def test_a_cache_that_cannot_be_written_is_replaced_by_a_private_folder(
    family: Flavour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that does not exist or is read-only is common for service users."""
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    targets: list[str] = []

    def remember(command: list[str], _: object) -> Path:
        targets.append(command[-1])
        return Path("/some/mysqld")

    monkeypatch.setattr(installer_module, "_run", remember)
    monkeypatch.setattr(installer_module, "_NEEDED", ())
    install(family, {"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert targets[0].startswith(f"{substitute_folder()}/servers/{family}-")


def test_a_complete_server_in_a_read_only_cache_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing needs to be written when everything is there."""
    monkeypatch.setattr(installer_module, "writable", lambda _: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path.parent))
    target = installer_module._target(Flavour.MYSQL, {"XDG_CACHE_HOME": str(tmp_path)})
    assert tmp_path not in target.parents
    cached = tmp_path / "gitlab-sync" / "servers" / target.name
    cached.mkdir(parents=True)
    (cached / ".complete").touch()
    assert installer_module._target(Flavour.MYSQL, {"XDG_CACHE_HOME": str(tmp_path)}) == cached


def test_a_private_folder_that_somebody_else_prepared_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write there could make us run their programs."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ours = substitute_folder()
    assert substitute_folder() == ours
    ours.chmod(0o777)
    assert substitute_folder() != ours


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/gitlab-sync"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/gitlab-sync"),
        ({"HOME": "/h"}, "/h/.cache/gitlab-sync"),
    ],
)
def test_the_cache_is_where_the_user_keeps_caches(environ: dict[str, str], expected: str) -> None:
    """It must outlive a checkout."""
    assert cache_folder(environ) == Path(expected)


def test_a_folder_below_a_file_is_not_writable(tmp_path: Path) -> None:
    """A look that fails is an answer, not an error."""
    (tmp_path / "file").touch()
    assert not writable(tmp_path / "file" / "folder")
    assert writable(tmp_path / "new" / "folder")


@pytest.mark.parametrize(
    "address",
    [
        DatabaseAddress("127.0.0.1", 3306, "root", unix_socket="/tmp/with blank/s"),
        DatabaseAddress("db.example", 3307, "us:er", "p@ss/wo?rd"),
        DatabaseAddress("::1", 3306, "root"),
    ],
)
def test_an_address_survives_the_way_through_its_url(address: DatabaseAddress) -> None:
    """The service reads exactly the server that the sandbox has."""
    assert DatabaseAddress.from_url(address.dsn("name")) == address
    assert parse_database_url(address.dsn("name")).name == "name"


def test_an_address_shows_no_password() -> None:
    """It ends up in assertion messages and logs."""
    assert "secret" not in repr(DatabaseAddress("db.example", 3306, "user", "secret"))


@pytest.mark.parametrize("url", ["postgres://u@h/n", "mysql://u@127.0.0.1:1/n"])
def test_a_named_server_that_cannot_be_used_is_refused_by_the_name_of_its_variable(url: str) -> None:
    """No other server is tried: the person has chosen this one."""
    with (
        pytest.raises(PrivateDatabaseError, match="GITLAB_SYNC_DATABASE_URL"),
        open_server({"GITLAB_SYNC_DATABASE_URL": url}),
    ):
        pass


@pytest.mark.parametrize("family", Flavour, ids=str)
@pytest.mark.parametrize("durability", Durability, ids=str)
def test_a_private_server_never_reads_the_machine_s_options_and_stays_on_loopback(
    family: Flavour, durability: Durability
) -> None:
    """`--no-defaults` counts only as the first option."""
    options = start_options(family, Place(Path("/d"), Path("/s"), 20000), durability)
    assert options[0] == "--no-defaults"
    assert "--bind-address=127.0.0.1" in options
    lazy = "--innodb-flush-log-at-trx-commit=0" in options
    assert lazy is (durability is Durability.FAST)


def test_preparing_a_server_that_does_not_exist_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """The answer names what there is."""
    assert main(["postgres"]) == 2
    assert "mysql, mariadb" in capsys.readouterr().err
