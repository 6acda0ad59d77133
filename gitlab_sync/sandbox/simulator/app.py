"""The simulator as a Starlette app: the routes and the layers around them.

From outside to inside: fault rules, raw-path routing, routes. Serve it with `serving`, which can also cut
connections.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from gitlab_sync.sandbox.simulator.config import SimConfig
from gitlab_sync.sandbox.simulator.control_api import control_endpoint
from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.faults import CONTROL_PREFIX, Cutter, Faults
from gitlab_sync.sandbox.simulator.http_edge import RawPath, api_endpoint
from gitlab_sync.sandbox.simulator.routes import API_PREFIX, API_ROUTES, CONTROL_ROUTES


class NoCutter:
    """Stands in where the app is served by something that cannot cut connections."""

    def cut(self, scope: Scope) -> None:
        del scope
        raise RuntimeError("serve the simulator with its own server to cut connections")


def create_app(
    config: SimConfig, *, cutter: Cutter | None = None, ready: Callable[[Simulator], None] | None = None
) -> Starlette:
    """Build the app; `ready` is called once the instance runs, before the first request is answered."""
    sim = Simulator(config)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sim.start()
        if ready is not None:
            ready(sim)
        try:
            yield
        finally:
            sim.stop()

    return Starlette(
        routes=_routes(sim),
        middleware=[
            Middleware(Faults, rules=sim.api_faults, cutter=cutter or NoCutter(), now=sim.clock.now),
            Middleware(RawPath),
        ],
        lifespan=lifespan,
        exception_handlers={404: _no_route, 405: _no_route},
    )


def _routes(sim: Simulator) -> list[Route]:
    api = [
        Route(API_PREFIX + template, api_endpoint(sim, template, handler), methods=[method])
        for method, template, handler in API_ROUTES
    ]
    control = [
        Route(CONTROL_PREFIX + template, control_endpoint(sim, handler), methods=[method])
        for method, template, handler in CONTROL_ROUTES
    ]
    return [*api, *control, Route("/-/health", _health, methods=["GET"])]


async def _health(_request: Request) -> Response:
    return PlainTextResponse("GitLab OK")


async def _no_route(_request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    text = "405 Not Allowed" if status == 405 else "404 Not Found"
    return JSONResponse({"error": text}, status_code=status)
