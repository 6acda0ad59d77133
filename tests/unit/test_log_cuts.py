"""Whatever is cut off a line is cut after its secrets are masked: no cut leaves a part of one."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as st

from gitlab_sync.log_words import Event, Unit
from gitlab_sync.logs import LONGEST_FIELD, LONGEST_LINE, SHORT_FIELD, configure_logging
from gitlab_sync.scrubbing import Scrubber
from gitlab_sync.secret import MASK, Secret
from gitlab_sync.setting_values import LogFormat, LogLevel
from gitlab_sync.units import unit
from tests.support.log_lines import lines_of, logging_restored

TOKEN: Final = "SuperSecretToken-0123456789"
PASSWORD: Final = "pässwörd-lang"
PART: Final = 6  # as many signs of it in a row are a part of it
Say = Callable[[Any, str], None]


def _as_exception(log: Any, text: str) -> None:
    log.error(Event.CRASHED, exc_info=ValueError(text))


def _as_cause(log: Any, text: str) -> None:
    error = ValueError("outer")
    error.__cause__ = OSError(text)
    log.error(Event.CRASHED, exc_info=error)


def _as_end_of_a_unit(log: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"), unit(Unit.ROUND):
        raise ValueError(text)


def _as_field(log: Any, text: str) -> None:
    log.info(Event.SERVING, detail=text)


def _as_data(log: Any, text: str) -> None:
    log.info(Event.ADMITTED, data={"title": text, text: [text] * 8, "more": ["x" * 1_990] * 8})


def _as_library(_log: Any, text: str) -> None:
    logging.getLogger("library").error("said %s", text)


ROADS: Final = (_as_exception, _as_cause, _as_end_of_a_unit, _as_field, _as_data, _as_library)
EDGES: Final = tuple(
    edge + off
    for edge in (SHORT_FIELD, 1_000, LONGEST_FIELD, 2 * LONGEST_FIELD, LONGEST_LINE)
    for off in (-600, -10, 0)
)


@pytest.fixture(scope="module")
def stream() -> Iterator[io.StringIO]:
    """Where the log goes; the process's own configuration comes back afterwards."""
    with logging_restored():
        yield io.StringIO()


def said(stream: io.StringIO, road: Say, text: str, log_format: LogFormat = LogFormat.JSON) -> str:
    """What the log holds once `text` was said on one of the roads, with both secrets known."""
    stream.seek(0)
    stream.truncate()
    configure_logging(log_format, LogLevel.DEBUG, [Secret(TOKEN), Secret(PASSWORD)], stream=stream)
    road(structlog.get_logger("gitlab_sync"), text)
    return stream.getvalue()


def parts_in(line: str) -> list[str]:
    """The parts of the token that a line shows."""
    parts = (TOKEN[at : at + PART] for at in range(len(TOKEN) - PART + 1))
    return [part for part in parts if part in line]


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("edge", EDGES)
def test_a_token_on_a_cut_s_edge_leaves_no_part(stream: io.StringIO, road: Say, edge: int) -> None:
    """The words of an exception were cut at 1,000 signs before anybody looked for secrets in them."""
    for before in range(edge - len(TOKEN) - 1, edge + 2, 7):
        line = said(stream, road, "z" * before + " " + TOKEN + " " + "y" * 3_000)
        assert not parts_in(line), (before, parts_in(line))


@given(
    st.integers(0, 3 * LONGEST_FIELD), st.integers(0, 200), st.sampled_from(ROADS), st.sampled_from(LogFormat)
)
@example(979, 0, _as_exception, LogFormat.JSON)
@example(190, 0, _as_data, LogFormat.JSON)
def test_no_part_of_a_token_is_seen_wherever_it_stands(
    stream: io.StringIO, before: int, again: int, road: Say, log_format: LogFormat
) -> None:
    """Many of them make a text shrink under their masks, and bring nearer what was far behind the cut."""
    line = said(stream, road, (TOKEN + " ") * again + "z" * before + TOKEN + "y" * before, log_format)
    assert not parts_in(line), (before, again, parts_in(line))


def test_eight_texts_of_a_long_line_are_masked_before_they_are_shortened(stream: io.StringIO) -> None:
    """None of them was long enough to be swept, and all together were too long for one line."""
    texts = ["x" * 190 + TOKEN + "x" * 1_700] * 8
    line = said(stream, lambda log, _: log.info(Event.ADMITTED, data=texts), "")
    [told] = lines_of(line)
    assert len(line) < LONGEST_LINE
    assert len(told["data"]) == 5
    assert all(MASK in one for one in told["data"])
    assert not parts_in(line)


@pytest.mark.parametrize("log_format", tuple(LogFormat))
def test_a_password_as_python_spells_its_bytes_is_masked(stream: io.StringIO, log_format: LogFormat) -> None:
    """JSON doubles backslashes: looked for in the finished line it was not found."""
    line = said(stream, _as_field, repr(PASSWORD.encode()), log_format)
    assert "rd-lang" not in line
    assert MASK in line


def test_a_secret_that_is_the_name_of_a_field_is_masked(stream: io.StringIO) -> None:
    """A person chooses names too."""
    line = said(stream, lambda log, text: log.info(Event.ADMITTED, data={"a": {text: {text: 1}}}), TOKEN)
    assert lines_of(line)[0]["data"] == {"a": {MASK: {MASK: 1}}}


@given(st.integers(0, 120), st.integers(0, 120), st.integers(1, 60))
def test_a_cut_text_is_the_beginning_of_the_swept_one(before: int, after: int, most: int) -> None:
    """The cut hides, it never adds; what is short enough stays whole."""
    scrubber = Scrubber([Secret(TOKEN)])
    text = ("z" * before + TOKEN + "y" * after) * 12
    whole, cut = scrubber.scrub(text), scrubber.scrub_and_cut(text, most)
    assert whole.startswith(cut.removesuffix("…"))
    assert len(cut) <= most + 1
    assert cut == whole or cut.endswith("…")
