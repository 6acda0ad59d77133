"""The control plane: what a test or the demo tells the simulated instance to be and to do.

Its own prefix, its own token, never delayed or spoiled by fault rules. Bodies are JSON objects; unknown
members are refused by the record they fill, so a misspelt experiment does not run silently.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.errors import ApiError, not_found
from gitlab_sync.sandbox.simulator.git import GitFailed
from gitlab_sync.sandbox.simulator.http_edge import Answer, respond
from gitlab_sync.sandbox.simulator.mr_lookup import find
from gitlab_sync.sandbox.simulator.state import MergeRequest, Project

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Order:
    """One call of the control plane."""

    sim: Simulator
    segments: dict[str, str]
    body: Body
    query: dict[str, str]

    def project(self) -> Project:
        project = self.sim.world.project(self.segments["id"])
        if project is None:
            raise not_found("Project Not Found")
        return project

    def merge_request(self) -> MergeRequest:
        return find(self.project(), self.segments["iid"])

    def user(self) -> User:
        """Return the person named in the body, else root."""
        user = self.sim.world.user(self.body.pop("username", "root"))
        if user is None:
            raise not_found("User Not Found")
        return user


OrderHandler = Callable[[Order], Any]


def control_endpoint(sim: Simulator, handler: OrderHandler) -> Callable[[Request], Awaitable[Response]]:
    """Wrap a handler of the control plane: check its token, run it under the lock, answer with JSON."""

    async def endpoint(request: Request) -> Response:
        body = await request.body()
        return await run_in_threadpool(_handle, sim, handler, request, body)

    return endpoint


def _handle(sim: Simulator, handler: OrderHandler, request: Request, body: bytes) -> Response:
    if not hmac.compare_digest(
        request.headers.get("x-sim-token", "").encode(), sim.config.sim_token.encode()
    ):
        return respond(Answer(401, {"message": "wrong X-Sim-Token"}))
    segments = {name: unquote(value) for name, value in request.path_params.items()}
    with sim.clock.lock:
        try:
            order = Order(sim, segments, json.loads(body or b"{}"), dict(request.query_params))
            return respond(Answer(200, handler(order) or {}))
        except ApiError as error:
            return respond(Answer(error.status, error.body))
        except (GitFailed, TypeError, ValueError, KeyError) as error:
            return respond(Answer(400, {"message": f"{type(error).__name__}: {error}"}))
