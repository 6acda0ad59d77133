"""How lines are written: one line each, of bounded length, whoever speaks, also while the process breaks."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID

import pytest
import structlog

from gitlab_sync import last_words
from gitlab_sync.log_errors import facts_of
from gitlab_sync.log_words import Event, Unit
from gitlab_sync.logs import LONGEST_FIELD, LONGEST_LINE, configure_logging
from gitlab_sync.secret import Secret
from gitlab_sync.setting_values import LogFormat, LogLevel
from gitlab_sync.states import BatchStatus, Via
from gitlab_sync.units import unit
from tests.support.commands import environment
from tests.support.log_lines import lines_of, logging_restored

SECRET: Final = "a-secret-of-the-tests"
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the log goes; the process's own configuration comes back afterwards."""
    with logging_restored():
        yield io.StringIO()


def configured(stream: io.StringIO, log_format: LogFormat = LogFormat.JSON) -> Any:
    """A logger that writes to `stream` at every level."""
    configure_logging(log_format, LogLevel.DEBUG, [Secret(SECRET)], stream=stream)
    return structlog.get_logger("gitlab_sync")


@pytest.mark.parametrize("log_format", tuple(LogFormat))
def test_an_exception_is_one_line_with_its_type_and_its_place(
    stream: io.StringIO, log_format: LogFormat
) -> None:
    """No drawn stack, no local variable, and a secret in its words is masked."""
    log = configured(stream, log_format)
    local_variable = "do-not-show-me"
    try:
        raise RuntimeError(f"first\nsecond {SECRET}") from ValueError("the cause")
    except RuntimeError:
        log.exception(Event.CRASHED)
    [line] = stream.getvalue().splitlines()
    assert "RuntimeError" in line
    assert "test_log_lines.py:" in line
    assert "ValueError: the cause" in line
    assert "Traceback" not in line
    assert local_variable not in line
    assert SECRET not in line


def test_a_group_of_exceptions_is_told_by_its_first_leaf() -> None:
    """Task groups wrap what has happened; the wrapping says nothing."""
    facts = facts_of(ExceptionGroup("outer", [ExceptionGroup("inner", [KeyError("k"), OSError("o")])]))
    assert (facts["error"], facts["detail"]) == ("KeyError", "'k'")
    assert "the first of 2 in a group" in facts["cause"]


