"""Logs that write little or nothing: where thousands of moves are made, lines would be most of the time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from gitlab_sync.context import Context
from tests.support.log_lines import logging_restored


def quiet(ctx: Context) -> Context:
    """The same parts, and a log that drops everything but what is critical, which nothing is."""
    silent = structlog.make_filtering_bound_logger(logging.CRITICAL)
    return replace(ctx, log=structlog.wrap_logger(structlog.PrintLogger(), wrapper_class=silent))


@contextmanager
def terse_logs() -> Iterator[None]:
    """A line for each event; painting every provoked error with its variables would take most of the time."""
    with logging_restored():
        structlog.configure(
            processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        )
        yield
