"""Settings: each variable that is unknown, missing or malformed gets one line: its name and the remedy."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from gitlab_sync.errors import ConfigError
from gitlab_sync.setting_values import Address, Scope, Tls
from gitlab_sync.settings import FILE_SUFFIX, PREFIX, Need, Settings, describe, load_settings

PASSWORD = "pass-word-canary"
TOKEN = "gitlab-token-canary"
HOOK_TOKEN = "hook-token-canary-1"
SIGNING_KEY = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
API_DIGEST = hashlib.sha256(b"api-token-canary").hexdigest()

VALID = {
    "DATABASE_URL": f"mysql://user:{PASSWORD}@db.example:3307/sync",
    "GITLAB_URL": "https://gitlab.example/",
    "GITLAB_TOKEN": TOKEN,
    "WEBHOOK_TOKENS": HOOK_TOKEN,
    "API_TOKENS": f"portal:read+submit:{API_DIGEST}",
    "PARTITIONS": "partitions.yaml",
}


def environment(**changes: str | None) -> dict[str, str]:
    """A complete environment with some variables changed, or (None) left out."""
    values = {**VALID, **changes}
    return {PREFIX + name: value for name, value in values.items() if value is not None}


def problems_of(environ: dict[str, str], need: Need = Need.SERVE) -> list[str]:
    """The lines of the refusal."""
    with pytest.raises(ConfigError) as refusal:
        load_settings(environ, need=need)
    return refusal.value.problems


def load(**changes: str | None) -> Settings:
    """Settings of a complete environment with changes."""
    return load_settings(environment(**changes))


def test_a_complete_environment_is_read() -> None:
    """Values arrive typed, defaults are those of the documentation."""
    settings = load()
    assert settings.database.password.reveal() == PASSWORD
    assert (settings.database.host, settings.database.port, settings.database.name) == (
        "db.example",
        3307,
        "sync",
    )
    assert settings.gitlab_url == "https://gitlab.example"
    assert settings.api_tokens[0].scopes == {Scope.READ, Scope.SUBMIT}
    assert settings.listen == Address("127.0.0.1", 8080)
    assert (settings.round_interval_s, settings.poll_interval_s, settings.merge_check_s) == (5, 30, 2)
    assert settings.drain_wait_s == 0
    assert settings.management_listen is None


def test_variables_of_others_are_none_of_our_business() -> None:
    """Only the prefix is ours."""
    assert (
        load_settings({**environment(), "PATH": "/bin", "GITLAB_SYNCED": "x"}).gitlab_token.reveal() == TOKEN
    )


def test_a_misspelt_variable_is_refused_with_the_right_name() -> None:
    """A typo must not silently leave the default in force."""
    [line] = problems_of(environment(POLL_INTERVAL="3"))
    assert line.startswith(PREFIX + "POLL_INTERVAL:")
    assert PREFIX + "POLL_INTERVAL_S" in line


@pytest.mark.parametrize("name", ["DATABASE_URL", "GITLAB_URL", "GITLAB_TOKEN", "API_TOKENS", "PARTITIONS"])
def test_a_missing_variable_is_named_with_both_ways_to_set_it(name: str) -> None:
    """The operator learns of `…_FILE` too."""
    [line] = problems_of(environment(**{name: None}))
    assert line.startswith(f"{PREFIX}{name}: ")
    assert f"{PREFIX}{name}{FILE_SUFFIX}" in line


def test_a_blank_variable_counts_as_missing() -> None:
    """Compose files leave empty variables behind."""
    [line] = problems_of(environment(GITLAB_TOKEN="  "))
    assert line.startswith(PREFIX + "GITLAB_TOKEN: it is not set")


def test_without_any_webhook_secret_the_service_does_not_start() -> None:
    """At least one of the two must be there."""
    [line] = problems_of(environment(WEBHOOK_TOKENS=None))
    assert "WEBHOOK_TOKENS" in line
    assert "WEBHOOK_SIGNING_KEYS" in line
    assert load(WEBHOOK_TOKENS=None, WEBHOOK_SIGNING_KEYS=SIGNING_KEY).webhook_tokens == ()


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("DATABASE_URL", "postgres://u:p@h/n", "mysql://user:password@host"),
        ("DATABASE_URL", "mysql://h/n", "names no user"),
        ("DATABASE_URL", "mysql://u:p@h", "database's name"),
        ("DATABASE_URL", "mysql://u:p@h/a/b", "database's name"),
        ("DATABASE_URL", "mysql://u:p@h:port/n", "percent-encode"),
        ("DATABASE_URL", "mysql://u:p@h/n?ssl=on", "'ssl'"),
        ("DATABASE_URL", "mysql://u:p@h/n?tls=maybe", "off, required"),
        ("DATABASE_URL", "mysql://u:p@/n", "neither a host nor"),
        ("GITLAB_URL", "gitlab.example", "https://host"),
        ("GITLAB_URL", "https://user:pw@gitlab.example", "must not carry"),
        ("GITLAB_TOKEN", "two words", "paste the bare token"),
        ("WEBHOOK_TOKENS", "short", "openssl rand"),
        ("WEBHOOK_TOKENS", f"{HOOK_TOKEN},,{HOOK_TOKEN}2", "single commas"),
        ("WEBHOOK_SIGNING_KEYS", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "begin with whsec_"),
        ("WEBHOOK_SIGNING_KEYS", "whsec_???", "base64"),
        ("WEBHOOK_SIGNING_KEYS", "whsec_AAEC", "holds 3 bytes"),
        ("API_TOKENS", "portal", "name:scope+scope:sha256-of-token"),
        ("API_TOKENS", f"portal:read+write:{API_DIGEST}", "'write'"),
        ("API_TOKENS", f":read:{API_DIGEST}", "no name"),
        ("API_TOKENS", f"a:read:{API_DIGEST},b:read:{API_DIGEST}", "same SHA-256"),
        ("LISTEN", "8080", "host:port"),
        ("LISTEN", "::1:8080", "square brackets"),
        ("LISTEN", "127.0.0.1:99999", "host:port"),
        ("ROUND_INTERVAL_S", "often", "from 0.05 to 86400"),
        ("POLL_INTERVAL_S", "0", "from 0.05 to 86400"),
        ("MERGE_CHECK_S", "nan", "from 0.05 to 86400"),
        ("DRAIN_WAIT_S", "601", "from 0 to 600"),
        ("NOTIFY_URL", "file:///etc/passwd", "https://host"),
        ("LOG_FORMAT", "xml", "json, console"),
        ("LOG_LEVEL", "loud", "debug, info"),
    ],
)
def test_a_malformed_value_is_named_with_its_remedy(name: str, value: str, remedy: str) -> None:
    """One line, the variable first, what to write instead after it."""
    [line] = problems_of(environment(**{name: value}))
    assert line.startswith(f"{PREFIX}{name}: ")
    assert remedy in line


def test_all_problems_are_told_at_once() -> None:
    """Nobody mends a deployment line by line."""
    lines = problems_of(environment(LISTEN="x", GITLAB_URL="x", TYPO="1"))
    assert {line.split(":")[0] for line in lines} == {
        PREFIX + "TYPO",
        PREFIX + "LISTEN",
        PREFIX + "GITLAB_URL",
    }


def test_a_refusal_never_repeats_a_secret() -> None:
    """Start-up errors end in logs and tickets."""
    lines = problems_of(
        environment(
            DATABASE_URL=f"mysql://u:{PASSWORD}@h",
            GITLAB_TOKEN=f"{TOKEN} {TOKEN}",
            WEBHOOK_TOKENS=f"{HOOK_TOKEN},,",
            WEBHOOK_SIGNING_KEYS="whsec_canary",
            API_TOKENS=f"a:read:{API_DIGEST}0",
        )
    )
    assert len(lines) == 5
    for secret in (PASSWORD, TOKEN, HOOK_TOKEN, "whsec_canary", API_DIGEST):
        assert secret not in "\n".join(lines)


def test_a_value_may_come_from_a_file(tmp_path: Path) -> None:
    """Mounted secrets end with a line break."""
    (tmp_path / "token").write_text(TOKEN + "\n")
    environ = environment(GITLAB_TOKEN=None, GITLAB_TOKEN_FILE=str(tmp_path / "token"))
    settings = load_settings(environ)
    assert settings.gitlab_token.reveal() == TOKEN
    [row] = [row for row in describe(settings) if row.variable == PREFIX + "GITLAB_TOKEN"]
    assert row.source == f"file {tmp_path / 'token'}"


def test_a_file_that_is_missing_empty_or_no_text_is_named(tmp_path: Path) -> None:
    """The line names the variable, the file and what to do."""
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("missing", "empty", "binary"):
        path = str(tmp_path / name)
        [line] = problems_of(environment(GITLAB_TOKEN=None, GITLAB_TOKEN_FILE=path))
        assert line.startswith(PREFIX + "GITLAB_TOKEN: ")
        assert path in line


def test_a_value_given_twice_is_refused(tmp_path: Path) -> None:
    """Which of the two would win is nothing to guess."""
    (tmp_path / "token").write_text(TOKEN)
    [line] = problems_of(environment(GITLAB_TOKEN_FILE=str(tmp_path / "token")))
    assert "given twice" in line


def test_a_command_asks_only_for_what_it_needs() -> None:
    """`migrate` needs the database, a round by hand no webhook secret; what is set is still checked."""
    database = {PREFIX + "DATABASE_URL": VALID["DATABASE_URL"]}
    assert load_settings(database, need=Need.DATABASE_ONLY).gitlab_url == ""
    assert len(problems_of(database, Need.SUBMIT)) == 1
    assert len(problems_of(database, Need.ENGINE)) == 3
    assert problems_of({**database, PREFIX + "LISTEN": "x"}, Need.DATABASE_ONLY)[0].startswith(
        PREFIX + "LISTEN"
    )


def test_the_care_of_webhooks_asks_for_gitlab_alone() -> None:
    """It is done at a desk that has neither the database's password nor the partitions."""
    gitlab = {PREFIX + "GITLAB_URL": VALID["GITLAB_URL"], PREFIX + "GITLAB_TOKEN": TOKEN}
    settings = load_settings(gitlab, need=Need.GITLAB_ONLY)
    assert (settings.partitions_path, settings.database.host, settings.public_url) == (None, "", "")
    assert len(problems_of({}, Need.GITLAB_ONLY)) == 2
    assert problems_of({**gitlab, PREFIX + "PUBLIC_URL": "sync.example"}, Need.GITLAB_ONLY)[0].startswith(
        PREFIX + "PUBLIC_URL"
    )


