"""Where secrets sit in settings besides the places made for them: in an address, in the wrong variable.

The path of a chat service's address is its password, so its long segments are treated as such. What is wrong
in a variable is repeated only if it is short: whoever pastes a token into the wrong one must not find it in
the log. And before the settings are known to be right, what may be secret is guessed, so that the very first
line is swept. Pure: what is in the environment is handed over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from gitlab_sync.secret import MASK, Secret
from gitlab_sync.setting_values import LogFormat

SHORTEST_SEGMENT: Final = 16
LARGEST_FILE_BYTES: Final = 65_536
#: Every variable whose value `config check` masks, whole or in part.
SECRET_VARIABLES: Final = (
    "DATABASE_URL",
    "GITLAB_TOKEN",
    "GITLAB_READ_TOKEN",
    "WEBHOOK_TOKENS",
    "WEBHOOK_SIGNING_KEYS",
    "API_TOKENS",
    "NOTIFY_URL",
    "NOTIFY_SECRET",
)


@dataclass(frozen=True, slots=True)
class LogGuess:
    """What the log should look like, and what it must not show."""

    log_format: LogFormat
    secrets: tuple[Secret, ...]


def named_file(path: str) -> str:
    """A file as a message may name it: only if there is a folder for it, else the name may be the secret."""
    try:
        place = Path(path)
        is_place = place.is_absolute() and len(place.parts) > 2 and place.parent.is_dir()
    except (OSError, ValueError):
        is_place = False
    return f"the file {path}" if is_place else "the file that it names"


def secrets_in_address(url: str) -> list[Secret]:
    """The segments of an address's path that are long enough to be one."""
    return [Secret(segment) for segment in urlsplit(url).path.split("/") if len(segment) >= SHORTEST_SEGMENT]


def mask_address(url: str) -> str:
    """The address for people, its long segments masked."""
    parts = urlsplit(url)
    path = "/".join(
        MASK if len(segment) >= SHORTEST_SEGMENT else segment for segment in parts.path.split("/")
    )
    return urlunsplit(parts._replace(path=path))


def guess_from(environ: Mapping[str, str], prefix: str) -> LogGuess:
    """Read what can be read without judging it. Never raises."""
    said = environ.get(f"{prefix}LOG_FORMAT", "").strip()
    log_format = LogFormat.CONSOLE if said == LogFormat.CONSOLE else LogFormat.JSON
    texts = [text for name in SECRET_VARIABLES for text in _texts(environ, prefix + name)]
    return LogGuess(log_format, tuple(Secret(text) for text in dict.fromkeys(texts) if text))


def _texts(environ: Mapping[str, str], name: str) -> Iterator[str]:
    path = environ.get(f"{name}_FILE", "").strip()
    for text in (environ.get(name, "").strip(), _read(path) if path else ""):
        yield text
        yield from (part.strip() for part in text.split(","))
        yield from (part for part in text.split(":") if len(part) == 64)
        with contextlib.suppress(ValueError):
            password = urlsplit(text).password or ""
            yield from (password, unquote(password))


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(LARGEST_FILE_BYTES).decode(errors="replace").strip()
    except (OSError, ValueError):
        return path  # perhaps the secret itself, in the place of the file that holds it
