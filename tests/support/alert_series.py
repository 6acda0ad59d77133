"""For each alert the series that fire it, and series that look alike and must not: what promtool is fed with.

One sample a minute for two hours, in promtool's own notation: `1x5` is six ones, `0+60x120` counts up, `_x10`
is nothing. What must not fire is either a value that stands exactly at the limit, or one that is gone a
minute before the alert's `for` has passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

Series = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """What fires one alert, here and in other ways (`fires_too`), and all that must leave it quiet."""

    fires: Series
    quiet: tuple[Series, ...]
    fires_too: tuple[Series, ...] = ()


def _gauge(name: str, fires: str, *quiet: str) -> Case:
    """One series, with the values that fire and those that do not."""
    series = f"gitlab_sync_{name}"
    return Case({series: fires}, tuple({series: values} for values in quiet))


_MISSED: Final = 'gitlab_sync_webhooks_missed_total{partition="p"}'
_UNAUTHORIZED: Final = 'gitlab_sync_webhooks_total{event="unread",result="unauthorized"}'
_TAKEN: Final = 'gitlab_sync_webhooks_total{event="pipeline",result="taken"}'
_ACCEPTED: Final = "gitlab_sync_webhook_last_accepted_timestamp_seconds"
_BY_WEBHOOK: Final = 'gitlab_sync_settlements_total{partition="p",result="succeeded",via="webhook"}'
_BY_POLLER: Final = 'gitlab_sync_settlements_total{partition="p",result="succeeded",via="poller"}'
_LOST: Final = 'gitlab_sync_settlement_races_lost_total{via="poller"}'
_OK: Final = 'gitlab_sync_gitlab_requests_total{operation="merge",result="ok"}'
_AWAY: Final = 'gitlab_sync_gitlab_requests_total{operation="merge",result="unavailable"}'
_RETRIES: Final = 'gitlab_sync_db_retries_total{reason="deadlock"}'
_REFUSED: Final = 'gitlab_sync_expiries_total{partition="p",result="refused"}'
_ADMITTED: Final = 'gitlab_sync_expiries_total{partition="p",result="admitted"}'
_POLLED: Final = "gitlab_sync_poller_last_success_timestamp_seconds"
_CHECKED: Final = "gitlab_sync_invariants_checked_timestamp_seconds"
_READ: Final = "gitlab_sync_gauges_read_timestamp_seconds"
_ONE: Final = 'gitlab_sync_build_info{namespace="one",version="1"}'
_OTHER: Final = 'gitlab_sync_build_info{namespace="other",version="1"}'
_VIOLATIONS: Final = "gitlab_sync_invariant_violations"
_OVERDUE: Final = "gitlab_sync_batch_overdue_seconds"
_PAUSED: Final = "gitlab_sync_partition_paused"

CASES: Final[Mapping[str, Case]] = {
    "GitlabSyncAbsent": Case(
        {"up": "1x120"},
        (
            {'gitlab_sync_build_info{version="1"}': "1x120"},
            {'gitlab_sync_build_info{version="1"}': "1x50 _x9 1x60"},  # a restart of everything
            {_ONE: "1x120", _OTHER: "1x50 _x9 1x60"},
            {_ONE: "1x120", _OTHER: "_x30 1x90"},  # installed later than the other one
        ),
        ({_OTHER: "1x60", _ONE: "1x120"},),  # one of two in the same Prometheus is lost
    ),
    "GitlabSyncDatabaseSilent": Case(
        {f'{_READ}{{pod="a"}}': "60+60x40 2460x80"},
        (
            {f'{_READ}{{pod="a"}}': "0+60x60 3660x4 3960+60x55"},
            {
                f'{_READ}{{pod="a"}}': "0x120",
                f'{_READ}{{pod="b"}}': "0+60x120",
            },  # one replica cannot reach it
        ),
    ),
    "GitlabSyncInvariantViolated": Case(
        {f'{_VIOLATIONS}{{invariant="invariant_landed_once"}}': "0x50 1x70"},
        (
            {f'{_VIOLATIONS}{{invariant="invariant_landed_once"}}': "0x120"},
            {f'{_VIOLATIONS}{{invariant="invariant_nothing_stuck"}}': "3x120"},  # the other alert's
        ),
    ),
    "GitlabSyncLandedMismatch": Case(
        {f'{_PAUSED}{{partition="p",reason="landed_mismatch"}}': "0x50 1x70"},
        ({f'{_PAUSED}{{partition="p",reason="operator"}}': "1x120"},),
    ),
    "GitlabSyncBatchBlocked": _gauge('blocked_batches{partition="p",reason="draft"}', "1x120", "1x4 0x115"),
    "GitlabSyncBatchOverdue": Case(
        {f'{_OVERDUE}{{partition="p"}}': "0x20 0+60x100"},
        (
            {f'{_OVERDUE}{{partition="p"}}': "300x120"},
            {f'{_OVERDUE}{{partition="p"}}': "0x20 301x4 0x95"},  # the sweep was late, and came
            {
                'gitlab_sync_active_batch_age_seconds{partition="p",status="running"}': "86400x120"
            },  # its deadline: days
        ),
    ),
    "GitlabSyncWaitingTooLong": _gauge(
        'oldest_waiting_seconds{partition="p"}', "7260+60x120", "7200x120", "7201x9 0x110"
    ),
    "GitlabSyncWorkLeftLying": Case(
        {f'{_VIOLATIONS}{{invariant="invariant_batch_is_looked_at"}}': "2x120"},
        (
            {f'{_VIOLATIONS}{{invariant="invariant_batch_is_looked_at"}}': "2x44 0x75"},
            {
                f'{_VIOLATIONS}{{invariant="invariant_batch_is_looked_at"}}': "0x20 1x34 0x65"
            },  # one slow check's
            {f'{_VIOLATIONS}{{invariant="invariant_landed_once"}}': "1x120"},
        ),
    ),
    "GitlabSyncInvariantsUnchecked": Case(
        {_CHECKED: "60x120"},
        (
            {_CHECKED: "0x60 3660x60"},
            {
                _CHECKED: "0+60x20 _x4 1500x40 3960+60x55"
            },  # everything restarted: a first walk of forty minutes
            {f'{_CHECKED}{{pod="a"}}': "0x120", f'{_CHECKED}{{pod="b"}}': "0+60x120"},
        ),
    ),
    "GitlabSyncPollerSilent": Case(
        {f'{_POLLED}{{pod="a"}}': "60x120"},
        (
            {f'{_POLLED}{{pod="a"}}': "0x120", f'{_POLLED}{{pod="b"}}': "0+60x120"},  # one answers HTTP only
            {_POLLED: "0x14 900+60x105"},  # silent for fourteen minutes: past the limit, not for long enough
        ),
    ),
    "GitlabSyncWebhooksMissed": Case(
        {_MISSED: "0+1x120"},
        (
            {_MISSED: "0x60 1x10 2x49"},
            {_MISSED: "0x30 2x89", _TAKEN: "0+9x120"},
            {_MISSED: "0x20 1x29 2x29 3x40", _BY_WEBHOOK: "0x30 1x90"},  # late at times, but they come
        ),
        (
            {_MISSED: "0x20 1x29 2x29 3x40"},  # never three within an hour
            {_MISSED: "0x20 1x29 2x29 3x40", _BY_POLLER: "0x21 1x29 2x29 3x39", _TAKEN: "0+9x120"},
            {_MISSED: "0+1x120", _BY_WEBHOOK: "0+1x120"},  # some come; many do not
        ),
    ),
    "GitlabSyncWebhooksUnauthorized": Case(
        {_UNAUTHORIZED: "0+60x120"},
        (
            {_UNAUTHORIZED: "0+3x120", _ACCEPTED: "0+60x120"},  # a stranger, below what is a flood
            {_UNAUTHORIZED: "0x60 40x60", _ACCEPTED: "0x30 1800x90"},
            {_UNAUTHORIZED: "0x20 2x100"},
            {_UNAUTHORIZED: "0x20 4x14 4x86", _ACCEPTED: "0x34 2040x86"},  # mended in good time
            {_TAKEN: "0+600x120"},
        ),
        (
            {_UNAUTHORIZED: "0x20 4x100"},  # one batch, then GitLab pauses the webhook
            {
                _UNAUTHORIZED: "0x20 4x100",
                _ACCEPTED: "-7200x120",
            },  # what came before the change of the secret
            {_UNAUTHORIZED: "0+60x120", _ACCEPTED: "0+60x120"},  # a flood beside what is GitLab's
        ),
    ),
    "GitlabSyncGitlabErrors": Case(
        {_OK: "0+6x120", _AWAY: "0+3x120"},
        ({_OK: "0+8x120", _AWAY: "0+2x120"}, {_OK: "0+6x120", _AWAY: "0x50 30x69"}),
    ),
    "GitlabSyncDatabaseRetries": Case(
        {_RETRIES: "0+120x120"}, ({_RETRIES: "0+60x120"}, {_RETRIES: "0x50 900x69"})
    ),
    "GitlabSyncOutboxBacklog": _gauge("outbox_pending", "501x120", "500x120", "0x50 900x14 0x55"),
    "GitlabSyncNotificationsGivenUp": _gauge("outbox_dead", "1x120", "0x120", "1x4 0x115"),
    "GitlabSyncExpiryRefused": Case(
        {_REFUSED: "0x60 1x59"},  # the first refusal ever must fire, for the series begins at zero
        ({_ADMITTED: "0+1x120", _REFUSED: "0x120"}, {_REFUSED: "2x120"}),
    ),
    "GitlabSyncRacesLostOften": Case(
        {_LOST: "0+60x120", _BY_WEBHOOK: "0+1x120"},
        ({_LOST: "0+2x120", _BY_WEBHOOK: "0+1x120"}, {_LOST: "0x30 50x89", _BY_WEBHOOK: "0x120"}),
    ),
}
