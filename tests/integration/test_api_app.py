"""The application factory: an engine of its own, from settings alone, on a real server and database."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2

from gitlab_sync.settings import PREFIX, load_settings
from hooks.app import create_app
from hooks.server import Listening, serve
from tests.support.api import VARIABLES, body
from tests.support.edge import ALL_SCOPES, bearer

PARTITIONS = "partitions: {access-prod: {project: 1, target_branch: main}}\n"


async def test_an_application_made_from_settings_serves_and_ends_its_engine(
    database_url: str, tmp_path: Path
) -> None:
    """Ready, takes a request although GitLab is away, counts it, and stops clean."""
    (tmp_path / "partitions.yaml").write_text(PARTITIONS)
    values = {
        **VARIABLES,
        "DATABASE_URL": database_url,
        "GITLAB_URL": "http://127.0.0.1:9",
        "GITLAB_TOKEN": "token-for-tests",
        "PARTITIONS": str(tmp_path / "partitions.yaml"),
        "LISTEN": "127.0.0.1:0",
    }
    settings = load_settings({PREFIX + name: value for name, value in values.items()})
    stop, listening = asyncio.Event(), Listening()
    serving = asyncio.create_task(serve(create_app(settings), settings.listen, stop, listening=listening))
    async with asyncio.timeout(30):
        await listening.started.wait()
        async with httpx2.AsyncClient(base_url=f"http://{listening.address}", trust_env=False) as client:
            assert (await client.get("/readyz")).json()["status"] == "ready"
            answer = await client.post("/api/v1/requests", json=body(), headers=bearer(ALL_SCOPES))
            assert answer.status_code == 201
            metrics = (await client.get("/metrics")).text
        stop.set()
        await serving
    assert 'gitlab_sync_waiting_requests{partition="access-prod"} 1.0' in metrics
    assert 'gitlab_sync_requests_total{partition="access-prod",result="queued"} 1.0' in metrics
