"""Labels and milestones of a project, and the events that tell when a merge request got or lost one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gitlab_sync.sandbox.simulator.accounts import Role, User
from gitlab_sync.sandbox.simulator.core import Simulator, iso
from gitlab_sync.sandbox.simulator.errors import not_found, refused
from gitlab_sync.sandbox.simulator.history import ResourceEvent, ResourceKind
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.mr_lookup import merge_request_of
from gitlab_sync.sandbox.simulator.mr_views import milestone_view, mr_basic
from gitlab_sync.sandbox.simulator.state import Label, MergeRequest, Milestone
from gitlab_sync.sandbox.simulator.user_views import user_basic


def list_labels(call: Call) -> Answer:
    project = call.project()
    rows = sorted(project.labels.values(), key=lambda label: label.title)
    return page_of(call, rows, lambda label: _label_view(label, call.user))


def create_label(call: Call) -> Answer:
    project, params = call.project(Role.REPORTER), call.params
    name, color = params.required("name"), params.required("color")
    if name in project.labels:
        raise refused(409, "Label already exists")
    label = Label(
        call.sim.world.number("label"), name, call.sim.clock.now(), color, params.text("description")
    )
    project.labels[name] = label
    return Answer(201, _label_view(label, call.user))


def get_label(call: Call) -> Answer:
    return Answer(200, _label_view(_label(call), call.user))


def change_label(call: Call) -> Answer:
    """Change a label that the path names or, as older clients do, the parameters."""
    label, project, params = _label(call), call.project(), call.params
    label.color = params.text("color", label.color)
    label.description = params.text("description", label.description)
    new = params.text("new_name", label.title)
    if new != label.title:
        del project.labels[label.title]
        for mr in project.merge_requests.values():
            mr.labels = [new if title == label.title else title for title in mr.labels]
        label.title = new
        project.labels[new] = label
    return Answer(200, _label_view(label, call.user))


def delete_label(call: Call) -> Answer:
    label = _label(call)
    del call.project().labels[label.title]
    return Answer(204)


def subscribe(call: Call) -> Answer:
    label = _label(call)
    label.subscribers.add(call.user.id)
    return Answer(201, _label_view(label, call.user))


def unsubscribe(call: Call) -> Answer:
    label = _label(call)
    label.subscribers.discard(call.user.id)
    return Answer(201, _label_view(label, call.user))


def list_milestones(call: Call) -> Answer:
    rows = list(call.project().milestones.values())[::-1]
    return page_of(call, rows, lambda row: milestone_view(call.sim, row))


def create_milestone(call: Call) -> Answer:
    project, params = call.project(Role.REPORTER), call.params
    title = params.required("title")
    if title in {row.title for row in project.milestones.values()}:
        raise refused(400, {"title": ["has already been taken"]})
    number, now = call.sim.world.number("milestone"), call.sim.clock.now()
    row = Milestone(number, len(project.milestones) + 1, project, title, now, now)
    _take_milestone(call, row)
    project.milestones[number] = row
    return Answer(201, milestone_view(call.sim, row))


def get_milestone(call: Call) -> Answer:
    return Answer(200, milestone_view(call.sim, _milestone(call)))


def change_milestone(call: Call) -> Answer:
    row = _milestone(call)
    _take_milestone(call, row)
    row.updated_at = call.sim.clock.now()
    return Answer(200, milestone_view(call.sim, row))


def milestone_merge_requests(call: Call) -> Answer:
    row = _milestone(call)
    rows = [mr for mr in row.project.merge_requests.values() if mr.milestone is row]
    return page_of(call, rows, lambda mr: mr_basic(call.sim, mr))


def milestone_issues(call: Call) -> Answer:
    """There are no issues here."""
    _milestone(call)
    return page_of(call, list[str](), lambda row: row)


def list_state_events(call: Call) -> Answer:
    return _list_events(call, ResourceKind.STATE, _state_event)


def get_state_event(call: Call) -> Answer:
    return _get_event(call, ResourceKind.STATE, _state_event)


def list_label_events(call: Call) -> Answer:
    return _list_events(call, ResourceKind.LABEL, _label_event)


def get_label_event(call: Call) -> Answer:
    return _get_event(call, ResourceKind.LABEL, _label_event)


def list_milestone_events(call: Call) -> Answer:
    return _list_events(call, ResourceKind.MILESTONE, _milestone_event)


def get_milestone_event(call: Call) -> Answer:
    return _get_event(call, ResourceKind.MILESTONE, _milestone_event)


EventView = Callable[[Simulator, MergeRequest, ResourceEvent], dict[str, Any]]


def _list_events(call: Call, kind: ResourceKind, view: EventView) -> Answer:
    mr = merge_request_of(call)
    rows = [event for event in mr.history if event.kind is kind]
    return page_of(call, rows, lambda event: view(call.sim, mr, event))


def _get_event(call: Call, kind: ResourceKind, view: EventView) -> Answer:
    mr = merge_request_of(call)
    for event in mr.history:
        if event.kind is kind and str(event.id) == call.segments["event_id"]:
            return Answer(200, view(call.sim, mr, event))
    raise not_found()


def _event(sim: Simulator, mr: MergeRequest, event: ResourceEvent) -> dict[str, Any]:
    return {
        "id": event.id,
        "user": user_basic(sim, event.user),
        "created_at": iso(event.at),
        "resource_type": "MergeRequest",
        "resource_id": mr.id,
    }


def _state_event(sim: Simulator, mr: MergeRequest, event: ResourceEvent) -> dict[str, Any]:
    more = {"state": event.what, "source_commit": None, "source_merge_request_id": None}
    return {**_event(sim, mr, event), **more}


def _label_event(sim: Simulator, mr: MergeRequest, event: ResourceEvent) -> dict[str, Any]:
    label = mr.project.labels.get(event.what)
    shown = None
    if label is not None:
        shown = {"id": label.id, "name": label.title, "color": label.color, "description": label.description}
    return {**_event(sim, mr, event), "label": shown, "action": event.action}


def _milestone_event(sim: Simulator, mr: MergeRequest, event: ResourceEvent) -> dict[str, Any]:
    row = mr.project.milestones.get(int(event.what))
    shown = milestone_view(sim, row) if row else None
    return {**_event(sim, mr, event), "milestone": shown, "action": event.action, "state": str(mr.state)}


def _label(call: Call) -> Label:
    name = call.segments.get("name") or call.params.required("name")
    found = call.project().labels.get(name)
    if found is None:
        raise not_found("Label Not Found")
    return found


def _label_view(label: Label, viewer: User) -> dict[str, Any]:
    return {
        "id": label.id,
        "name": label.title,
        "description": label.description,
        "description_html": label.description,
        "text_color": "#FFFFFF",
        "color": label.color,
        "subscribed": viewer.id in label.subscribers,
        "priority": None,
        "is_project_label": True,
    }


def _milestone(call: Call) -> Milestone:
    number, project = call.segments["milestone_id"], call.project()
    found = project.milestones.get(int(number)) if number.isdigit() else None
    if found is None:
        raise not_found()
    return found


def _take_milestone(call: Call, row: Milestone) -> None:
    params = call.params
    row.title, row.description = params.text("title", row.title), params.text("description", row.description)
    row.due_date = params.text("due_date", row.due_date or "")[:10] or None
    row.start_date = params.text("start_date", row.start_date or "")[:10] or None
    states = {"close": "closed", "activate": "active"}
    row.state = states.get(params.text("state_event"), row.state)
