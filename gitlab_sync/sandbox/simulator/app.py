"""The simulator as a Starlette app: one literal list of routes, and the layers around it.

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

from gitlab_sync.sandbox.simulator import (
    api_branches,
    api_commits,
    api_files,
    api_hooks,
    api_merge_requests,
    api_pipelines,
    api_projects,
    control_api,
)
from gitlab_sync.sandbox.simulator.config import SimConfig
from gitlab_sync.sandbox.simulator.control_api import OrderHandler, control_endpoint
from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.faults import CONTROL_PREFIX, Cutter, Faults
from gitlab_sync.sandbox.simulator.http_edge import Handler, RawPath, api_endpoint

API_PREFIX = "/api/v4"
_MRS, _MR = "/projects/{id}/merge_requests", "/projects/{id}/merge_requests/{iid}"
_REPO, _HOOK = "/projects/{id}/repository", "/projects/{id}/hooks/{hook_id}"
_COMMIT, _FILE = _REPO + "/commits/{sha}", _REPO + "/files/{file_path}"

API_ROUTES: list[tuple[str, str, Handler]] = [
    ("GET", "/version", api_projects.version),
    ("GET", "/metadata", api_projects.metadata),
    ("GET", "/user", api_projects.current_user),
    ("GET", "/projects", api_projects.list_projects),
    ("POST", "/projects", api_projects.create_project),
    ("GET", "/projects/{id}", api_projects.get_project),
    ("PUT", "/projects/{id}", api_projects.update_project),
    ("DELETE", "/projects/{id}", api_projects.delete_project),
    ("GET", _REPO + "/branches", api_branches.list_branches),
    ("POST", _REPO + "/branches", api_branches.create_branch),
    ("GET", _REPO + "/branches/{branch}", api_branches.get_branch),
    ("DELETE", _REPO + "/branches/{branch}", api_branches.delete_branch),
    ("GET", "/projects/{id}/protected_branches", api_branches.list_protected),
    ("POST", "/projects/{id}/protected_branches", api_branches.protect),
    ("GET", "/projects/{id}/protected_branches/{name}", api_branches.get_protected),
    ("PATCH", "/projects/{id}/protected_branches/{name}", api_branches.change_protection),
    ("DELETE", "/projects/{id}/protected_branches/{name}", api_branches.unprotect),
    ("GET", _FILE, api_files.get_file),
    ("GET", _FILE + "/raw", api_files.raw_file),
    ("POST", _FILE, api_files.create_file),
    ("PUT", _FILE, api_files.update_file),
    ("DELETE", _FILE, api_files.delete_file),
    ("GET", _REPO + "/tree", api_files.list_tree),
    ("GET", _REPO + "/compare", api_commits.compare),
    ("GET", _REPO + "/merge_base", api_commits.merge_base),
    ("GET", _REPO + "/commits", api_commits.list_commits),
    ("POST", _REPO + "/commits", api_commits.create_commit),
    ("GET", _COMMIT, api_commits.get_commit),
    ("GET", _COMMIT + "/diff", api_commits.commit_diff),
    ("GET", _COMMIT + "/refs", api_commits.commit_refs),
    ("GET", _COMMIT + "/merge_requests", api_commits.commit_merge_requests),
    ("GET", _MRS, api_merge_requests.list_merge_requests),
    ("POST", _MRS, api_merge_requests.create_merge_request),
    ("GET", _MR, api_merge_requests.get_merge_request),
    ("PUT", _MR, api_merge_requests.update_merge_request),
    ("DELETE", _MR, api_merge_requests.delete_merge_request),
    ("PUT", _MR + "/merge", api_merge_requests.merge_merge_request),
    ("PUT", _MR + "/rebase", api_merge_requests.rebase),
    ("POST", _MR + "/cancel_merge_when_pipeline_succeeds", api_merge_requests.cancel_auto_merge),
    ("GET", _MR + "/pipelines", api_merge_requests.merge_request_pipelines),
    ("GET", _MR + "/commits", api_merge_requests.merge_request_commits),
    ("GET", _MR + "/diffs", api_merge_requests.merge_request_diffs),
    ("GET", _MR + "/changes", api_merge_requests.merge_request_changes),
    ("GET", _MR + "/participants", api_merge_requests.merge_request_participants),
    ("GET", _MR + "/merge_ref", api_merge_requests.merge_ref),
    ("GET", "/projects/{id}/pipelines", api_pipelines.list_pipelines),
    ("GET", "/projects/{id}/pipelines/{pipeline_id}", api_pipelines.get_pipeline),
    ("GET", "/projects/{id}/hooks", api_hooks.list_hooks),
    ("POST", "/projects/{id}/hooks", api_hooks.create_hook),
    ("GET", _HOOK, api_hooks.get_hook),
    ("PUT", _HOOK, api_hooks.update_hook),
    ("DELETE", _HOOK, api_hooks.delete_hook),
    ("POST", _HOOK + "/test/{trigger}", api_hooks.test_hook),
    ("GET", _HOOK + "/events", api_hooks.list_events),
    ("POST", _HOOK + "/events/{event_id}/resend", api_hooks.resend_event),
]

CONTROL_ROUTES: list[tuple[str, str, OrderHandler]] = [
    ("POST", "/users", control_api.add_user),
    ("POST", "/tokens", control_api.add_token),
    ("POST", "/tokens/revoke", control_api.revoke_token),
    ("POST", "/timings", control_api.set_timings),
    ("POST", "/projects", control_api.add_project),
    ("POST", "/projects/{id}/role", control_api.set_role),
    ("POST", "/projects/{id}/plan", control_api.set_plan),
    ("POST", "/projects/{id}/push", control_api.push),
    ("POST", "/projects/{id}/branches/delete", control_api.remove_branch),
    ("POST", "/projects/{id}/pipelines/{pipeline_id}", control_api.set_pipeline),
    ("POST", "/projects/{id}/merge_requests/{iid}/merge", control_api.merge),
    ("POST", "/projects/{id}/merge_requests/{iid}/close", control_api.close_mr),
    ("POST", "/projects/{id}/merge_requests/{iid}/reopen", control_api.reopen_mr),
    ("POST", "/projects/{id}/merge_requests/{iid}/delete", control_api.delete_mr),
    ("POST", "/projects/{id}/merge_requests/{iid}/stick", control_api.stick_mr),
    ("GET", "/projects/{id}/files", control_api.read_files),
    ("GET", "/projects/{id}/log", control_api.read_log),
    ("GET", "/faults", control_api.list_faults),
    ("POST", "/faults", control_api.add_fault),
    ("DELETE", "/faults", control_api.clear_faults),
    ("GET", "/hook_faults", control_api.list_hook_faults),
    ("POST", "/hook_faults", control_api.add_hook_fault),
    ("DELETE", "/hook_faults", control_api.clear_hook_faults),
    ("GET", "/deliveries", control_api.list_deliveries),
    ("POST", "/deliveries/wait", control_api.await_deliveries),
    ("POST", "/clock/advance", control_api.advance_clock),
    ("GET", "/audit", control_api.audit),
]


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
            Middleware(Faults, rules=sim.api_faults, cutter=cutter or NoCutter()),
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
