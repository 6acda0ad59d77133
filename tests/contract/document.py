"""GitLab's published OpenAPI document, held against the simulator: field names, statuses, parameters.

Types are not compared: the document says string where real answers have numbers. What differs for a reason
stands in the named lists below; the copy is of early 2025, so some fields and parameters are newer than it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

PREFIX = "/api/v4"
# Said by what stands in front of every endpoint: token, role, hidden or moved project, throttle, broken host.
ANYWHERE = {301, 401, 403, 404, 405, 408, 429}
BROKEN_FROM = 500
UNLISTED_STATUSES = {
    ("PUT", "rebase"): {202},
    ("POST", "commits"): {201},
    # The check of parameters answers 400 everywhere, and the document says so in some places only.
    ("GET", "merge_requests"): {400},
    ("POST", "files"): {400},
    ("PUT", "files"): {400},
    ("DELETE", "files"): {400},
    ("POST", "approve"): {409},
    ("GET", "tree"): {400},
    ("GET", "files"): {400},
}
NEWER_FIELDS = {
    "API_Entities_ProjectHook": {"token_present", "signing_token_present", "milestone_events"},
    "API_Entities_Diff": {"collapsed", "too_large"},
}
# The document promises a merge request here; what comes is told by GitLab's source and its clients.
ANSWERED_OTHERWISE = {("POST", "cancel_merge_when_pipeline_succeeds")}
# Paid plans show more than the document's entity.
WIDER = {"API_Entities_MergeRequestApprovals": "EE_API_Entities_ApprovalState"}
NEWER_PARAMETERS = {"auto_merge", "signing_token", "milestone_events"}
# In GitLab's own documentation, not in the document.
UNLISTED_PARAMETERS = {("DELETE", "files"): {"last_commit_id"}}


@dataclass(slots=True)
class Document:
    """The document, and the notes of a run: what was seen of it, and what did not fit."""

    paths: Mapping[str, Any]
    definitions: Mapping[str, Any]
    seen: set[tuple[str, str]] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def check(self, method: str, url_path: str, status: int, body: Any) -> None:
        """Compare one answer; what the document does not know is passed over."""
        template = self.template_of(method, url_path)
        if template is None or status >= BROKEN_FROM:
            return
        operation = self.paths[template][method.lower()]
        self.seen.add((method, template))
        where = f"{method} {template} {status}"
        listed = {int(code) for code in operation["responses"]} | ANYWHERE
        if status not in listed | UNLISTED_STATUSES.get((method, _thing(template)), set()):
            self.problems.append(f"{where}: no such status")
        if 200 <= status < 300 and (method, _thing(template)) not in ANSWERED_OTHERWISE:
            schema = _schema(operation)
            self.problems += [f"{where}: {name}" for name in self.unknown(schema, body)]

    def template_of(self, method: str, url_path: str) -> str | None:
        """Return the documented path of a call; None: the document has none."""
        for template in self.paths:
            if method.lower() in self.paths[template] and _pattern(template).fullmatch(url_path):
                return template
        return None

    def parameters(self, method: str, template: str) -> set[str]:
        """Return the documented parameters of an operation, those of its body included."""
        names = set(UNLISTED_PARAMETERS.get((method, _thing(template)), ()))
        for parameter in self.paths[template][method.lower()].get("parameters", []):
            if parameter["in"] == "body":
                names |= self.definitions[_name(parameter["schema"])].get("properties", {}).keys()
            else:
                names.add(parameter["name"].removesuffix("[]"))
        return names

    def unknown(self, schema: Mapping[str, Any], value: Any, at: str = "") -> Iterator[str]:
        """Yield the places of fields that the document does not have."""
        if isinstance(value, list):
            for item in value:
                yield from self.unknown(schema.get("items", schema), item, at)
            return
        definition = _name(schema)
        definition = WIDER.get(definition, definition)
        properties = self.definitions.get(definition, {}).get("properties")
        if properties is None or not isinstance(value, dict):
            return
        for name, inner in value.items():
            if name in properties:
                yield from self.unknown(properties[name], inner, f"{at}.{name}")
            elif name not in NEWER_FIELDS.get(definition, set()):
                yield f"{at}.{name} is not in {definition}"


def published() -> Document:
    """Return the document with empty notes."""
    read = _read()
    return Document(read["paths"], read["definitions"])


@cache
def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(__file__).parent / "data/openapi_v2_slice.json").read_text())
    return found


@cache
def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)))


def _schema(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of success; the document puts it under another status now and then."""
    answers = operation["responses"]
    return next((answers[code].get("schema", {}) for code in ("200", "201") if code in answers), {})


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _thing(template: str) -> str:
    """Return the last word of a path that is no placeholder."""
    return [part for part in template.split("/") if not part.startswith("{")][-1]
