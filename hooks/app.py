"""The ASGI application: route table, exception table, request ids, and the engine in the lifespan's state.

Never decides anything about a request or a batch. No background task: what outlives an answer is the
engine's.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import StrEnum
from functools import cache
from importlib import metadata
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware

from gitlab_sync.assembly import open_context
from gitlab_sync.service import Engine, Role
from gitlab_sync.settings import Need, Settings
from hooks.auth import TokenBook
from hooks.endpoints import EdgeState, Endpoint, Parts, routes_of
from hooks.engine_port import EnginePort
from hooks.limits import LastCatch, RequestIds
from hooks.problems import exception_handlers
from hooks.signature import WebhookSecrets
from hooks.table import ALL, PROBES, PUBLIC

DISTRIBUTION: Final = "gitlab-sync-service"


class Face(StrEnum):
    """Which paths an application serves: all, or one of two halves on addresses of their own."""

    ALL = "all"
    PUBLIC = "public"  # API and hooks
    MANAGEMENT = "management"  # probes and metrics


_ENDPOINTS: Final[Mapping[Face, tuple[Endpoint, ...]]] = {
    Face.ALL: ALL,
    Face.PUBLIC: PUBLIC,
    Face.MANAGEMENT: PROBES,
}


def create_app(settings: Settings) -> Starlette:
    """An application with an engine of its own: it answers, and looks at what webhooks point to."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[EdgeState]:
        stop = asyncio.Event()
        async with open_context(settings, Need.SERVE) as ctx:
            engine = Engine(ctx, [Role.HTTP])
            running = asyncio.create_task(engine.run(stop))
            try:
                yield _state(engine)
            finally:
                stop.set()
                await running

    return _application(lifespan, Face.ALL)


def create_app_for(engine: EnginePort, face: Face = Face.ALL) -> Starlette:
    """An application over an engine that somebody else starts and ends."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[EdgeState]:
        yield _state(engine)

    return _application(lifespan, face)


def _application(
    lifespan: Callable[[Starlette], AbstractAsyncContextManager[EdgeState]], face: Face
) -> Starlette:
    app = Starlette(
        routes=routes_of(_ENDPOINTS[face]),
        middleware=[Middleware(RequestIds), Middleware(LastCatch)],
        exception_handlers=exception_handlers(),
        lifespan=lifespan,
    )
    # A redirect would count as a delivered webhook.
    app.router.redirect_slashes = False
    return app


def _state(engine: EnginePort) -> EdgeState:
    settings = engine.ctx.settings
    return {
        "parts": Parts(
            engine=engine,
            tokens=TokenBook(settings.api_tokens),
            secrets=WebhookSecrets(settings.webhook_tokens, settings.webhook_signing_keys, now=time.time),
            document=_document,
        )
    }


@cache
def _document() -> bytes:
    """One for all applications of a process. No replica needs it to be ready."""
    from hooks.openapi import openapi_document  # noqa: PLC0415

    return json.dumps(openapi_document(ALL, metadata.version(DISTRIBUTION)), indent=1).encode()
