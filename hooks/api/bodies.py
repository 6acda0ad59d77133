"""From the bytes of a call to checked values: JSON, then types, each problem named by JSON pointer.

What a value means (known partition, lawful paths, lengths) is judged by the engine; here only form: types,
missing and unknown members. All problems of a body are told at once, up to a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from gitlab_sync.errors import FieldProblem
from hooks.limits import BodyLimits, read_body
from hooks.problems import MALFORMED, Problem, invalid
from hooks.strict_json import BadJson, read_json

SUBMIT_LIMITS: Final = BodyLimits(size_bytes=4_194_304, deadline_s=20.0)
SMALL_LIMITS: Final = BodyLimits(size_bytes=65_536, deadline_s=5.0)
MOST_PROBLEMS: Final = 100
# Beyond this size parsing is left to a thread, so that other calls' answers are not delayed by it.
LARGE_BYTES: Final = 262_144

M = TypeVar("M", bound=BaseModel)


async def json_body(request: Request[Any], limits: BodyLimits) -> Any:
    """The JSON value of a body. Raises Problem 400, 408, 413 or 415."""
    body = await read_body(request, limits)
    try:
        return await asyncio.to_thread(read_json, body) if len(body) > LARGE_BYTES else read_json(body)
    except BadJson as error:
        raise Problem(MALFORMED, str(error)) from None


async def optional_body(request: Request[Any], model: type[M]) -> M:
    """The model that a small body holds; the model's defaults if there is none."""
    headers = request.headers
    if "transfer-encoding" not in headers and headers.get("content-length", "0") == "0":
        return require_model(model, {})
    return require_model(model, await json_body(request, SMALL_LIMITS))


def require_model(model: type[M], value: Any) -> M:
    """The model that a parsed body holds. Raises Problem 422."""
    problems: list[FieldProblem] = []
    found = read_model(model, value, "", problems)
    if found is None:
        raise invalid(problems)
    return found


def read_model(model: type[M], value: Any, pointer: str, problems: list[FieldProblem]) -> M | None:
    """The model that `value` holds; None after its problems were added to `problems`."""
    if not isinstance(value, dict):
        problems.append(
            FieldProblem(pointer, "is no JSON object; send an object with the members of the API")
        )
        return None
    try:
        return model.model_validate(value)
    except ValidationError as error:
        room = max(0, MOST_PROBLEMS - len(problems))
        found = error.errors(include_url=False, include_input=False)[:room]
        problems += [_problem(model, pointer, detail) for detail in found]
        return None


def pointer_of(parts: Sequence[int | str]) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _problem(model: type[BaseModel], pointer: str, detail: ErrorDetails) -> FieldProblem:
    return FieldProblem(pointer + pointer_of(detail["loc"]), _message(model, detail))


def _message(model: type[BaseModel], detail: ErrorDetails) -> str:
    kind = detail["type"]
    if kind in _MESSAGES:
        return _MESSAGES[kind]
    if kind == "extra_forbidden":
        return f"is no member of this object; remove it (members: {', '.join(model.model_fields)})"
    if kind == "literal_error":
        return f"is unknown; send {detail['ctx']['expected']}"
    message = detail["msg"].removeprefix("Value error, ")
    return message if "; " in message else f"{message}; mend it"


_NO_NUMBER: Final = "is no whole number; send one without quotes"
_NO_UUID: Final = "is no UUID; send 32 hex digits in five groups, or leave it out"
_MESSAGES: Final[Mapping[str, str]] = {
    "missing": "is missing; add it",
    "string_type": "is no text; send a JSON string",
    "int_type": _NO_NUMBER,
    "int_from_float": _NO_NUMBER,
    "dict_type": "is no object; send a JSON object",
    "list_type": "is no list; send a JSON array",
    "uuid_parsing": _NO_UUID,
    "uuid_type": _NO_UUID,
}
