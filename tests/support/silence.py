"""A context that writes no lines: where thousands of moves are made, they would be most of the time."""

from __future__ import annotations

import logging
from dataclasses import replace

import structlog

from gitlab_sync.context import Context


def quiet(ctx: Context) -> Context:
    """The same parts, and a log that drops everything but what is critical, which nothing is."""
    silent = structlog.make_filtering_bound_logger(logging.CRITICAL)
    return replace(ctx, log=structlog.wrap_logger(structlog.PrintLogger(), wrapper_class=silent))
