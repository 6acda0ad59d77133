"""The values that settings hold, and how each is read from its text. Pure: no environment, no files.

Every `parse_…` raises BadValue with one sentence that says what is wrong and what to write instead. A
sentence about a secret never repeats it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from gitlab_sync.secret import MASK, Secret

SIGNING_KEY_PREFIX: Final = "whsec_"
SIGNING_KEY_BYTES: Final = range(24, 65)
SHORTEST_SECRET: Final = 16

_TOKEN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHA256_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")
_DATABASE_NAME: Final = re.compile(r"[A-Za-z0-9_$-]{1,64}")
_DATABASE_FORM: Final = "write mysql://user:password@host:3306/name"

E = TypeVar("E", bound=StrEnum)


LONGEST_REPEATED: Final = 12


class BadValue(ValueError):
    """A text is not what its setting holds; the message says what to write instead."""


class Tls(StrEnum):
    """Whether the way to the database must be encrypted. OFF: never; REQUIRED: refuse to talk otherwise."""

    OFF = "off"
    REQUIRED = "required"


class LogFormat(StrEnum):
    """JSON lines for machines, or text for a terminal."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The least important line that is still written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Scope(StrEnum):
    """What the bearer of an API token may do."""

    READ = "read"
    SUBMIT = "submit"
    APPROVE = "approve"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class DatabaseTarget:
    """Where the database is. With `unix_socket` set, host and port are not used."""

    host: str
    port: int
    user: str
    password: Secret
    name: str
    unix_socket: str | None
    tls: Tls


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on. Port 0: whichever is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ApiToken:
    """One caller of the API; the token itself is known only by its SHA-256 (`digest`)."""

    name: str
    scopes: frozenset[Scope]
    digest: Secret


def repeated(text: str) -> str:
    """`text` as a message may repeat it: only if it is short, it may be a token in the wrong variable."""
    return repr(text) if len(text) <= LONGEST_REPEATED else "what it holds"


def parse_database_url(text: str) -> DatabaseTarget:
    """Read `mysql://user:password@host:3306/name?unix_socket=…&tls=required`."""
    url = _split_url(text, _DATABASE_FORM)
    if url.scheme != "mysql" or url.fragment:
        raise BadValue(f"the scheme is not mysql, or it carries a #fragment; {_DATABASE_FORM}")
    name = unquote(url.path.removeprefix("/"))
    if not url.username:
        raise BadValue(f"it names no user; {_DATABASE_FORM}")
    if not _DATABASE_NAME.fullmatch(name):
        raise BadValue(f"the database's name is missing or not of letters, digits, _, $, -; {_DATABASE_FORM}")
    options = _database_options(url.query)
    if not url.hostname and "unix_socket" not in options:
        raise BadValue(f"it names neither a host nor ?unix_socket=…; {_DATABASE_FORM}")
    return DatabaseTarget(
        host=url.hostname or "localhost",
        port=url.port or 3306,
        user=unquote(url.username),
        password=Secret(unquote(url.password or "")),
        name=name,
        unix_socket=options.get("unix_socket"),
        tls=parse_choice(Tls)(options.get("tls", Tls.OFF)),
    )


def mask_database_url(text: str) -> str:
    """The same address with its password masked, for people to read."""
    target = parse_database_url(text)
    where = f"?unix_socket={target.unix_socket}" if target.unix_socket else ""
    return f"mysql://{target.user}:{MASK}@{target.host}:{target.port}/{target.name}{where}"


def parse_http_url(text: str) -> str:
    """Read an http(s) address without credentials, query or fragment; a final slash is dropped."""
    form = "write https://host, or https://host/path"
    url = _split_url(text, form)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise BadValue(f"it is not an http or https address; {form}")
    if url.username or url.password or url.query or url.fragment:
        raise BadValue(f"it must not carry a user, a password, a query or a fragment; {form}")
    return text.rstrip("/")


def parse_address(text: str) -> Address:
    """Read `host:port` or `[ipv6]:port`."""
    form = "write host:port, such as 127.0.0.1:8080 or [::1]:8080"
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise BadValue(f"an IPv6 address needs square brackets; {form}")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadValue(f"{repeated(text)} is not an address; {form}")
    return Address(host, int(port))


