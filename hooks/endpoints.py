"""How an endpoint is declared and called: its scope is checked before any body is read.

One `Endpoint` is one row of the route table: the router, the authentication and the OpenAPI document come
from it. Nothing here knows what an endpoint does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gitlab_sync.setting_values import Scope
from gitlab_sync.units import current
from hooks.auth import Caller, TokenBook, require
from hooks.engine_port import EnginePort
from hooks.problems import Kind
from hooks.signature import WebhookSecrets

MOST_UNPROVEN_BODIES: Final = 64


@dataclass(frozen=True, slots=True)
class Parts:
    """What the handlers share for the life of the application."""

    engine: EnginePort
    tokens: TokenBook
    secrets: WebhookSecrets
    document: Callable[[], bytes]
    """Makes the OpenAPI document; it takes a while the first time."""
    unproven_bodies: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MOST_UNPROVEN_BODIES)
    )
    """Places for bodies that nobody has vouched for yet: a signature is known only once the body is read."""


class EdgeState(TypedDict):
    """The lifespan's state as every request sees it."""

    parts: Parts


EdgeRequest = Request[EdgeState]


@dataclass(frozen=True, slots=True)
class Call:
    """One authorised call of the API."""

    request: EdgeRequest
    engine: EnginePort
    caller: Caller


Handler = Callable[[Call], Awaitable[Response]]
OpenHandler = Callable[[EdgeRequest], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or header as the OpenAPI document tells it."""

    name: str
    meaning: str
    place: str = "query"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path. `scope` None: open to everybody, or authenticated by its handler.

    `body` and the second halves of `answers` are types that pydantic can describe; None: no JSON.
    """

    method: str
    path: str
    name: str
    summary: str
    handler: Handler | OpenHandler
    scope: Scope | None = None
    body: Any = None
    parameters: tuple[Parameter, ...] = ()
    answers: Mapping[int, tuple[str, Any]] = field(default_factory=dict)
    problems: tuple[Kind, ...] = ()


def routes_of(endpoints: Sequence[Endpoint]) -> list[Route]:
    """One route for each path, so that a method that is not served is answered with all that are."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [Route(path, _dispatcher(methods), methods=list(methods)) for path, methods in by_path.items()]


def _dispatcher(methods: Mapping[str, Endpoint]) -> OpenHandler:
    async def dispatch(request: EdgeRequest) -> Response:
        endpoint = methods["GET" if request.method == "HEAD" else request.method]
        current().add(route=endpoint.path)
        handler: Any = endpoint.handler
        if endpoint.scope is None:
            answer: Response = await handler(request)
            return answer
        parts = request.state["parts"]
        caller = require(request, parts.tokens, endpoint.scope)
        current().add(actor=caller.name)
        guarded: Response = await handler(Call(request, parts.engine, caller))
        return guarded

    return dispatch
