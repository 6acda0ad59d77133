"""Logs: one line for each event, no secret, no forged line, no field of any length."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from gitlab_sync.logs import LONGEST_FIELD, configure_logging
from gitlab_sync.secret import Secret
from gitlab_sync.setting_values import LogFormat, LogLevel
from tests.support.log_lines import logging_restored

CANARY = 'canary"with-quote'


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the log goes; the process's own configuration comes back afterwards."""
    with logging_restored():
        yield io.StringIO()


@pytest.mark.parametrize("log_format", tuple(LogFormat))
def test_a_planted_secret_is_found_nowhere_in_the_log(stream: io.StringIO, log_format: LogFormat) -> None:
    """In a field, inside a text, in an exception, from a library: masked in each."""
    configure_logging(log_format, LogLevel.DEBUG, [Secret(CANARY)], stream=stream)
    log = structlog.get_logger()
    log.info("field", token=Secret(CANARY), text=f"url with {CANARY} inside")
    try:
        raise RuntimeError(f"cannot use {CANARY}")
    except RuntimeError:
        log.exception("failed")
    logging.getLogger("library").warning("retrying %s", CANARY)
    written = stream.getvalue()
    assert "retrying" in written
    assert "RuntimeError" in written
    assert CANARY not in written
    assert "with-quote" not in written


@pytest.mark.parametrize("log_format", tuple(LogFormat))
def test_a_line_break_in_a_value_does_not_forge_a_line(stream: io.StringIO, log_format: LogFormat) -> None:
    """Values come from clients."""
    configure_logging(log_format, LogLevel.INFO, stream=stream)
    structlog.get_logger().info("request", title="x\nforged\x1b[31m")
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


def test_json_lines_carry_the_bound_context_and_cut_fields(stream: io.StringIO) -> None:
    """The request's id is on every line; a huge field is cut."""
    configure_logging(LogFormat.JSON, LogLevel.INFO, stream=stream)
    with structlog.contextvars.bound_contextvars(request_id="r1"):
        structlog.get_logger().info("webhook", text="x" * 10 * LONGEST_FIELD)
    line = json.loads(stream.getvalue())
    assert (line["event"], line["request_id"], line["level"]) == ("webhook", "r1", "info")
    assert len(line["text"]) == LONGEST_FIELD + 1


def test_lines_below_the_level_are_not_written(stream: io.StringIO) -> None:
    """Ours and those of libraries."""
    configure_logging(LogFormat.JSON, LogLevel.WARNING, stream=stream)
    structlog.get_logger().info("quiet")
    logging.getLogger("library").info("quiet")
    assert stream.getvalue() == ""