def parse_secret(text: str) -> Secret:
    """Read a token that goes into, or comes out of, an HTTP header."""
    if any(character.isspace() or not character.isprintable() for character in text):
        raise BadValue("it contains a blank or a control character; paste the bare token")
    return Secret(text)


def parse_secrets(text: str) -> tuple[Secret, ...]:
    """Read comma-separated tokens, each long enough not to be guessed."""
    secrets = tuple(parse_secret(part) for part in _parts(text))
    for position, secret in enumerate(secrets, start=1):
        if len(secret.reveal()) < SHORTEST_SECRET:
            shortest = f"entry {position} is shorter than {SHORTEST_SECRET} characters"
            raise BadValue(f"{shortest}; make one with `openssl rand -hex 32`")
    return secrets


def parse_signing_key(text: str) -> Secret:
    """Read one Standard Webhooks key and check that it can be decoded."""
    secret = parse_secret(text)
    signing_key_bytes(secret)
    return secret


def parse_signing_keys(text: str) -> tuple[Secret, ...]:
    """Read comma-separated Standard Webhooks keys."""
    return tuple(parse_signing_key(part) for part in _parts(text))


def signing_key_bytes(secret: Secret) -> bytes:
    """The HMAC key inside `whsec_<base64>`."""
    form = f"write {SIGNING_KEY_PREFIX} and the base64 of 32 random bytes, as GitLab shows it"
    text = secret.reveal()
    if not text.startswith(SIGNING_KEY_PREFIX):
        raise BadValue(f"a signing key does not begin with {SIGNING_KEY_PREFIX}; {form}")
    try:
        key = base64.b64decode(text.removeprefix(SIGNING_KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise BadValue(f"a signing key is not base64; {form}") from None
    if len(key) not in SIGNING_KEY_BYTES:
        raise BadValue(f"a signing key holds {len(key)} bytes; {form}")
    return key


def parse_api_tokens(text: str) -> tuple[ApiToken, ...]:
    """Read comma-separated `name:scope+scope:sha256-of-token`."""
    tokens = tuple(_api_token(position, part) for position, part in enumerate(_parts(text), start=1))
    if len({token.digest for token in tokens}) < len(tokens):
        raise BadValue("two entries hold the same SHA-256; give each caller its own token")
    return tokens


def parse_path(text: str) -> Path:
    """Read the path of a file."""
    return Path(text)


def parse_seconds(least: float, most: float) -> Callable[[str], float]:
    """A reader of a number of seconds within bounds."""

    def parse(text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not least <= seconds <= most:
            raise BadValue(
                f"{repeated(text)} is not a number of seconds from {least:g} to {most:g}; write such a number"
            )
        return seconds

    return parse


def parse_choice(kind: type[E]) -> Callable[[str], E]:
    """A reader of one of an enum's values."""

    def parse(text: str) -> E:
        try:
            return kind(text)
        except ValueError:
            raise BadValue(f"{repeated(text)} is unknown; choose one of {', '.join(kind)}") from None

    return parse


def _api_token(position: int, text: str) -> ApiToken:
    form = "write name:scope+scope:sha256-of-token"
    name, _, rest = text.partition(":")
    scopes, _, digest = rest.partition(":")
    if not _TOKEN_NAME.fullmatch(name):
        raise BadValue(f"entry {position} has no name of letters, digits, '.', '_', '-'; {form}")
    if not _SHA256_HEX.fullmatch(digest):
        raise BadValue(f"entry {position} has no SHA-256 in 64 hex digits at its end; {form}")
    unknown = sorted(set(scopes.split("+")) - set(Scope))
    if unknown:
        raise BadValue(
            f"entry {position} has the scope {repeated(unknown[0])}; choose from {', '.join(Scope)}"
        )
    return ApiToken(name, frozenset(Scope(scope) for scope in scopes.split("+")), Secret(digest.lower()))


def _split_url(text: str, form: str) -> SplitResult:
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        raise BadValue(f"it is not a URL; {form} (percent-encode / ? # @ : in names and passwords)") from None
    return url


def _database_options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in {"unix_socket", "tls"} or name in options or not value:
            # An `@` behind the `?`: it may be a password that is not percent-encoded.
            said = "an option" if "@" in query else f"the option {repeated(name)}"
            raise BadValue(f"{said} is unknown, empty or doubled; it takes unix_socket and tls, once each")
        options[name] = value
    return options


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise BadValue("it has an empty entry; separate entries by single commas")
    return parts
