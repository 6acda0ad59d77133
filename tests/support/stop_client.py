"""A client of a flow over HTTP, as portals and GitLab are: it repeats what got no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import httpx2

from gitlab_sync.model import NewRequest
from tests.support.crash_flows import Flow, requests_of
from tests.support.crash_stage import Stage
from tests.support.stop_replica import HOOK_TOKEN, PORTAL

CALLS: Final[dict[Flow, tuple[str, ...]]] = {
    Flow.APPROVE: ("submit", "approve"),
    Flow.HOOKED: ("submit", "hook"),
}
BEARER: Final = {"Authorization": f"Bearer {PORTAL}"}
_AGAIN_S: Final = 0.05
_TAKEN: Final = (200, 201, 202)


class Client:
    """Makes the calls of a flow; `acknowledged` are those that were answered as done."""

    def __init__(self, flow: Flow, stage: Stage) -> None:
        self.acknowledged: list[str] = []
        self.answers: list[int] = []
        self._flow = flow
        self._stage = stage
        self._make = {"submit": self._submit, "approve": self._approve, "hook": self._hook}

    async def call(self, url: str, has_gone: Callable[[], bool] = lambda: False) -> None:
        """Make the calls that were not acknowledged yet, until each is, or the replica has gone."""
        # A connection for each call: what a stop does to kept ones has tests of its own.
        limits = httpx2.Limits(max_keepalive_connections=0)
        async with httpx2.AsyncClient(
            base_url=url, limits=limits, timeout=30, trust_env=False, verify=False
        ) as client:
            for call in CALLS.get(self._flow, ("submit",)):
                while call not in self.acknowledged and not has_gone():
                    if await self._is_taken(call, client):
                        self.acknowledged.append(call)
                    else:
                        await asyncio.sleep(_AGAIN_S)

    async def _is_taken(self, call: str, client: httpx2.AsyncClient) -> bool:
        try:
            return await self._make[call](client)
        except httpx2.TransportError:
            return False

    async def _submit(self, client: httpx2.AsyncClient) -> bool:
        bodies = [_body(request) for request in requests_of(self._flow)]
        headers = {"Idempotency-Key": "key-of-the-client"}
        return self._note(await client.post("/api/v1/requests", json=bodies, headers=headers | BEARER))

    async def _approve(self, client: httpx2.AsyncClient) -> bool:
        taken = True
        for request in requests_of(self._flow):
            path = f"/api/v1/requests/{request.operation_id}/approve"
            answer = await client.post(path, json={"version": 1}, headers=BEARER)
            # Stale: by the call before, which was not answered.
            taken = (self._note(answer) or answer.status_code == 409) and taken
        return taken

    async def _hook(self, client: httpx2.AsyncClient) -> bool:
        found = self._stage.run("SELECT project_id, mr_iid FROM merge_batch WHERE mr_iid IS NOT NULL")
        if not found:
            return False
        (project_id, iid), *_ = found
        body = {
            "object_kind": "merge_request",
            "object_attributes": {"target_project_id": project_id, "iid": iid},
        }
        headers = {
            "X-Gitlab-Token": HOOK_TOKEN,
            "X-Gitlab-Event": "Merge Request Hook",
            "Idempotency-Key": "delivery-1",
        }
        return self._note(await client.post("/hooks/gitlab", json=body, headers=headers))

    def _note(self, answer: httpx2.Response) -> bool:
        self.answers.append(answer.status_code)
        assert answer.status_code not in (400, 401, 403, 404, 422), answer.text
        return answer.status_code in _TAKEN


def _body(request: NewRequest) -> dict[str, Any]:
    return {
        "operation_id": str(request.operation_id),
        "partition": request.partition,
        "subject": request.subject,
        "target": request.target,
        "action": request.action.name.lower(),
        "edits": list(request.edits),
        "title": request.title,
        "requested_by": request.requested_by,
    }
