"""Orders that spoil things, move the clock, and ask the witness what it saw."""

from __future__ import annotations

from gitlab_sync.sandbox.simulator.audit_report import audit_report, delivery_row, files_at, log_of
from gitlab_sync.sandbox.simulator.control_api import Body, Order
from gitlab_sync.sandbox.simulator.crash_points import CrashPoint, CrashRule
from gitlab_sync.sandbox.simulator.faults import FaultKind, FaultPlace, FaultRule
from gitlab_sync.sandbox.simulator.hook_events import merge_request_changed
from gitlab_sync.sandbox.simulator.hook_faults import HookMishap, HookRule


def add_fault(order: Order) -> Body:
    body = {"seed": order.sim.config.seed, **order.body, "kind": FaultKind(order.body["kind"])}
    body["place"] = FaultPlace(body.get("place", FaultPlace.BEFORE))
    body["since"] = order.sim.clock.now()
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


def burst(order: Order) -> Body:
    """Queue the same `update` many times, as a loop of an integration does."""
    mr, count = order.merge_request(), int(order.body.get("count", 500))
    for _ in range(count):
        merge_request_changed(order.sim, mr, "update", order.sim.root_user)
    return {"queued": count}


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


def crash_merges(order: Order) -> Body:
    body = {**order.body, "point": CrashPoint(order.body["point"])}
    rule = CrashRule(order.sim.world.number("crash"), **body)
    order.sim.crash_rules.append(rule)
    return rule.view()