def test_an_exception_that_cannot_say_what_it_is_ends_nothing() -> None:
    """Its type is told all the same."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert facts_of(Mute())["detail"] == "Mute"


@pytest.mark.parametrize("log_format", tuple(LogFormat))
def test_a_library_s_line_is_of_our_form(stream: io.StringIO, log_format: LogFormat) -> None:
    """Its words are text, not an event; its exception is a fact."""
    configured(stream, log_format)
    try:
        raise OSError("gone")
    except OSError:
        logging.getLogger("uvicorn.error").exception("Exception in\nASGI application %s", SECRET)
    [line] = stream.getvalue().splitlines()
    assert "library" in line
    assert "uvicorn.error" in line
    assert "OSError" in line
    assert SECRET not in line


def test_a_library_s_fine_lines_are_not_written(stream: io.StringIO) -> None:
    """They hold headers and whole addresses; with `debug` they begin at INFO, else at WARNING."""
    configured(stream)
    logging.getLogger("httpcore.http11").debug("send_request_headers request=<Request [b'POST']>")
    assert stream.getvalue() == ""
    configure_logging(LogFormat.JSON, LogLevel.INFO, stream=stream)
    logging.getLogger("httpx2").info("HTTP Request: POST http://sink.example/secret-path")
    assert stream.getvalue() == ""


def test_values_are_plain_for_any_reader(stream: io.StringIO) -> None:
    """Enums by their word, UUIDs as text, a secret as its mask, what nobody knows as text."""
    log = configured(stream)
    log.info(
        Event.SERVING,
        via=Via.POLLER,
        state=BatchStatus.RUNNING,
        operation_id=UUID(int=1),
        detail=Secret("abc"),
        data={"deep": [b"bytes", {1}, {"er": OSError("x")}], 3: None},
        found=float("1.5"),
    )
    [line] = lines_of(stream.getvalue())
    assert (line["via"], line["state"], line["detail"]) == ("poller", "RUNNING", "***")
    assert line["operation_id"] == "00000000-0000-0000-0000-000000000001"
    assert line["data"] == {"deep": ["b'bytes'", [1], {"er": "OSError: x"}], "3": None}


def test_no_line_is_longer_than_a_container_s_runtime_takes(stream: io.StringIO) -> None:
    """Cut in two by it, neither half is JSON."""
    log = configured(stream)
    log.info(Event.ADMITTED, data={f"k{number}": "x" * 3000 for number in range(100)}, detail="y" * 9000)
    log.info(Event.ADMITTED, operation_ids=[str(UUID(int=number)) for number in range(100)])
    long, ids = stream.getvalue().splitlines()
    assert len(long) < LONGEST_LINE
    assert len(json.loads(ids)["operation_ids"]) == 100


def test_a_secret_at_the_cut_of_a_long_field_leaves_no_half(stream: io.StringIO) -> None:
    """It is swept before it is cut."""
    log = configured(stream)
    log.info(Event.SERVING, detail="x" * (LONGEST_FIELD - 8) + SECRET + "y" * 100)
    assert SECRET[:6] not in stream.getvalue()


def test_a_secret_of_digits_leaves_the_line_s_numbers_alone(stream: io.StringIO) -> None:
    """A mask among the digits of a number would be no JSON."""
    configure_logging(LogFormat.JSON, LogLevel.INFO, [Secret("123456")], stream=stream)
    structlog.get_logger("gitlab_sync").info(Event.SERVING, rows=1234567, detail="is 123456")
    [line] = lines_of(stream.getvalue())
    assert (line["rows"], line["detail"]) == (1234567, "is ***")


def test_a_broken_stream_ends_nothing() -> None:
    """The pipe to the collector is gone: the line is lost, the work goes on."""

    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    with logging_restored():
        configured(Gone())
        with unit(Unit.ROUND):
            structlog.get_logger("gitlab_sync").info(Event.SERVING)


async def test_a_task_whose_exception_nobody_fetched_is_a_line(stream: io.StringIO) -> None:
    """The loop says so through logging, with a drawn stack and the task's repr."""
    configured(stream)

    async def fail() -> None:
        raise RuntimeError(f"lost {SECRET}")

    task = asyncio.create_task(fail())
    await asyncio.wait([task])
    del task
    gc.collect()
    [line] = lines_of(stream.getvalue())
    assert (line["logger"], line["error"]) == ("asyncio", "RuntimeError")
    assert "never retrieved" in line["text"]


def test_a_warning_of_python_is_a_line(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver warns that way, with the server's words."""
    configured(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", last_words.warned)
        warnings.warn(f"Data truncated {SECRET}", stacklevel=1)
    [line] = lines_of(stream.getvalue())
    assert line["logger"] == "py.warnings"
    assert "Data truncated ***" in line["text"]


CRASHES: Final = {
    "the main thread": "raise RuntimeError('words ' + SECRET)",
    "a thread": "import threading; t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()",
    "a finaliser": "class X:\n  def __del__(self): raise RuntimeError(SECRET)\nX()",
    "a task": (
        "import asyncio\nasync def main():\n  async with asyncio.TaskGroup() as g:\n"
        "    g.create_task(asyncio.to_thread(int, SECRET))\nasyncio.run(main())"
    ),
    "a warning": "import warnings; warnings.simplefilter('always'); warnings.warn('old ' + SECRET)",
    "an import": "import gitlab_sync.there_is_no_such_module",
}


@pytest.mark.parametrize("broken", CRASHES.values(), ids=CRASHES)
@pytest.mark.parametrize("log_format", tuple(LogFormat))
def test_whatever_breaks_a_process_says_it_in_one_line(broken: str, log_format: LogFormat) -> None:
    """Before anything is configured: in the form that the settings ask for, and without their secrets."""
    program = f"from gitlab_sync import last_words\nlast_words.install()\nSECRET = {SECRET!r}\n{broken}\n"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(GITLAB_TOKEN=SECRET, LOG_FORMAT=log_format),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    [line] = ended.stderr.splitlines()
    assert SECRET not in line
    assert "crashed" in line or "library" in line
    if log_format is LogFormat.JSON:
        [told] = lines_of(ended.stderr)
        assert told["level"] in ("critical", "warning")
