"""The OpenAPI document, made from the route table and the models: it cannot differ from what they do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

from hooks.endpoints import Endpoint
from hooks.problems import PROBLEMS, TYPE_PREFIX

_REF: Final = "#/components/schemas/{model}"
_PROBLEM_KEY: Final = "problem"

Schemas = Mapping[str, dict[str, Any]]


class ProblemOut(BaseModel):
    """An error answer (RFC 9457). Some types carry further members: `errors`, `operation_id`, `present`."""

    type: str
    title: str
    status: int
    detail: str


def openapi_document(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """The document for the endpoints of the application."""
    schemas, components = _schemas(endpoints)
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "gitlab-sync", "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(endpoints: Sequence[Endpoint]) -> tuple[Schemas, dict[str, Any]]:
    """The schema of each body and answer by its key, and the shared components they refer to."""
    adapters: list[tuple[str, Any, TypeAdapter[Any]]] = [
        (_PROBLEM_KEY, "validation", TypeAdapter(ProblemOut))
    ]
    for endpoint in endpoints:
        adapters += [
            (_key(endpoint, place), "validation", TypeAdapter(form))
            for place, form in _forms(endpoint).items()
        ]
    found, shared = TypeAdapter.json_schemas(adapters, ref_template=_REF)
    components: dict[str, Any] = shared["$defs"]
    components["ProblemOut"]["properties"]["type"]["enum"] = [TYPE_PREFIX + kind.slug for kind in PROBLEMS]
    return {key: dict(schema) for (key, _mode), schema in found.items()}, components


def _forms(endpoint: Endpoint) -> dict[str, Any]:
    forms = {str(status): form for status, (_, form) in endpoint.answers.items() if form is not None}
    return forms if endpoint.body is None else {**forms, "body": endpoint.body}


def _key(endpoint: Endpoint, place: str) -> str:
    return f"{endpoint.name} {place}"


def _operation(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": _parameters(endpoint),
        "responses": {**_answers(endpoint, schemas), **_problem_answers(endpoint, schemas)},
    }
    if endpoint.scope is not None:
        operation["security"] = [{"token": []}]
        operation["description"] = f"Needs the scope `{endpoint.scope.value}`."
    if endpoint.body is not None:
        content = {"application/json": {"schema": schemas[_key(endpoint, "body")]}}
        operation["requestBody"] = {"content": content}
    return operation


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    others = [
        {"name": given.name, "in": given.place, "description": given.meaning, "schema": {"type": "string"}}
        for given in endpoint.parameters
    ]
    return in_path + others


def _answers(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for status, (text, form) in endpoint.answers.items():
        answers[str(status)] = {"description": text}
        if form is not None:
            schema = schemas[_key(endpoint, str(status))]
            answers[str(status)]["content"] = {"application/json": {"schema": schema}}
    return answers


def _problem_answers(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for kind in endpoint.problems:
        by_status.setdefault(kind.status, []).append(TYPE_PREFIX + kind.slug)
    content = {"application/problem+json": {"schema": schemas[_PROBLEM_KEY]}}
    return {
        str(status): {"description": f"{HTTPStatus(status).phrase}: {', '.join(types)}", "content": content}
        for status, types in sorted(by_status.items())
        if status not in endpoint.answers
    }
