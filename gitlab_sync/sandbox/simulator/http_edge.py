"""The edge between Starlette and the rules: raw paths, tokens, parameters, answers, pages.

Handlers are plain functions from a `Call` to an `Answer`. They run in a thread, under the instance's
lock. Path segments are matched before they are decoded, so a project's path or a branch name is one
segment.
"""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gitlab_sync.sandbox.simulator.accounts import Role, Token, User
from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.errors import ApiError, forbidden, not_found
from gitlab_sync.sandbox.simulator.git import GitFailed
from gitlab_sync.sandbox.simulator.params import Params, read_params
from gitlab_sync.sandbox.simulator.rights import authenticate, project_for
from gitlab_sync.sandbox.simulator.state import Project

PER_PAGE = 20
MOST_PER_PAGE = 100
MOST_COUNTED_ROWS = 10_000
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated API call."""

    sim: Simulator
    user: User
    token: Token
    method: str
    path: str
    segments: Mapping[str, str]
    params: Params

    def project(self, needed: Role = Role.REPORTER) -> Project:
        """Return the project of the path if the user has at least this role in it."""
        reading = self.method in ("GET", "HEAD")
        return project_for(self.sim.world, self.segments["id"], self.user, needed, reading=reading)


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back; a body of bytes is sent as it is."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Call], Answer]


class RawPath:
    """ASGI middleware that routes on the path as it was sent, `%2F` and all."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": scope["raw_path"].decode("ascii")}
        await self.app(scope, receive, send)


def api_endpoint(sim: Simulator, template: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Wrap a handler: authenticate, read parameters, count the call, run under the lock, answer."""

    async def endpoint(request: Request) -> Response:
        body = await request.body()
        return await run_in_threadpool(_handle, sim, f"{request.method} {template}", handler, request, body)

    return endpoint


def page_of(call: Call, rows: list[Row], show: Callable[[Row], Any], *, counted: bool = True) -> Answer:
    """Cut one page out of the rows and say where the others are."""
    page = max(1, call.params.number("page", 1))
    size = min(MOST_PER_PAGE, max(1, call.params.number("per_page", PER_PAGE)))
    last = max(1, math.ceil(len(rows) / size))
    shown = rows[(page - 1) * size : page * size]
    headers = {"X-Page": str(page), "X-Per-Page": str(size), "X-Next-Page": "", "X-Prev-Page": ""}
    if page < last:
        headers["X-Next-Page"] = str(page + 1)
    if page > 1:
        headers["X-Prev-Page"] = str(page - 1)
    if counted and len(rows) <= MOST_COUNTED_ROWS:
        headers |= {"X-Total": str(len(rows)), "X-Total-Pages": str(last)}
    headers["Link"] = _links(call, page, size, last)
    return Answer(200, [show(row) for row in shown], headers)


def _links(call: Call, page: int, size: int, last: int) -> str:
    targets = {"first": 1, "last": last}
    if page > 1:
        targets["prev"] = page - 1
    if page < last:
        targets["next"] = page + 1
    return ", ".join(f'<{_page_url(call, number, size)}>; rel="{rel}"' for rel, number in targets.items())


def _page_url(call: Call, page: int, size: int) -> str:
    pairs: list[tuple[str, Any]] = []
    for name, value in (call.params.values | {"page": page, "per_page": size}).items():
        many = isinstance(value, list)
        pairs += [(f"{name}[]", item) for item in value] if many else [(name, value)]
    return f"{call.sim.base_url}{call.path}?{urlencode(pairs)}"


def _handle(sim: Simulator, route: str, handler: Handler, request: Request, body: bytes) -> Response:
    with sim.clock.lock:
        sim.audit.api_calls[route] += 1
        try:
            path = request.scope["path"]
            token = authenticate(sim.world, _secret(request), request.method, path)
            sim.throttle.take(token.user, sim.clock.now())
            params = read_params(request.url.query, request.headers.get("content-type", ""), body)
            segments = {name: unquote(value) for name, value in request.path_params.items()}
            user = _acting_user(sim, token, request, params)
            return respond(handler(Call(sim, user, token, request.method, path, segments, params)))
        except ApiError as error:
            return respond(Answer(error.status, error.body, error.headers))
        except GitFailed as error:
            return respond(Answer(400, {"message": str(error)}))
        except Exception:  # noqa: BLE001 - a bug of the simulator: answered as one, and kept for the audit
            sim.audit.failures.append(f"{route}\n{traceback.format_exc()}")
            return respond(Answer(500, {"message": "500 Internal Server Error"}))


def _acting_user(sim: Simulator, token: Token, request: Request, params: Params) -> User:
    """Return the token's user, or whom an administrator acts for by `sudo`."""
    name = request.headers.get("sudo") or params.text("sudo")
    if not name:
        return token.user
    if not token.user.is_admin:
        raise forbidden("Must be admin to use sudo")
    user = sim.world.users.get(int(name)) if name.isdigit() else sim.world.user(name)
    if user is None:
        raise not_found(f"User with ID or username '{name}' Not Found")
    return user


def respond(answer: Answer) -> Response:
    """Turn an answer into a response: JSON unless the body is bytes or nothing."""
    if answer.body is None or isinstance(answer.body, bytes):
        return Response(answer.body, answer.status, dict(answer.headers))
    content = json.dumps(answer.body, ensure_ascii=False).encode()
    return Response(content, answer.status, dict(answer.headers), media_type="application/json")


def _secret(request: Request) -> str | None:
    bearer = request.headers.get("authorization", "")
    if bearer.lower().startswith("bearer "):
        return bearer[7:].strip()
    return request.headers.get("private-token") or request.headers.get("job-token")
