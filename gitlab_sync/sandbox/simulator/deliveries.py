"""Sends hook events in the background: at most once, by several workers, so without any order.

The payload is frozen when the event is queued; headers, signature and the disabled check belong to the
moment of sending. No retry, ever: a failure is counted against the hook, and a hook that keeps failing is
paused, then ended.

Races considered:
A  two workers fail the same hook at once: the counter moves under the lock, both failures count.
B  a hook is deleted while its delivery is queued: the delivery is dropped, as GitLab drops the job.
C  the simulator stops during a delivery: the worker ends after the request in flight.
"""

from __future__ import annotations

import queue
import ssl
import threading
import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import httpx2

from gitlab_sync.sandbox.simulator.clock import Clock
from gitlab_sync.sandbox.simulator.config import HookDisabling, SimConfig
from gitlab_sync.sandbox.simulator.hook_faults import HookMishap, HookRule
from gitlab_sync.sandbox.simulator.hook_spoiling import encode, spoiled
from gitlab_sync.sandbox.simulator.profile import profile_of
from gitlab_sync.sandbox.simulator.signing import signature
from gitlab_sync.sandbox.simulator.state import Hook

FAILURES_TOLERATED = 3
FAILURES_FOR_GOOD = 40
FIRST_PAUSE_S = 60.0
LONGEST_PAUSE_S = 86_400.0
OLD_TIMESTAMP_S = 3_600
LONGEST_HOLD_S = 60.0
_EVENT_NAMES = {"merge_request": "Merge Request Hook", "pipeline": "Pipeline Hook"}
_TRIGGERS = {"merge_request": "merge_request_hooks", "pipeline": "pipeline_hooks"}


class Outcome(StrEnum):
    """What became of an event; only QUEUED is not final."""

    QUEUED = "queued"
    DELIVERED = "delivered"
    FAILED = "failed"
    DROPPED_BY_FAULT = "dropped_by_fault"
    DROPPED_HOOK_DISABLED = "dropped_hook_disabled"
    DROPPED_HOOK_GONE = "dropped_hook_gone"


class Urgency(StrEnum):
    """Whether a paused hook is tried nevertheless, as test deliveries are."""

    NORMAL = "normal"
    TEST = "test"


@dataclass(slots=True)
class Delivery:
    """One attempt to hand one event to one hook."""

    id: int
    hook: Hook
    kind: str
    action: str | None
    iid: int | None
    body: bytes
    key: str
    queued_at: float
    urgency: Urgency = Urgency.NORMAL
    mishap: HookMishap | None = None
    outcome: Outcome = Outcome.QUEUED
    copy_of: int | None = None
    sent_at: float | None = None
    duration_s: float = 0.0
    request_headers: dict[str, str] = field(default_factory=dict)
    status: str = ""
    response_headers: dict[str, str] = field(default_factory=dict)
    response_body: str = ""

    @property
    def final(self) -> bool:
        return self.outcome is not Outcome.QUEUED

    @property
    def trigger(self) -> str:
        return _TRIGGERS[self.kind]


