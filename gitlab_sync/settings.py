"""The settings of the service: one frozen object, built once from `GITLAB_SYNC_…` variables.

The only reader of the environment. Every variable may instead be given as `…_FILE`, the path of a file that
holds it. An unknown variable with the prefix, a missing or a malformed one is a ConfigError with one line
for each, which names the variable and the remedy; no line repeats a secret. How a text becomes a value is
in `setting_values`.

To add a setting: a field of `Settings` with its sentence, and a row of `_VARIABLES`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from gitlab_sync.errors import ConfigError
from gitlab_sync.secret import MASK, Secret
from gitlab_sync.setting_files import parse_ca_file, read_value
from gitlab_sync.setting_secrets import LogGuess, guess_from, mask_address, secrets_in_address
from gitlab_sync.setting_values import (
    Address,
    ApiToken,
    BadValue,
    DatabaseTarget,
    LogFormat,
    LogLevel,
    Tls,
    mask_database_url,
    parse_address,
    parse_api_tokens,
    parse_choice,
    parse_database_url,
    parse_http_url,
    parse_path,
    parse_seconds,
    parse_secret,
    parse_secrets,
    parse_signing_key,
    parse_signing_keys,
)

PREFIX: Final = "GITLAB_SYNC_"
FILE_SUFFIX: Final = "_FILE"


class Need(StrEnum):
    """What a command needs to be set. Whatever else is set is checked too."""

    GITLAB_ONLY = "GitLab only"  # the care of webhooks: at a desk that has no way to the database
    DATABASE_ONLY = "database only"  # migrate, reading commands
    SUBMIT = "submit"  # database and partitions
    ENGINE = "engine"  # and GitLab: a round, a reconcile, a doctor by hand
    SERVE = "serve"  # and the HTTP edge


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One variable as `config check` shows it: its value with secrets masked, and where it came from."""

    variable: str
    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set. A value that the command does not need may be empty."""

    database: DatabaseTarget
    """DATABASE_URL: where the tables are."""
    gitlab_url: str
    """GITLAB_URL: base address of the GitLab instance, without a final slash."""
    gitlab_token: Secret
    """GITLAB_TOKEN: writes branches, commits and merge requests."""
    gitlab_read_token: Secret | None
    """GITLAB_READ_TOKEN: what the poller reads with; absent: GITLAB_TOKEN."""
    gitlab_ca_file: Path | None
    """GITLAB_CA_FILE: the authorities to believe about GitLab's certificate, instead of the public ones."""
    webhook_tokens: tuple[Secret, ...]
    """WEBHOOK_TOKENS: any of them may come as X-Gitlab-Token."""
    webhook_signing_keys: tuple[Secret, ...]
    """WEBHOOK_SIGNING_KEYS: any of them may have signed a delivery."""
    api_tokens: tuple[ApiToken, ...]
    """API_TOKENS: who may call the API, and for what."""
    partitions_path: Path | None
    """PARTITIONS: the partitions file."""
    listen: Address
    """LISTEN: where API, hooks and (without MANAGEMENT_LISTEN) probes and metrics are served."""
    management_listen: Address | None
    """MANAGEMENT_LISTEN: an address of their own for probes and metrics."""
    public_url: str
    """PUBLIC_URL: the address under which GitLab reaches this service; empty: not told."""
    round_interval_s: float
    """ROUND_INTERVAL_S: pause between two looks at what waits."""
    poll_interval_s: float
    """POLL_INTERVAL_S: how long a batch may go without being looked at."""
    merge_check_s: float
    """MERGE_CHECK_S: how soon after asking GitLab to merge the poller looks for the result."""
    drain_wait_s: float
    """DRAIN_WAIT_S: how long a stopping replica, unready already, goes on taking connections."""
    notify_url: str = field(repr=False)
    """NOTIFY_URL: where notifications are delivered; empty: they are only logged."""
    notify_secret: Secret | None
    """NOTIFY_SECRET: signs notifications (Standard Webhooks)."""
    log_format: LogFormat
    """LOG_FORMAT: json or console."""
    log_level: LogLevel
    """LOG_LEVEL: the least important line that is written."""
    rows: tuple[SettingRow, ...]
    """Each variable with its masked value and source, for `describe`."""
    revealed: tuple[Secret, ...]
    """Every secret text in use, so that logs can be swept for them."""


