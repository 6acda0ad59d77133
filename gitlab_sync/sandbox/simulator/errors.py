"""How the simulator says no: one exception that carries status, body and headers of the answer.

The texts are facts of GitLab's interface; those not verified against a real instance are marked where
they are raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """Ends a call with an error answer."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{status} {body}")
        self.status = status
        self.body = body
        self.headers = dict(headers or {})


def refused(status: int, message: Any) -> ApiError:
    """Return the usual `{"message": ...}` answer."""
    return ApiError(status, {"message": message})


def not_found(thing: str = "Not found") -> ApiError:
    return refused(404, f"404 {thing}")


def bad_request(reason: str) -> ApiError:
    return refused(400, f"400 Bad request - {reason}")


def missing(parameter: str) -> ApiError:
    """Return the answer of the parameter check."""
    return ApiError(400, {"error": f"{parameter} is missing"})


def forbidden(reason: str = "") -> ApiError:
    return refused(403, f"403 Forbidden - {reason}" if reason else "403 Forbidden")