class Deliveries:
    """The background queue with its workers, its log and its fault rules."""

    def __init__(self, config: SimConfig, clock: Clock, instance_url: str) -> None:
        self.log: list[Delivery] = []
        self.rules: list[HookRule] = []
        self.instance_url = instance_url
        self._stopping = False
        self._held: list[Delivery] = []
        self._config = config
        self._profile = profile_of(config.version)
        self._clock = clock
        self._queue: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        names = [f"simulator-hook-{number}" for number in range(config.hook_workers)]
        self._workers = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]

    def start(self) -> None:
        for worker in self._workers:
            worker.start()

    def stop(self) -> None:
        self._stopping = True
        for _ in self._workers:
            self._queue.put(None)
        for worker in self._workers:
            if worker.is_alive():
                worker.join()

    @property
    def pending(self) -> int:
        return sum(not delivery.final for delivery in self.log)

    def enqueue(self, hook: Hook, kind: str, payload: dict[str, Any], delay_s: float) -> None:
        """Freeze the payload and queue it for one hook, through the fault rules."""
        attributes = payload.get("object_attributes", {})
        action = attributes.get("action") or attributes.get("status")
        iid = (
            attributes.get("iid")
            if kind == "merge_request"
            else (payload.get("merge_request") or {}).get("iid")
        )
        rule = next((rule for rule in self.rules if rule.hits(hook.id, kind, action)), None)
        first = self._record(hook, kind, encode(payload), action=action, iid=iid)
        if rule is not None:
            self._apply(rule, first)
            delay_s += rule.delay_s
        if first.mishap is HookMishap.REORDER:
            self._hold(first, delay_s or LONGEST_HOLD_S)
        elif not first.final:
            self._send_after(delay_s, first)

    def send_now(self, hook: Hook, kind: str, body: bytes, *, key: str | None, urgency: Urgency) -> Delivery:
        """Queue a test delivery or a resend; wait for it with the clock."""
        delivery = self._record(hook, kind, body, action=None, iid=None)
        delivery.key = key or delivery.key
        delivery.urgency = urgency
        self._queue.put(delivery)
        return delivery

    def _record(self, hook: Hook, kind: str, body: bytes, *, action: str | None, iid: int | None) -> Delivery:
        number = len(self.log) + 1
        delivery = Delivery(number, hook, kind, action, iid, body, str(uuid.uuid4()), self._clock.now())
        self.log.append(delivery)
        return delivery

    def _apply(self, rule: HookRule, delivery: Delivery) -> None:
        delivery.mishap = rule.mishap
        if rule.mishap is HookMishap.DROP:
            delivery.outcome = Outcome.DROPPED_BY_FAULT
        elif rule.mishap in (HookMishap.DUPLICATE_SAME_KEY, HookMishap.DUPLICATE_NEW_KEY):
            twin = self._record(
                delivery.hook, delivery.kind, delivery.body, action=delivery.action, iid=delivery.iid
            )
            twin.copy_of = delivery.id
            if rule.mishap is HookMishap.DUPLICATE_SAME_KEY:
                twin.key = delivery.key
            self._send_after(rule.delay_s, twin)
        else:
            delivery.body = spoiled(rule.mishap, delivery.body)

    def _hold(self, delivery: Delivery, longest_s: float) -> None:
        """Keep it until the next delivery of its hook has ended, or some simulated seconds."""
        self._held.append(delivery)
        self._clock.after(longest_s, lambda: self._release(delivery.hook))

    def _release(self, hook: Hook) -> None:
        for delivery in [delivery for delivery in self._held if delivery.hook is hook]:
            self._held.remove(delivery)
            self._queue.put(delivery)

    def _send_after(self, delay_s: float, delivery: Delivery) -> None:
        if delay_s > 0:
            self._clock.after(delay_s, lambda: self._queue.put(delivery))
        else:
            self._queue.put(delivery)

    def _work(self) -> None:
        timeout_s = self._config.hook_timeout_s
        with httpx2.Client(
            timeout=timeout_s, trust_env=False, follow_redirects=False, verify=loopback_only()
        ) as client:
            while (delivery := self._queue.get()) is not None and not self._stopping:
                self._deliver(client, delivery)

    def _deliver(self, client: httpx2.Client, delivery: Delivery) -> None:
        hook = delivery.hook
        with self._clock.lock:
            if hook.id not in hook.project.hooks:
                self._finish(delivery, Outcome.DROPPED_HOOK_GONE)
                return
            if delivery.urgency is Urgency.NORMAL and self.paused(hook):
                self._finish(delivery, Outcome.DROPPED_HOOK_DISABLED)
                return
            delivery.sent_at = self._clock.now()
            delivery.request_headers = self._headers(delivery)
        response = _post(client, delivery)
        with self._clock.lock:
            delivery.duration_s = self._clock.now() - delivery.sent_at
            outcome = _note_response(delivery, response)
            self._count(hook, outcome, delivery.status)
            self._finish(delivery, outcome)

    def _finish(self, delivery: Delivery, outcome: Outcome) -> None:
        delivery.outcome = outcome
        self._release(delivery.hook)
        self._clock.changed()

    def paused(self, hook: Hook) -> bool:
        """Say whether normal deliveries to the hook are dropped at this moment."""
        return hook.disabled_for_good or (hook.disabled_until or 0.0) > self._clock.now()

    def _count(self, hook: Hook, outcome: Outcome, status: str) -> None:
        if outcome is Outcome.DELIVERED:
            hook.failures, hook.disabled_until, hook.disabled_for_good = 0, None, False
            return
        hook.failures += 1
        if self._config.hook_disabling is HookDisabling.OFF or hook.failures <= FAILURES_TOLERATED:
            return
        blamed = self._profile.client_errors_end_a_hook and status.startswith("4")
        hook.disabled_for_good = hook.failures >= FAILURES_FOR_GOOD or blamed
        doublings = min(hook.failures - FAILURES_TOLERATED - 1, 16)
        hook.disabled_until = self._clock.now() + min(FIRST_PAUSE_S * 2**doublings, LONGEST_PAUSE_S)

    def _headers(self, delivery: Delivery) -> dict[str, str]:
        hook = delivery.hook
        headers = {
            **hook.custom_headers,
            "Content-Type": "application/json",
            "User-Agent": f"GitLab/{self._config.version}",
            "X-Gitlab-Event": _event_name(delivery),
            "X-Gitlab-Webhook-UUID": str(uuid.uuid4()),
            "X-Gitlab-Instance": self.instance_url,
            "X-Gitlab-Event-UUID": str(uuid.uuid4()),
        }
        if self._profile.idempotency_key:
            headers["Idempotency-Key"] = delivery.key
        if hook.token:
            wrong = delivery.mishap is HookMishap.WRONG_TOKEN
            headers["X-Gitlab-Token"] = "not-the-token" if wrong else hook.token.replace("\n", "")
        if hook.signing_token:
            headers |= self._signed(delivery)
        return headers

    def _signed(self, delivery: Delivery) -> dict[str, str]:
        stamp = int(self._clock.now())
        if delivery.mishap is HookMishap.OLD_TIMESTAMP:
            stamp -= OLD_TIMESTAMP_S
        body = delivery.body + (b" " if delivery.mishap is HookMishap.BAD_SIGNATURE else b"")
        signed = signature(delivery.hook.signing_token, delivery.key, stamp, body)
        return {"webhook-id": delivery.key, "webhook-timestamp": str(stamp), "webhook-signature": signed}


def _event_name(delivery: Delivery) -> str:
    return "System Hook" if delivery.mishap is HookMishap.SYSTEM_HOOK else _EVENT_NAMES[delivery.kind]


def loopback_only() -> ssl.SSLContext:
    """Return a TLS context that trusts nobody: hooks go to plain HTTP on loopback; loading CAs is slow."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _post(client: httpx2.Client, delivery: Delivery) -> httpx2.Response | Exception:
    try:
        return client.post(delivery.hook.url, content=delivery.body, headers=delivery.request_headers)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        return error


def _note_response(delivery: Delivery, response: httpx2.Response | Exception) -> Outcome:
    if isinstance(response, Exception):
        delivery.status, delivery.response_body = "internal error", f"{type(response).__name__}: {response}"
        return Outcome.FAILED
    delivery.status = str(response.status_code)
    delivery.response_headers = dict(list(response.headers.items())[:50])
    delivery.response_body = response.text[:8192]
    return Outcome.DELIVERED if 200 <= response.status_code < 400 else Outcome.FAILED
