"""What a process says when it breaks: one line of its log, whoever would have drawn a traceback.

Python draws an exception that nobody catches on many lines, with whatever its text holds. Here it becomes
one swept line: of the main thread, of another thread, of a finaliser; warnings become lines too. Installed by
the entry point, before anything else is imported. Where nothing is configured yet the settings are looked at
for the log's form and for what must not be seen.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from types import TracebackType
from typing import TextIO


def install() -> None:
    """From now on nothing draws a traceback in this process."""
    sys.excepthook = _crashed
    threading.excepthook = _thread_crashed
    sys.unraisablehook = _unraisable
    warnings.showwarning = warned


def say(error: BaseException | None) -> None:
    """Tell what has ended the process, or a part of it."""
    import structlog  # noqa: PLC0415  who does not break needs none of it

    from gitlab_sync.log_words import Event  # noqa: PLC0415

    begin()
    structlog.get_logger("gitlab_sync").critical(Event.CRASHED, exc_info=error)


def warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001  as the library calls it
    line: str | None = None,  # noqa: ARG001
) -> None:
    """Say a warning of Python's as a library's line, without the line of source that goes with it."""
    begin()
    place = filename.rpartition("/site-packages/")[2]
    logging.getLogger("py.warnings").warning("%s: %s (%s:%s)", category.__name__, message, place, lineno)


def begin() -> None:
    """Configure the log from what the environment lets guess, unless it is configured."""
    if logging.getLogger().handlers:
        return
    from gitlab_sync.logs import configure_logging  # noqa: PLC0415
    from gitlab_sync.setting_values import LogLevel  # noqa: PLC0415
    from gitlab_sync.settings import guess_log  # noqa: PLC0415

    guessed = guess_log()
    configure_logging(guessed.log_format, LogLevel.INFO, guessed.secrets)


def _crashed(kind: type[BaseException], error: BaseException | None, _trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        say(error or kind())


def _thread_crashed(end: threading.ExceptHookArgs) -> None:
    if end.exc_type is not SystemExit:
        say(end.exc_value or end.exc_type())


def _unraisable(end: sys.UnraisableHookArgs) -> None:
    say(end.exc_value or end.exc_type())
