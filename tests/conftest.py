"""What every test may ask for: both servers, schemas on them, and a session that leaves nothing behind.

A test that asks for `flavour` or for any fixture about a database (`server`, `database_url`,
`new_database_url`, `empty_database_url`, `connect`, `make_private_server`) runs once for each flavour of
`--servers`. The end of a run names the servers and versions that were really used.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, closing
from typing import Any, Protocol

import hypothesis
import pymysql
import pytest
import structlog

from gitlab_sync.sandbox.database import Durability, Flavour, PrivateServer, find_or_install
from gitlab_sync.setting_values import parse_database_url
from tests.support.interrupts import hear_interrupts
from tests.support.leftovers import end_leftovers, mark_children
from tests.support.servers import RunningServer, Servers

_SERVERS = pytest.StashKey[Servers]()
_MARK = pytest.StashKey[str]()
_COVERED = pytest.StashKey[dict[str, set[str]]]()
_LEFT = pytest.StashKey[list[str]]()

hypothesis.settings.register_profile("shared-machine", deadline=None, print_blob=True)
hypothesis.settings.load_profile("shared-machine")


class MakeConnection(Protocol):
    """Open one more connection to the test's schema; it is closed for you."""

    def __call__(self, *, autocommit: bool = True) -> pymysql.Connection[Any]: ...


class MakePrivateServer(Protocol):
    """Start a server that the test may kill, freeze and restart, and wait for it; it is removed for you."""

    def __call__(
        self, durability: Durability = Durability.DURABLE, *, extra_options: tuple[str, ...] = ()
    ) -> PrivateServer: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of servers."""
    parser.addoption(
        "--servers",
        default="mysql,mariadb",
        help="database servers to run the database tests on, comma-separated (default: %(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse an unknown server at once; prepare the book of what was covered and left behind."""
    hear_interrupts()
    _chosen(config)
    structlog.configure(processors=[_terse])
    config.stash[_COVERED] = {}
    config.stash[_LEFT] = []
    if _runs_tests(config):
        config.stash[_MARK] = mark_children()
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(_FromWorkers(config), "what-workers-report")


def _terse(_logger: object, level: str, event: MutableMapping[str, Any]) -> str:
    """A line for whoever reads why a test failed; drawn in colours they would cost more than the tests."""
    if level == "debug":
        raise structlog.DropEvent
    return f"{level} {dict(event)}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run everything that asks for a database on every chosen flavour."""
    if "flavour" in metafunc.fixturenames:
        metafunc.parametrize("flavour", _chosen(metafunc.config), ids=str, indirect=True)


@pytest.fixture
def flavour(request: pytest.FixtureRequest) -> Flavour:
    """Which server family this run of the test is for."""
    chosen: Flavour = request.param
    return chosen


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    """The servers of this process, started on first use."""
    with Servers() as running:
        request.config.stash[_SERVERS] = running
        yield running


@pytest.fixture
def server(servers: Servers, flavour: Flavour) -> RunningServer:
    """A running server that other tests share: make databases on it, leave its settings alone."""
    return servers.get(flavour)


@pytest.fixture
def database_url(server: RunningServer) -> Iterator[str]:
    """The address of a schema with every table and no row, nobody else's."""
    with server.schemas.migrated() as name:
        yield server.address.dsn(name)


@pytest.fixture
def new_database_url(server: RunningServer) -> Iterator[str]:
    """Like `database_url`, but never used before: for plans and statistics, which remember deleted rows."""
    with server.schemas.new() as name:
        yield server.address.dsn(name)


@pytest.fixture
def empty_database_url(server: RunningServer) -> Iterator[str]:
    """The address of a database without any table."""
    with server.schemas.empty() as name:
        yield server.address.dsn(name)


@pytest.fixture
def connect(server: RunningServer, database_url: str) -> Iterator[MakeConnection]:
    """A factory of plain synchronous connections to the schema of `database_url`."""
    name = parse_database_url(database_url).name
    with ExitStack() as stack:

        def make(*, autocommit: bool = True) -> pymysql.Connection[Any]:
            connection = stack.enter_context(closing(server.address.connect(name)))
            connection.autocommit(autocommit)
            return connection

        yield make


@pytest.fixture
def make_private_server(flavour: Flavour) -> Iterator[MakePrivateServer]:
    """A factory of servers of the test's own; durable unless told otherwise, so that a kill loses nothing."""
    with ExitStack() as stack:

        def make(
            durability: Durability = Durability.DURABLE, *, extra_options: tuple[str, ...] = ()
        ) -> PrivateServer:
            programs = find_or_install(flavour)
            return stack.enter_context(
                PrivateServer(programs, durability=durability, extra_options=extra_options)
            )

        yield make


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Once the servers are gone nothing that a test started may be left; the report must reach the top."""
    config = session.config
    if _SERVERS in config.stash:
        _book(config, config.stash[_SERVERS].versions())
    if _MARK in config.stash:
        config.stash[_LEFT] += end_leftovers(config.stash[_MARK])
    output = getattr(config, "workeroutput", None)
    if output is not None:
        covered = config.stash[_COVERED].items()
        output["covered"] = {flavour: sorted(versions) for flavour, versions in covered}
        output["left"] = config.stash[_LEFT]
    elif config.stash[_LEFT] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which servers were used, how to repeat the order of the tests, and what was left running."""
    terminalreporter.section("servers and seed")
    for flavour in Flavour:
        versions = config.stash[_COVERED].get(flavour, set())
        why = "no test that ran asked for it" if flavour in _chosen(config) else "left out by --servers"
        said = f"covered, version {', '.join(sorted(versions))}" if versions else f"not covered: {why}"
        terminalreporter.write_line(f"{flavour.display_name}: {said}")
    seed = config.getoption("randomly_seed", None)
    terminalreporter.write_line(f"random seed: {seed} (the same order again: --randomly-seed={seed})")
    for process in config.stash[_LEFT]:
        terminalreporter.write_line(f"LEFT RUNNING by the tests, killed now: {process}", red=True)


class _FromWorkers:
    """Collects what each xdist worker reports when it ends."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output: dict[str, Any] = getattr(node, "workeroutput", {})
        for flavour, versions in output.get("covered", {}).items():
            self._config.stash[_COVERED].setdefault(flavour, set()).update(versions)
        self._config.stash[_LEFT] += output.get("left", [])


def _book(config: pytest.Config, versions: dict[str, str]) -> None:
    for flavour, version in versions.items():
        config.stash[_COVERED].setdefault(flavour, set()).add(version)


def _chosen(config: pytest.Config) -> list[Flavour]:
    words = [word.strip() for word in config.getoption("--servers").split(",") if word.strip()]
    try:
        return [Flavour(word) for word in words]
    except ValueError as unknown:
        raise pytest.UsageError(f"--servers: {unknown}; write mysql, mariadb or both") from unknown


def _runs_tests(config: pytest.Config) -> bool:
    """False only for the process that hands tests out to xdist workers."""
    return hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