def test_a_socket_and_tls_are_read_from_the_database_address() -> None:
    """Percent-encoded passwords and both options."""
    target = load(DATABASE_URL="mysql://u:a%40b%2Fc@/n?unix_socket=/run/db.sock&tls=required").database
    assert (target.unix_socket, target.tls, target.password.reveal()) == (
        "/run/db.sock",
        Tls.REQUIRED,
        "a@b/c",
    )


def test_contradictions_between_settings_are_refused() -> None:
    """A notification address without its secret, and two listeners on one address."""
    assert "NOTIFY_SECRET" in problems_of(environment(NOTIFY_URL="https://sink.example"))[0]
    assert "MANAGEMENT_LISTEN" in problems_of(environment(MANAGEMENT_LISTEN="127.0.0.1:8080"))[0]


def test_no_spelling_of_the_settings_shows_a_secret() -> None:
    """repr, str, the rows of `config check`: secrets are masked in all of them."""
    settings = load(WEBHOOK_SIGNING_KEYS=SIGNING_KEY, GITLAB_READ_TOKEN="read-token-canary")
    shown = f"{settings!r} {settings} {[str(row) for row in describe(settings)]}"
    for secret in (PASSWORD, TOKEN, HOOK_TOKEN, SIGNING_KEY, API_DIGEST, "read-token-canary"):
        assert secret not in shown
    assert {secret.reveal() for secret in settings.revealed} >= {
        PASSWORD,
        TOKEN,
        HOOK_TOKEN,
        SIGNING_KEY,
        API_DIGEST,
    }


def test_every_variable_is_described_once() -> None:
    """`config check` shows the whole table, in the documentation's order."""
    names = [row.variable for row in describe(load())]
    assert len(names) == len(set(names)) == 20
    assert names[0] == PREFIX + "DATABASE_URL"


def test_a_mistyped_name_is_answered_with_the_nearest_one() -> None:
    """The prefix that all names share does not count: POLL_INTERVALS is near POLL_INTERVAL_S, not LISTEN."""
    with pytest.raises(ConfigError) as refused:
        load_settings({"GITLAB_SYNC_POLL_INTERVALS": "3"}, need=Need.DATABASE_ONLY)
    (line,) = [one for one in refused.value.problems if "POLL_INTERVALS" in one]
    assert "did you mean GITLAB_SYNC_POLL_INTERVAL_S?" in line
