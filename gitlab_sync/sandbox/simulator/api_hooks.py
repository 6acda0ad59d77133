"""Project hooks: kept, tested, their event log read and resent. All of it needs Maintainer."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from gitlab_sync.sandbox.simulator.accounts import Role
from gitlab_sync.sandbox.simulator.core import Simulator, iso
from gitlab_sync.sandbox.simulator.deliveries import Delivery, Outcome, Urgency
from gitlab_sync.sandbox.simulator.errors import ApiError, not_found, refused
from gitlab_sync.sandbox.simulator.hook_payloads import merge_request_payload, pipeline_payload
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.params import Params
from gitlab_sync.sandbox.simulator.profile import Profile
from gitlab_sync.sandbox.simulator.signing import is_signing_token
from gitlab_sync.sandbox.simulator.state import Hook, Project

LOG_KEPT_S = 7 * 86_400
_EVENTS = [
    "push",
    "issues",
    "confidential_issues",
    "deployment",
    "releases",
    "merge_requests",
    "tag_push",
    "note",
    "confidential_note",
    "job",
    "pipeline",
    "wiki_page",
    "feature_flag",
    "milestone",
    "emoji",
    "resource_access_token",
]
_TRIGGERS = {"merge_requests_events": "merge_request", "pipeline_events": "pipeline"}


def list_hooks(call: Call) -> Answer:
    return page_of(
        call, list(call.project(Role.MAINTAINER).hooks.values()), lambda hook: _view(call.sim, hook)
    )


def get_hook(call: Call) -> Answer:
    return Answer(200, _view(call.sim, _hook(call)))


def create_hook(call: Call) -> Answer:
    project, params = call.project(Role.MAINTAINER), call.params
    params.required("url")
    if call.sim.profile.hook_creation_limited:
        _limit(call, project, "create")
    flags = {f"{name}_events": name == "push" for name in _EVENTS}
    number = call.sim.world.number("hook")
    hook = Hook(number, project, "", call.sim.clock.now(), flags)
    hook.flags |= {
        "enable_ssl_verification": True,
        "push_events_branch_filter": "",
        "name": "",
        "description": "",
    }
    _take(hook, params, call.sim.profile)
    project.hooks[number] = hook
    return Answer(201, _view(call.sim, hook))


def update_hook(call: Call) -> Answer:
    hook = _hook(call)
    _take(hook, call.params, call.sim.profile)
    return Answer(200, _view(call.sim, hook))


def delete_hook(call: Call) -> Answer:
    hook = _hook(call)
    del hook.project.hooks[hook.id]
    return Answer(204)


def test_hook(call: Call) -> Answer:
    """Send a picture of the newest object, without action; a success ends a pause of the hook."""
    hook, sim = _hook(call), call.sim
    kind = _TRIGGERS.get(call.segments["trigger"])
    if kind is None:
        raise ApiError(400, {"error": "trigger does not have a valid value"})
    _limit(call, hook.project, "test")
    body = json.dumps(_sample(call, hook.project, kind)).encode()
    delivery = sim.deliveries.send_now(hook, kind, body, key=None, urgency=Urgency.TEST)
    _await(sim, delivery)
    if delivery.outcome is not Outcome.DELIVERED:
        raise refused(422, delivery.response_body or delivery.status)
    return Answer(201, {"message": "201 Created"})


def list_events(call: Call) -> Answer:
    hook, status = _hook(call), call.params.text("status")
    oldest = call.sim.clock.now() - LOG_KEPT_S
    rows = [
        delivery
        for delivery in reversed(call.sim.deliveries.log)
        if delivery.hook is hook and (delivery.sent_at or 0.0) >= oldest and _matches(delivery, status)
    ]
    return page_of(call, rows, _event_view)


def resend_event(call: Call) -> Answer:
    """Send the same data under the same key again."""
    hook, sim = _hook(call), call.sim
    number = call.segments["event_id"]
    old = next((d for d in sim.deliveries.log if d.hook is hook and str(d.id) == number and d.sent_at), None)
    if old is None:
        raise not_found()
    _limit(call, hook.project, "test")
    delivery = sim.deliveries.send_now(hook, old.kind, old.body, key=old.key, urgency=Urgency.TEST)
    _await(sim, delivery)
    status = int(delivery.status) if delivery.status.isdigit() else delivery.status
    return Answer(201, {"response_status": status})


def _hook(call: Call) -> Hook:
    number = call.segments["hook_id"]
    hook = call.project(Role.MAINTAINER).hooks.get(int(number)) if number.isdigit() else None
    if hook is None:
        raise not_found()
    return hook


def _take(hook: Hook, params: Params, profile: Profile) -> None:
    """Take what was given; versions without signing ignore a signing token without a word."""
    if "url" in params:
        hook.url = _checked_url(params.text("url"))
    for name in hook.flags:
        if name in params:
            is_flag = isinstance(hook.flags[name], bool)
            hook.flags[name] = bool(params.flag(name)) if is_flag else params.text(name)
    if "token" in params:
        hook.token = params.text("token")
    if params.text("signing_token") and profile.signing:
        if not is_signing_token(params.text("signing_token")):
            raise refused(400, {"signing_token": ["is invalid"]})  # wording unverified
        hook.signing_token = params.text("signing_token")
    if "custom_headers" in params:
        rows = params.values["custom_headers"] or []
        hook.custom_headers = {str(row["key"]): str(row["value"]) for row in rows}


def _checked_url(url: str) -> str:
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise refused(422, "Invalid url given")
    return url


def _view(sim: Simulator, hook: Hook) -> dict[str, Any]:
    alert = "executable"
    if sim.deliveries.paused(hook):
        alert = "disabled" if hook.disabled_for_good else "temporarily_disabled"
    return {
        "id": hook.id,
        "url": hook.url,
        "project_id": hook.project.id,
        "created_at": iso(hook.created_at),
        **hook.flags,
        "alert_status": alert,
        "disabled_until": iso(hook.disabled_until),
        "custom_headers": [{"key": name} for name in hook.custom_headers],
        "token_present": bool(hook.token),
        **({"signing_token_present": bool(hook.signing_token)} if sim.profile.signing else {}),
    }


def _sample(call: Call, project: Project, kind: str) -> dict[str, Any]:
    """Return a payload made of a real object of the project; it carries no action and no oldrev."""
    if kind == "merge_request" and project.merge_requests:
        newest = project.merge_requests[max(project.merge_requests)]
        return merge_request_payload(call.sim, newest, call.user, {})
    if kind == "pipeline" and project.pipelines:
        return pipeline_payload(call.sim, project.pipelines[max(project.pipelines)])
    raise refused(
        422, "Ensure the project has merge requests." if kind == "merge_request" else "No pipelines."
    )


def _await(sim: Simulator, delivery: Delivery) -> None:
    sim.clock.wait_for(lambda: delivery.final, sim.config.hook_timeout_s + 5)


def _limit(call: Call, project: Project, kind: str) -> None:
    """Count a creation, or a test or resend: five a minute for each user and project."""
    sim, now = call.sim, call.sim.clock.now()
    times = sim.audit.limited.setdefault((kind, call.user.id, project.id), [])
    times[:] = [at for at in times if at > now - 60]
    if len(times) >= sim.config.hook_calls_per_minute:
        raise refused(429, {"error": "This endpoint has been requested too many times. Try again later."})
    times.append(now)


def _matches(delivery: Delivery, status: str) -> bool:
    families = {"successful": "23", "client_failure": "4", "server_failure": "5"}
    if status in families:
        first = delivery.status[:1]
        return first in families[status] or (status == "server_failure" and not delivery.status.isdigit())
    return not status or delivery.status == status


def _event_view(delivery: Delivery) -> dict[str, Any]:
    headers = dict(delivery.request_headers)
    for name in ("X-Gitlab-Token", "webhook-signature"):
        if name in headers:
            headers[name] = "[REDACTED]"
    return {
        "id": delivery.id,
        "url": delivery.hook.url,
        "trigger": delivery.trigger,
        "request_headers": headers,
        "request_data": _data(delivery),
        "response_headers": delivery.response_headers,
        "response_body": delivery.response_body,
        "execution_duration": delivery.duration_s,
        "response_status": delivery.status,
    }


def _data(delivery: Delivery) -> Any:
    try:
        return json.loads(delivery.body)
    except ValueError:
        return {}