@dataclass(frozen=True, slots=True)
class _Variable:
    field: str
    name: str
    parse: Callable[[str], Any]
    needed_from: Need | None = None
    default: str | None = None
    absent: Any = None
    mask: Callable[[str], str] = str


@dataclass(frozen=True, slots=True)
class _Given:
    text: str
    source: str


def load_settings(environ: Mapping[str, str] | None = None, *, need: Need = Need.SERVE) -> Settings:
    """Build the settings from `environ` (None: the process's own). Raises ConfigError with all problems."""
    environ = os.environ if environ is None else environ
    problems = _unknown_names(environ)
    values: dict[str, Any] = {}
    rows: list[SettingRow] = []
    revealed: list[Secret] = []
    for variable in _VARIABLES:
        try:
            given = _given(environ, variable.name)
            values[variable.field] = _value(variable, given, need)
            rows.append(_row(variable, given))
            revealed.extend(_secrets_in(values[variable.field]))
        except BadValue as problem:
            problems.append(f"{PREFIX}{variable.name}: {problem}")
    if not problems:
        problems = _contradictions(values, need)
    if problems:
        raise ConfigError(problems)
    revealed.extend(secrets_in_address(values["notify_url"]))
    return Settings(**values, rows=tuple(rows), revealed=tuple(revealed))


def guess_log(environ: Mapping[str, str] | None = None) -> LogGuess:
    """How to log before the settings are known to be right, or where they are not. Never raises."""
    return guess_from(os.environ if environ is None else environ, PREFIX)


def describe(settings: Settings) -> tuple[SettingRow, ...]:
    """Every variable in the order of the documentation, secrets masked."""
    return settings.rows


def _hidden(_text: str) -> str:
    return MASK


_VARIABLES: Final = (
    _Variable(
        "database",
        "DATABASE_URL",
        parse_database_url,
        Need.DATABASE_ONLY,
        absent=DatabaseTarget("", 0, "", Secret(""), "", None, Tls.OFF),
        mask=mask_database_url,
    ),
    _Variable("gitlab_url", "GITLAB_URL", parse_http_url, Need.ENGINE, absent=""),
    _Variable("gitlab_token", "GITLAB_TOKEN", parse_secret, Need.ENGINE, absent=Secret(""), mask=_hidden),
    _Variable("gitlab_read_token", "GITLAB_READ_TOKEN", parse_secret, mask=_hidden),
    _Variable("gitlab_ca_file", "GITLAB_CA_FILE", parse_ca_file),
    _Variable("webhook_tokens", "WEBHOOK_TOKENS", parse_secrets, absent=(), mask=_hidden),
    _Variable("webhook_signing_keys", "WEBHOOK_SIGNING_KEYS", parse_signing_keys, absent=(), mask=_hidden),
    _Variable("api_tokens", "API_TOKENS", parse_api_tokens, Need.SERVE, absent=(), mask=_hidden),
    _Variable("partitions_path", "PARTITIONS", parse_path, Need.SUBMIT),
    _Variable("listen", "LISTEN", parse_address, default="127.0.0.1:8080"),
    _Variable("management_listen", "MANAGEMENT_LISTEN", parse_address),
    _Variable("public_url", "PUBLIC_URL", parse_http_url, absent=""),
    _Variable("round_interval_s", "ROUND_INTERVAL_S", parse_seconds(0.05, 86_400), default="5"),
    _Variable("poll_interval_s", "POLL_INTERVAL_S", parse_seconds(0.05, 86_400), default="30"),
    _Variable("merge_check_s", "MERGE_CHECK_S", parse_seconds(0.05, 86_400), default="2"),
    _Variable("drain_wait_s", "DRAIN_WAIT_S", parse_seconds(0, 600), default="0"),
    _Variable("notify_url", "NOTIFY_URL", parse_http_url, absent="", mask=mask_address),
    _Variable("notify_secret", "NOTIFY_SECRET", parse_signing_key, mask=_hidden),
    _Variable("log_format", "LOG_FORMAT", parse_choice(LogFormat), default="json"),
    _Variable("log_level", "LOG_LEVEL", parse_choice(LogLevel), default="info"),
)


