"""Merge trains over the API: the cars of a project or a target branch, one car, and getting on."""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator import trains
from gitlab_sync.sandbox.simulator.accounts import Role
from gitlab_sync.sandbox.simulator.api_merging import wish_of
from gitlab_sync.sandbox.simulator.core import Simulator, iso
from gitlab_sync.sandbox.simulator.errors import not_found
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.mr_lookup import merge_request_of
from gitlab_sync.sandbox.simulator.mr_views import mr_simple
from gitlab_sync.sandbox.simulator.pipeline_views import pipeline_basic
from gitlab_sync.sandbox.simulator.train_cars import Car
from gitlab_sync.sandbox.simulator.trains import Boarding
from gitlab_sync.sandbox.simulator.user_views import user_basic


def list_cars(call: Call) -> Answer:
    return _page(call, trains.cars(call.sim, call.project()))


def list_cars_of_target(call: Call) -> Answer:
    target = call.segments["target_branch"]
    rows = [car for car in trains.cars(call.sim, call.project()) if car.mr.target_branch == target]
    return _page(call, rows)


def get_car(call: Call) -> Answer:
    return Answer(200, _view(call.sim, _car(call)))


def board(call: Call) -> Answer:
    """Add to the train now (201), or once the pipeline is green (202)."""
    mr = merge_request_of(call, Role.DEVELOPER)
    if (
        trains.board(call.sim, mr, call.user, wish_of(call, "auto_merge", "when_pipeline_succeeds"))
        is Boarding.SCHEDULED
    ):
        return Answer(202, [])
    return Answer(201, [_view(call.sim, car) for car in trains.cars(call.sim, mr.project) if car.mr is mr])


def _page(call: Call, rows: list[Car]) -> Answer:
    scope = call.params.text("scope")
    if scope in ("active", "complete"):
        rows = [car for car in rows if car.riding is (scope == "active")]
    if call.params.text("sort") != "asc":
        rows = rows[::-1]
    return page_of(call, rows, lambda car: _view(call.sim, car))


def _car(call: Call) -> Car:
    mr = merge_request_of(call)
    rows = [car for car in trains.cars(call.sim, mr.project) if car.mr is mr]
    if not rows:
        raise not_found()
    return rows[-1]


def _view(sim: Simulator, car: Car) -> dict[str, Any]:
    mr = car.mr
    duration = None if car.merged_at is None else round(car.merged_at - car.created_at)
    return {
        "id": car.id,
        "merge_request": mr_simple(sim, mr),
        "user": user_basic(sim, car.user),
        "pipeline": pipeline_basic(sim, car.pipeline) if car.pipeline else None,
        "created_at": iso(car.created_at),
        "updated_at": iso(car.updated_at),
        "target_branch": mr.target_branch,
        "status": car.status,
        "merged_at": iso(car.merged_at),
        "duration": duration,
    }
