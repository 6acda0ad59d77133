"""Discussions over the API: those of merge requests can be resolved, those of commits cannot."""

from __future__ import annotations

from typing import Any

from gitlab_sync.sandbox.simulator.accounts import Role, User
from gitlab_sync.sandbox.simulator.core import Simulator, iso
from gitlab_sync.sandbox.simulator.errors import not_found
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.mr_lookup import merge_request_of
from gitlab_sync.sandbox.simulator.state import Project
from gitlab_sync.sandbox.simulator.threads import Discussion, Note
from gitlab_sync.sandbox.simulator.user_views import optional_user, user_basic


def begin(
    sim: Simulator, discussions: list[Discussion], user: User, body: str, *, resolvable: bool
) -> Discussion:
    """Begin a discussion with its first note."""
    discussion = Discussion(f"{sim.world.number('discussion'):040x}", resolvable)
    discussion.notes.append(_note(sim, user, body))
    discussions.append(discussion)
    return discussion


def list_discussions(call: Call) -> Answer:
    return page_of(call, _discussions(call), lambda row: _view(call.sim, row))


def create_discussion(call: Call) -> Answer:
    body = call.params.required("body")
    discussion = begin(call.sim, _discussions(call), call.user, body, resolvable="iid" in call.segments)
    return Answer(201, _view(call.sim, discussion))


def get_discussion(call: Call) -> Answer:
    return Answer(200, _view(call.sim, _discussion(call)))


def resolve_discussion(call: Call) -> Answer:
    discussion = _discussion(call)
    discussion.resolved_by = call.user if call.params.flag("resolved") else None
    return Answer(200, _view(call.sim, discussion))


def add_note(call: Call) -> Answer:
    discussion, note = _discussion(call), _note(call.sim, call.user, call.params.required("body"))
    discussion.notes.append(note)
    return Answer(201, _note_view(call.sim, discussion, note))


def get_note(call: Call) -> Answer:
    discussion = _discussion(call)
    return Answer(200, _note_view(call.sim, discussion, _note_of(call, discussion)))


def change_note(call: Call) -> Answer:
    discussion = _discussion(call)
    note = _note_of(call, discussion)
    if "resolved" in call.params and discussion.resolvable:
        discussion.resolved_by = call.user if call.params.flag("resolved") else None
    note.body, note.updated_at = call.params.text("body", note.body), call.sim.clock.now()
    return Answer(200, _note_view(call.sim, discussion, note))


def delete_note(call: Call) -> Answer:
    discussion = _discussion(call)
    discussion.notes.remove(_note_of(call, discussion))
    return Answer(204)


def _discussions(call: Call) -> list[Discussion]:
    if "iid" in call.segments:
        return merge_request_of(call).discussions
    project = call.project()
    return project.commit_discussions.setdefault(_commit_of(call, project), [])


def _commit_of(call: Call, project: Project) -> str:
    sha = project.repo.resolve(call.segments["sha"])
    if sha is None:
        raise not_found("Commit Not Found")
    return sha


def _discussion(call: Call) -> Discussion:
    found = next((row for row in _discussions(call) if row.id == call.segments["discussion_id"]), None)
    if found is None or call.user.role_in(call.project().id) < Role.REPORTER:
        raise not_found("Discussion Not Found")
    return found


def _note_of(call: Call, discussion: Discussion) -> Note:
    found = next((note for note in discussion.notes if str(note.id) == call.segments["note_id"]), None)
    if found is None:
        raise not_found("Note Not Found")
    return found


def _note(sim: Simulator, user: User, body: str) -> Note:
    now = sim.clock.now()
    return Note(sim.world.number("note"), body, user, now, now)


def _view(sim: Simulator, discussion: Discussion) -> dict[str, Any]:
    notes = [_note_view(sim, discussion, note) for note in discussion.notes]
    return {"id": discussion.id, "individual_note": False, "notes": notes}


def _note_view(sim: Simulator, discussion: Discussion, note: Note) -> dict[str, Any]:
    resolved = (
        {
            "resolved": discussion.resolved_by is not None,
            "resolved_by": optional_user(sim, discussion.resolved_by),
        }
        if discussion.resolvable
        else {}
    )
    return {
        "id": note.id,
        "type": "DiscussionNote",
        "body": note.body,
        "author": user_basic(sim, note.author),
        "created_at": iso(note.created_at),
        "updated_at": iso(note.updated_at),
        "system": False,
        "resolvable": discussion.resolvable,
        **resolved,
    }