def _unknown_names(environ: Mapping[str, str]) -> list[str]:
    known = {PREFIX + variable.name for variable in _VARIABLES}
    known |= {name + FILE_SUFFIX for name in known}
    return [
        f"{name}: there is no such setting; {_nearest(name, known)}"
        for name in sorted(environ)
        if name.startswith(PREFIX) and name not in known
    ]


def _nearest(name: str, known: set[str]) -> str:
    # Without the prefix: it is the longest part of every name and would make all of them alike.
    names = [one.removeprefix(PREFIX) for one in sorted(known)]
    near = difflib.get_close_matches(name.removeprefix(PREFIX), names, n=1)
    return f"did you mean {PREFIX}{near[0]}? Rename or unset it" if near else "unset it"


def _given(environ: Mapping[str, str], name: str) -> _Given | None:
    """The text given for a variable and its source; None if it is absent or blank."""
    text = environ.get(PREFIX + name, "").strip()
    path = environ.get(PREFIX + name + FILE_SUFFIX, "").strip()
    if text and path:
        raise BadValue(f"it is given twice, also as {PREFIX}{name}{FILE_SUFFIX}; unset one of the two")
    if path:
        return _Given(read_value(path, f"{PREFIX}{name}{FILE_SUFFIX}"), f"file {path}")
    return _Given(text, "environment") if text else None


def _value(variable: _Variable, given: _Given | None, need: Need) -> Any:
    if given is not None:
        return variable.parse(given.text)
    if variable.default is not None:
        return variable.parse(variable.default)
    if variable.needed_from is not None and _covers(need, variable.needed_from):
        raise BadValue(
            f"it is not set; set it, or set {PREFIX}{variable.name}{FILE_SUFFIX} to a file that holds it"
        )
    return variable.absent


def _covers(need: Need, needed_from: Need) -> bool:
    if need is Need.GITLAB_ONLY:  # what a round needs beyond database and partitions
        return needed_from is Need.ENGINE
    order = tuple(Need)
    return order.index(need) >= order.index(needed_from)


def _row(variable: _Variable, given: _Given | None) -> SettingRow:
    name = PREFIX + variable.name
    if given is not None:
        return SettingRow(name, variable.mask(given.text), given.source)
    return SettingRow(name, variable.default or "", "default" if variable.default else "not set")


def _secrets_in(value: Any) -> list[Secret]:
    match value:
        case Secret():
            return [value] if value else []
        case DatabaseTarget():
            return [value.password] if value.password else []
        case ApiToken():
            return [value.digest]
        case tuple():
            return [secret for item in value for secret in _secrets_in(item)]
        case _:
            return []


def _contradictions(values: Mapping[str, Any], need: Need) -> list[str]:
    problems = []
    if need is Need.SERVE and not values["webhook_tokens"] and not values["webhook_signing_keys"]:
        problems.append(
            f"{PREFIX}WEBHOOK_TOKENS: neither it nor {PREFIX}WEBHOOK_SIGNING_KEYS is set; set at least one"
        )
    if values["notify_url"] and not values["notify_secret"]:
        problems.append(
            f"{PREFIX}NOTIFY_SECRET: {PREFIX}NOTIFY_URL is set without it; set it to whsec_ and base64"
        )
    if values["management_listen"] == values["listen"] and values["listen"].port:
        problems.append(
            f"{PREFIX}MANAGEMENT_LISTEN: it equals {PREFIX}LISTEN; unset it or give it a port of its own"
        )
    return problems
