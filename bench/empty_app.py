"""The least that answers on the same server and framework: what an idle replica is compared with.

Started as a script with a port; has one route and no database.
"""

from __future__ import annotations

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route


async def ready(_request: Request) -> PlainTextResponse:
    """Always."""
    return PlainTextResponse("ready")


if __name__ == "__main__":
    app = Starlette(routes=[Route("/readyz", ready)])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
