"""Merge trains, with a queue of one: the head of a target branch's train runs its pipeline, the others wait.

A car leaves the train without merging when its pipeline fails, its merge request is closed or taken back, or
somebody pushes to its source branch. All but the first are noticed when the train is looked at next: when a
car is added or listed, or a pipeline of the train ends.

Races considered:
A  the target moves while a train pipeline runs: the merge is made onto the target as it is then, or the car
   leaves the train with a conflict.
B  the train is listed while its first car merges and the lock is free: a car that merges is left alone.
"""

from __future__ import annotations

from enum import StrEnum

from gitlab_sync.sandbox.simulator.accounts import User
from gitlab_sync.sandbox.simulator.core import Simulator
from gitlab_sync.sandbox.simulator.errors import refused
from gitlab_sync.sandbox.simulator.mergeability import check_now, obstacle_apart_from_ci, pipeline_is_running
from gitlab_sync.sandbox.simulator.merging import MergeWish, merge_car, refuse_call
from gitlab_sync.sandbox.simulator.pipelines import start_train
from gitlab_sync.sandbox.simulator.state import MergeRequest, MrState, Project
from gitlab_sync.sandbox.simulator.train_cars import Car, CarStatus


class Boarding(StrEnum):
    """ON_TRAIN: the car is in the queue. SCHEDULED: it will be once the pipeline is green."""

    ON_TRAIN = "on_train"
    SCHEDULED = "scheduled"


def cars(sim: Simulator, project: Project) -> list[Car]:
    """Return the project's cars, those that have merged included, after throwing out what may not ride."""
    _step(sim, project)
    return list(project.cars)


def board(sim: Simulator, mr: MergeRequest, user: User, wish: MergeWish) -> Boarding:
    """Put a merge request on its target's train; raises the answer GitLab would give otherwise."""
    if not mr.project.settings["merge_trains_enabled"]:
        raise refused(403, "403 Forbidden")  # status unverified
    refuse_call(mr, user, wish)
    check_now(mr)
    if mr.state is not MrState.OPENED or obstacle_apart_from_ci(mr) is not None:
        raise refused(400, "Failed to merge")  # wording unverified
    if pipeline_is_running(mr) and wish.auto_merge:
        mr.auto_merge_by, mr.on_train = user, True
        _wait_for_green(sim, mr, user, wish)
        return Boarding.SCHEDULED
    _add(sim, mr, user, wish)
    return Boarding.ON_TRAIN


def _wait_for_green(sim: Simulator, mr: MergeRequest, user: User, wish: MergeWish) -> None:
    pipeline, head = mr.head_pipeline, mr.head_sha

    def ended(status: str) -> None:
        if status == "success" and mr.auto_merge_by is user and mr.head_sha == head:
            _add(sim, mr, user, wish)

    if pipeline is not None:
        pipeline.when_ended = ended


def _add(sim: Simulator, mr: MergeRequest, user: User, wish: MergeWish) -> None:
    if any(car.mr is mr and car.riding for car in mr.project.cars):
        return
    now, number = sim.clock.now(), sim.world.number("train_car")
    mr.auto_merge_by, mr.on_train = user, True
    mr.project.cars.append(Car(number, mr, user, mr.head_sha, wish, now, now))
    _step(sim, mr.project)


def _step(sim: Simulator, project: Project) -> None:
    """Throw out what may not ride any more, and start the pipeline of each target's first car."""
    cars = project.cars
    for car in [car for car in cars if car.riding and car.status is not CarStatus.MERGING]:
        if not _may_ride(car):
            _leave(car)
    heads: dict[str, Car] = {}
    for car in cars:
        if car.riding:
            heads.setdefault(car.mr.target_branch, car)
    for car in heads.values():
        if car.status is CarStatus.IDLE:
            _depart(sim, car)


def _depart(sim: Simulator, car: Car) -> None:
    car.status, car.updated_at = CarStatus.FRESH, sim.clock.now()
    car.pipeline = start_train(sim, car.mr, car.user, lambda status: _arrived(sim, car, status))
    if car.pipeline is None:
        _leave(car)


def _arrived(sim: Simulator, car: Car, status: str) -> None:
    if car.status is not CarStatus.FRESH or not _may_ride(car):
        _step(sim, car.mr.project)
        return
    if status != "success":
        _leave(car)
    else:
        car.status = CarStatus.MERGING
        car.mr.on_train = False
        merge_car(sim, car.mr, car.user, car.wish)
        if car.mr.state is MrState.MERGED:
            car.status, car.merged_at = CarStatus.MERGED, sim.clock.now()
            car.updated_at = car.merged_at
        else:
            _leave(car)
    _step(sim, car.mr.project)


def _leave(car: Car) -> None:
    """Take a car off the train; its merge request stays as it is, and no event tells of it."""
    car.mr.project.cars.remove(car)
    car.mr.on_train = False
    if car.mr.state is MrState.OPENED:
        car.mr.auto_merge_by = None


def _may_ride(car: Car) -> bool:
    known = car.mr.iid in car.mr.project.merge_requests
    wanted = car.mr.auto_merge_by is car.user and car.mr.head_sha == car.head_sha
    return known and wanted and car.mr.state is MrState.OPENED
