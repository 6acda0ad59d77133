"""Drives the control plane from tests and the demo: one method for each order, plain dictionaries back.

Speaks HTTP only, so it works the same for a simulator in a thread, in another process or left running by
a demo.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

import httpx2

Json = dict[str, Any]
LIMIT_S = 60.0


class ControlRefused(Exception):
    """The control plane did not take an order; status and reason are the text."""


class SimControl:
    """A client of the control plane; use it as a context manager or call `close`."""

    def __init__(self, base_url: str, sim_token: str) -> None:
        headers = {"X-Sim-Token": sim_token}
        self._http = httpx2.Client(
            base_url=f"{base_url}/__sim",
            headers=headers,
            timeout=LIMIT_S,
            trust_env=False,
            # Trusts nobody: the simulator speaks plain HTTP on loopback, and loading CAs is slow.
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # -- setting the stage -------------------------------------------------------------------------

    def add_user(
        self, username: str, *, token: str | None = None, role: int = 0, scopes: Sequence[str] = ("api",)
    ) -> Json:
        """Create a person or bot with a role in every project (GitLab's numbers) and, if given, a token."""
        body = {"username": username, "token": token, "role": role, "scopes": list(scopes)}
        return self._post("/users", body)

    def add_token(self, username: str, token: str, scopes: Sequence[str] = ("api",)) -> Json:
        return self._post("/tokens", {"username": username, "token": token, "scopes": list(scopes)})

    def revoke_token(self, token: str) -> None:
        self._post("/tokens/revoke", {"token": token})

    def restore_token(self, token: str) -> None:
        self._post("/tokens/revoke", {"token": token, "revoked": False})

    def set_scopes(self, token: str, *scopes: str) -> None:
        """Give a token other scopes than it had."""
        self._post("/tokens/scopes", {"token": token, "scopes": list(scopes)})

    def move_project(self, project: int | str, path: str) -> None:
        """Rename or move a project; only its number stays."""
        self._post(f"{_project(project)}/move", {"path": path})

    def set_role(self, project: int | str, username: str, role: int) -> None:
        self._post(f"{_project(project)}/role", {"username": username, "role": role})

    def set_timings(self, **seconds: float) -> None:
        """Change timings by their names in `config.Timings`."""
        self._post("/timings", dict(seconds))

    def add_project(self, path: str, files: Mapping[str, str] | None = None, **more: Any) -> Json:
        """Create a project; more: default_branch, settings, plan, push_level, merge_level, username."""
        return self._post("/projects", {"path": path, "files": dict(files or {}), **more})

    def set_plan(self, project: int | str, *outcomes: str, duration_s: float = 0.2) -> None:
        """Say how the next pipelines end (`success`, `failed`, `skipped`, `none`...); the last one stays."""
        self._post(f"{_project(project)}/plan", {"outcomes": list(outcomes), "duration_s": duration_s})

    # -- what people do ----------------------------------------------------------------------------

    def push(
        self, project: int | str, branch: str, files: Mapping[str, str] | None = None, **more: Any
    ) -> str:
        """Push as a person and return the new head; more: as in `people.Push`, and username."""
        body = {"branch": branch, "files": dict(files or {}), **more}
        return str(self._post(f"{_project(project)}/push", body)["head"])

    def delete_branch(self, project: int | str, branch: str, username: str = "root", **more: Any) -> None:
        """Delete a branch; unseen=True: what came from it stays open."""
        body = {"branch": branch, "username": username, **more}
        self._post(f"{_project(project)}/branches/delete", body)

    def merge(self, project: int | str, iid: int, username: str = "root") -> Json:
        """Merge as a person, as soon as it can be merged."""
        return self._post(f"{_mr(project, iid)}/merge", {"username": username})

    def close_mr(self, project: int | str, iid: int, username: str = "root") -> Json:
        return self._post(f"{_mr(project, iid)}/close", {"username": username})

    def reopen_mr(self, project: int | str, iid: int, username: str = "root") -> Json:
        return self._post(f"{_mr(project, iid)}/reopen", {"username": username})

    def delete_mr(self, project: int | str, iid: int) -> None:
        self._post(f"{_mr(project, iid)}/delete", {})

    def stick_mr(self, project: int | str, iid: int, for_s: float) -> None:
        """Leave a merge request in `locked` for some simulated seconds."""
        self._post(f"{_mr(project, iid)}/stick", {"for_s": for_s})

    def set_pipeline(self, project: int | str, pipeline_id: int, status: str) -> None:
        self._post(f"{_project(project)}/pipelines/{pipeline_id}", {"status": status})

    def approve_mr(self, project: int | str, iid: int, username: str = "root") -> Json:
        return self._post(f"{_mr(project, iid)}/approve", {"username": username})

    def comment(self, project: int | str, iid: int, body: str, username: str = "root") -> Json:
        """Begin a discussion; it is open until `resolve`."""
        return self._post(f"{_mr(project, iid)}/comment", {"body": body, "username": username})

    def resolve(self, project: int | str, iid: int, username: str = "root") -> None:
        """Resolve every discussion of a merge request."""
        self._post(f"{_mr(project, iid)}/resolve", {"username": username})

    def set_rules(self, project: int | str, **rules: Any) -> None:
        """Say what a merge needs: approvals_required, reset_approvals_on_push, sha_required."""
        self._post(f"{_project(project)}/rules", rules)

    def set_settings(self, project: int | str, **settings: Any) -> None:
        """Change project settings by their API names."""
        self._post(f"{_project(project)}/settings", settings)

    # -- faults and time ---------------------------------------------------------------------------

    def add_fault(self, kind: str, **rule: Any) -> Json:
        """Add an API fault; members as in `faults.FaultRule`."""
        return self._post("/faults", {"kind": kind, **rule})

    def faults(self) -> list[Json]:
        return cast("list[Json]", self._call("GET", "/faults"))

    def clear_faults(self) -> None:
        self._call("DELETE", "/faults")

    def add_hook_fault(self, mishap: str, **rule: Any) -> Json:
        """Add a hook fault; members as in `hook_faults.HookRule`."""
        return self._post("/hook_faults", {"mishap": mishap, **rule})

    def burst(self, project: int | str, iid: int, count: int = 500) -> None:
        """Send the same `update` of a merge request many times."""
        self._post(f"{_mr(project, iid)}/burst", {"count": count})

    def hook_faults(self) -> list[Json]:
        return cast("list[Json]", self._call("GET", "/hook_faults"))

    def clear_hook_faults(self) -> None:
        self._call("DELETE", "/hook_faults")

    def crash_merges(self, point: str, **rule: Any) -> Json:
        """Let the next merge die at a point of `crash_points`; rule: project_id, iid, count, unstick_s."""
        return self._post("/crash_points", {"point": point, **rule})

    def set_throttle(self, requests: int, period_s: int, *, enabled: bool = True) -> None:
        """Let each user make so many requests in a period, or (not enabled) as many as they like."""
        self._post("/throttle", {"requests": requests, "period_s": period_s, "enabled": enabled})

    def advance_clock(self, seconds: float) -> None:
        self._post("/clock/advance", {"seconds": seconds})

    # -- the witness -------------------------------------------------------------------------------

    def deliveries(self) -> list[Json]:
        return cast("list[Json]", self._call("GET", "/deliveries"))

    def await_deliveries(self, limit_s: float = 15.0) -> bool:
        """Wait until no event is queued; False: some still were at the limit."""
        return bool(self._post("/deliveries/wait", {"limit_s": limit_s})["settled"])

    def audit(
        self, project: int | str | None = None, *, files: str | None = None, log: str | None = None
    ) -> Json:
        """Report on calls, merge requests, deliveries, git's health; `files` and `log` name a ref to show."""
        wanted = {"project": project, "files": files, "log": log}
        query = {name: str(value) for name, value in wanted.items() if value is not None}
        return cast("Json", self._call("GET", "/audit", query=query))

    def files(self, project: int | str, ref: str = "main") -> dict[str, str]:
        return cast("dict[str, str]", self._call("GET", f"{_project(project)}/files", query={"ref": ref}))

    def log(self, project: int | str, ref: str = "main") -> list[Json]:
        return cast("list[Json]", self._call("GET", f"{_project(project)}/log", query={"ref": ref}))

    def _post(self, path: str, body: Json) -> Json:
        return cast("Json", self._call("POST", path, body=body))

    def _call(self, method: str, path: str, *, body: Json | None = None, query: Json | None = None) -> Any:
        response = self._http.request(method, path, json=body, params=query)
        if response.status_code != 200:
            raise ControlRefused(f"{method} {path}: {response.status_code} {response.text}")
        return response.json()


def _project(project: int | str) -> str:
    return f"/projects/{str(project).replace('/', '%2F')}"


def _mr(project: int | str, iid: int) -> str:
    return f"{_project(project)}/merge_requests/{iid}"
