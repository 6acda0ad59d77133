"""Probes and metrics: is the process alive, should it get traffic, what has it counted. Open to everybody.

`/livez` asks nothing of anybody, `/readyz` tells what the loops have seen lately (schema, database,
draining) without asking the database itself. GitLab being away is never a reason to be unready.
"""

from __future__ import annotations

import asyncio

from starlette.responses import JSONResponse, Response

from gitlab_sync.units import current
from hooks.endpoints import EdgeRequest


async def livez(_request: EdgeRequest) -> Response:
    """200 as long as the event loop turns."""
    current().quiet()
    return JSONResponse({"status": "alive"})


async def readyz(request: EdgeRequest) -> Response:
    """200 when this replica should get traffic; 503 names what is missing."""
    readiness = request.state["parts"].engine.ready()
    if readiness.is_ready:
        current().quiet()
    checks = {check.name: check.problem or "ok" for check in readiness.checks}
    body = {"status": "ready" if readiness.is_ready else "unready", "checks": checks}
    return JSONResponse(body, 200 if readiness.is_ready else 503)


async def metrics(request: EdgeRequest) -> Response:
    """The exposition that the scraper's Accept header asks for."""
    current().quiet()
    accept = request.headers.get("accept", "")
    engine = request.state["parts"].engine
    await engine.refresh_gauges()
    content, content_type = engine.ctx.metrics.render(accept)
    return Response(content, headers={"Content-Type": content_type})


async def openapi(request: EdgeRequest) -> Response:
    """The document of what is served here; made when somebody asks for it first, and not on the loop."""
    document = await asyncio.to_thread(request.state["parts"].document)
    return Response(document, media_type="application/json")
