"""Settings of a server that weaken what we promise, each with its remedy. Pure: values in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from gitlab_sync.doctor.finding import Finding, Kind

CLOCK_LIMIT: Final = timedelta(seconds=2)
#: A lock wait has to end before the limit of a statement, or the answer is a lost connection.
LOCK_WAIT_LIMIT_S: Final = 15


def weak_settings(settings: Mapping[str, str]) -> list[Finding]:
    """What the server's own settings weaken. A setting that the server does not know weakens nothing."""
    return [*_durability(settings), *_binlog(settings), *_writers(settings), *_locks(settings)]


def weak_lock_limits(session: Mapping[str, str]) -> list[Finding]:
    """What is wrong with the limits of our own session: we set them, so somebody has reset them."""
    return [
        _problem(
            name,
            f"{value} s in our session, not the few seconds that we set",
            "a proxy between us and the server resets sessions: let it keep session variables",
        )
        for name in ("innodb_lock_wait_timeout", "lock_wait_timeout")
        if (value := session.get(name, "1")).isdecimal() and int(value) >= LOCK_WAIT_LIMIT_S
    ]


def clock_apart(database_at: datetime, asked_at: datetime, answered_at: datetime) -> list[Finding]:
    """Whether the database's clock is off from ours by more than the question's own time explains."""
    early, late = asked_at - database_at, database_at - answered_at
    off = max(early, late)
    if off <= CLOCK_LIMIT:
        return []
    side = "behind" if early > late else "ahead of"
    return [
        _problem(
            "clock",
            f"the database is {off.total_seconds():.1f} s {side} this machine",
            "let both keep their time by NTP; deadlines go by the database's clock, signatures by ours",
        )
    ]


def _durability(settings: Mapping[str, str]) -> Iterator[Finding]:
    flush = settings.get("innodb_flush_log_at_trx_commit", "1")
    if flush not in ("1", "3"):  # 3 is MariaDB's 1 with another order of syncs
        yield _problem(
            "innodb_flush_log_at_trx_commit",
            f"it is {flush}: a crash of the server or its machine loses commits that were acknowledged",
            "set it to 1",
        )
    doublewrite = settings.get("innodb_doublewrite", "ON")
    if doublewrite.upper() in ("OFF", "0", "DETECT_ONLY"):
        yield _problem(
            "innodb_doublewrite",
            f"it is {doublewrite}: a page that is half written in a crash cannot be mended",
            "set it to ON, unless the file system itself never writes half a page",
        )


def _binlog(settings: Mapping[str, str]) -> Iterator[Finding]:
    if not _is_on(settings, "log_bin"):
        return
    sync = settings.get("sync_binlog", "1")
    if sync != "1":
        yield _problem(
            "sync_binlog",
            f"it is {sync}: after a crash the binary log lacks acknowledged commits, and replicas lack them",
            "set it to 1",
        )
    if settings.get("binlog_format", "ROW").upper() == "STATEMENT":
        yield _problem(
            "binlog_format",
            "it is STATEMENT: the server refuses our writes, which are READ COMMITTED (error 1665)",
            "set it to ROW",
        )


def _writers(settings: Mapping[str, str]) -> Iterator[Finding]:
    if _is_on(settings, "wsrep_on"):
        yield _problem(
            "wsrep_on",
            "this is a Galera node: keys and locks of one node do not hold back another one until commit",
            "send all writes of gitlab-sync to one node, or use one writer with replicas",
        )
    is_group = bool(settings.get("group_replication_group_name"))
    if is_group and not _is_on(settings, "group_replication_single_primary_mode"):
        yield _problem(
            "group_replication_single_primary_mode",
            "this group has several primaries: locks of one do not hold back another one until commit",
            "switch the group to single-primary mode, and point the URL to the primary",
        )
    consistency = settings.get("group_replication_consistency", "BEFORE_ON_PRIMARY_FAILOVER").upper()
    if is_group and consistency == "EVENTUAL":
        yield _problem(
            "group_replication_consistency",
            "it is EVENTUAL: a new primary answers before it has applied what the old one acknowledged, so a "
            "commit whose answer was lost may be told as not kept although it was",
            "set it to BEFORE_ON_PRIMARY_FAILOVER on every member",
        )


def _locks(settings: Mapping[str, str]) -> Iterator[Finding]:
    if not _is_on(settings, "innodb_deadlock_detect", default="ON"):
        yield _problem(
            "innodb_deadlock_detect",
            "it is OFF: each deadlock holds both sides until a lock wait times out",
            "set it to ON",
        )
    autoinc = settings.get("innodb_autoinc_lock_mode", "2")
    if autoinc != "2":
        yield _problem(
            "innodb_autoinc_lock_mode",
            f"it is {autoinc}: a submit that waits for its twin makes every other submit wait",
            "set it to 2 in the server's option file and restart the server",
        )


def _problem(subject: str, detail: str, remedy: str) -> Finding:
    return Finding(Kind.PROBLEM, "settings", subject, detail, remedy)


def _is_on(settings: Mapping[str, str], name: str, default: str = "OFF") -> bool:
    return settings.get(name, default).upper() in ("ON", "1")
