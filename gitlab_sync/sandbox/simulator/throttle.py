"""The rate limit of the authenticated API: a bucket of tokens for each user, off until it is switched on.

Refused calls had no effect. The bucket is refilled by simulated time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from email.utils import formatdate

from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.errors import ApiError


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class Throttle:
    """The limit and how much of it each user has left."""

    def __init__(self) -> None:
        self.enabled = False
        self.requests = 7200
        self.period_s = 3600
        self._buckets: dict[int, _Bucket] = {}

    def change(self, *, enabled: bool, requests: int, period_s: int) -> None:
        """Take new settings; every bucket is full again."""
        self.enabled, self.requests, self.period_s = enabled, max(1, requests), max(1, period_s)
        self._buckets.clear()

    def take(self, user: User, now: float) -> None:
        """Count one call; raises the 429 of a user who has used up the limit."""
        if not self.enabled:
            return
        rate = self.requests / self.period_s
        bucket = self._buckets.setdefault(user.id, _Bucket(self.requests, now))
        bucket.tokens = min(self.requests, bucket.tokens + (now - bucket.filled_at) * rate)
        bucket.filled_at = now
        if bucket.tokens < 1:
            raise self._refusal((1 - bucket.tokens) / rate, now)
        bucket.tokens -= 1

    def _refusal(self, wait_s: float, now: float) -> ApiError:
        whole_s = max(1, math.ceil(wait_s))
        headers = {
            "Content-Type": "text/plain",
            "Retry-After": str(whole_s),
            "RateLimit-Limit": str(self.requests),
            "RateLimit-Name": "throttle_authenticated_api",
            "RateLimit-Observed": str(self.requests + 1),
            "RateLimit-Remaining": "0",
            "RateLimit-Reset": str(int(now) + whole_s),
            "RateLimit-ResetTime": formatdate(now + whole_s, usegmt=True),
        }
        return ApiError(429, b"Retry later\n", headers)
