"""How the service writes its log: one JSON line (or one console line) for each unit of work, on stderr.

Keys are those of the house: event, partition, batch_id, operation_id, mr_iid, edge, via, outcome,
duration_ms, delivery_id, request_id. Lines of libraries take the same road. Never lets through a secret in
use (each line is swept for them), a control character, or a field of any length.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gitlab_sync.secret import MASK, Secret
from gitlab_sync.setting_values import LogFormat, LogLevel

LONGEST_FIELD: Final = 2_000
SHORTEST_SWEPT: Final = 6


def configure_logging(
    log_format: LogFormat, level: LogLevel, secrets: Iterable[Secret] = (), *, stream: TextIO | None = None
) -> None:
    """Set up structlog and standard logging for this process; `secrets` are masked in every line."""
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _cut_long_fields,
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*before, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(_number(level)),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _renderer(log_format),
                _Sweep(secrets),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(_number(level))


def _number(level: LogLevel) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def _cut_long_fields(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    return {
        key: f"{value[:LONGEST_FIELD]}…" if isinstance(value, str) and len(value) > LONGEST_FIELD else value
        for key, value in event.items()
    }


def _renderer(log_format: LogFormat) -> Processor:
    match log_format:
        case LogFormat.JSON:
            return structlog.processors.JSONRenderer(serializer=json.dumps, default=str)
        case LogFormat.CONSOLE:
            # Native strings by repr: a line break in a value must not start a line of its own.
            return structlog.dev.ConsoleRenderer(
                colors=False, repr_native_str=True, exception_formatter=structlog.dev.plain_traceback
            )


class _Sweep:
    """The last step: masks every secret in use in the rendered line, also in its JSON spelling."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        texts = {secret.reveal() for secret in secrets}
        spellings = texts | {json.dumps(text)[1:-1] for text in texts}
        # A very short password would mask half of every line; it is kept out of lines by its type alone.
        self._texts = sorted(
            (text for text in spellings if len(text) >= SHORTEST_SWEPT), key=len, reverse=True
        )

    def __call__(self, _logger: WrappedLogger, _name: str, line: EventDict | str) -> str:
        swept = str(line)
        for text in self._texts:
            swept = swept.replace(text, MASK)
        return swept
