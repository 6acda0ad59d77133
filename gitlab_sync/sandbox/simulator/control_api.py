"""The control plane: what a test or the demo tells the simulated instance to be and to do.

Its own prefix, its own token, never delayed or spoiled by fault rules. Bodies are JSON objects; unknown
members are refused by the record they fill, so a misspelt experiment does not run silently.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from gitlab_sync.sandbox.simulator import people
from gitlab_sync.sandbox.simulator.api_merge_requests import find
from gitlab_sync.sandbox.simulator.audit_report import audit_report, delivery_row, files_at, log_of
from gitlab_sync.sandbox.simulator.closing import close, delete_branch, reopen
from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.errors import ApiError, not_found, refused
from gitlab_sync.sandbox.simulator.faults import FaultKind, FaultPlace, FaultRule
from gitlab_sync.sandbox.simulator.git import GitFailed
from gitlab_sync.sandbox.simulator.hook_faults import HookMishap, HookRule
from gitlab_sync.sandbox.simulator.http_edge import Answer, respond
from gitlab_sync.sandbox.simulator.opening import delete
from gitlab_sync.sandbox.simulator.pipelines import NO_PIPELINE, STATUSES, set_status
from gitlab_sync.sandbox.simulator.state import MergeRequest, PipelinePlan, Project, Role, User

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


# -- setting the stage -----------------------------------------------------------------------------


def add_user(order: Order) -> Body:
    body = order.body
    token, scopes = body.pop("token", None), body.pop("scopes", ["api"])
    body["default_role"] = Role(body.pop("role", Role.NONE))
    user = order.sim.world.add_user(body.pop("username"), **body)
    if token:
        order.sim.add_token(token, user, scopes)
    return {"id": user.id, "username": user.username}


def add_token(order: Order) -> Body:
    user = order.user()
    order.sim.add_token(order.body["token"], user, order.body.get("scopes", ["api"]))
    return {"user_id": user.id}


def revoke_token(order: Order) -> None:
    token = order.sim.world.tokens.get(order.body["token"])
    if token is None:
        raise not_found("Token Not Found")
    token.revoked = bool(order.body.get("revoked", True))


def set_role(order: Order) -> None:
    order.user().roles[order.project().id] = Role(order.body["role"])


def add_project(order: Order) -> Body:
    body = order.body
    plan = body.pop("plan", None)
    owner = order.user()
    project = order.sim.add_project(body.pop("path"), owner=owner, plan=_plan(plan) if plan else None, **body)
    return {"id": project.id, "path": project.path, "head": project.repo.branch(project.default_branch)}


def set_plan(order: Order) -> None:
    order.project().plan = _plan(order.body)


def set_timings(order: Order) -> None:
    order.sim.timings = replace(order.sim.timings, **order.body)


def _plan(body: Body) -> PipelinePlan:
    plan = PipelinePlan(**body)
    unknown = set(plan.outcomes) - STATUSES - {NO_PIPELINE}
    if unknown or not plan.outcomes:
        raise refused(400, f"unknown outcomes: {sorted(unknown)}")
    return plan


# -- people ----------------------------------------------------------------------------------------


def push(order: Order) -> Body:
    user = order.user()
    return {"head": people.push(order.sim, order.project(), user, people.Push(**order.body))}


def merge(order: Order) -> Body:
    mr = order.merge_request()
    people.merge(order.sim, mr, order.user())
    return {"state": mr.state, "merge_commit_sha": mr.merge_commit_sha}


def close_mr(order: Order) -> Body:
    mr = order.merge_request()
    close(order.sim, mr, order.user())
    return {"state": mr.state}


def reopen_mr(order: Order) -> Body:
    mr = order.merge_request()
    reopen(order.sim, mr, order.user())
    return {"state": mr.state}


def delete_mr(order: Order) -> None:
    delete(order.merge_request())


def stick_mr(order: Order) -> None:
    people.stick_in_locked(order.sim, order.merge_request(), float(order.body.get("for_s", 3600)))


def remove_branch(order: Order) -> None:
    user = order.user()
    delete_branch(order.sim, order.project(), order.body["branch"], user)


def set_pipeline(order: Order) -> None:
    pipeline = order.project().pipelines.get(int(order.segments["pipeline_id"]))
    if pipeline is None:
        raise not_found("Pipeline Not Found")
    if order.body["status"] not in STATUSES:
        raise refused(400, "unknown status")
    set_status(order.sim, pipeline, order.body["status"])


# -- faults, time, witness -------------------------------------------------------------------------


def add_fault(order: Order) -> Body:
    body = {"seed": order.sim.config.seed, **order.body, "kind": FaultKind(order.body["kind"])}
    body["place"] = FaultPlace(body.get("place", FaultPlace.BEFORE))
    rule = FaultRule(order.sim.world.number("fault"), **body)
    order.sim.api_faults.append(rule)
    return rule.view()


def list_faults(order: Order) -> list[Body]:
    return [rule.view() for rule in order.sim.api_faults]


def clear_faults(order: Order) -> None:
    order.sim.api_faults.clear()


def add_hook_fault(order: Order) -> Body:
    body = {"seed": order.sim.config.seed, **order.body, "mishap": HookMishap(order.body["mishap"])}
    rule = HookRule(order.sim.world.number("hook_fault"), **body)
    order.sim.deliveries.rules.append(rule)
    return rule.view()


def list_hook_faults(order: Order) -> list[Body]:
    return [rule.view() for rule in order.sim.deliveries.rules]


def clear_hook_faults(order: Order) -> None:
    order.sim.deliveries.rules.clear()


def advance_clock(order: Order) -> Body:
    order.sim.clock.advance(float(order.body["seconds"]))
    return {"now": order.sim.clock.now()}


def list_deliveries(order: Order) -> list[Body]:
    return [delivery_row(delivery) for delivery in order.sim.deliveries.log]


def await_deliveries(order: Order) -> Body:
    """Wait until every queued event has been sent or dropped, delayed ones included."""
    limit_s = float(order.body.get("limit_s", 15))
    return {"settled": order.sim.clock.wait_for(lambda: order.sim.deliveries.pending == 0, limit_s)}


def audit(order: Order) -> Body:
    query = order.query
    return audit_report(
        order.sim, query.get("project"), files_ref=query.get("files"), log_ref=query.get("log")
    )


def read_files(order: Order) -> Body:
    project = order.project()
    return files_at(project, order.query.get("ref", project.default_branch))


def read_log(order: Order) -> list[Body]:
    project = order.project()
    return log_of(project, order.query.get("ref", project.default_branch))
