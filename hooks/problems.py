"""Every error answer of the edge: `application/problem+json` with a stable `type` and a detail that helps.

`PROBLEMS` is the whole list of types; the table at the end says which exception becomes which. An answer
never carries the text of an unexpected exception, nor anything a client could not have sent or seen itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ExceptionHandler

from gitlab_sync import errors
from gitlab_sync.errors import FieldProblem
from gitlab_sync.log_words import Unit
from gitlab_sync.units import current

RETRY_AFTER_S: Final = 5
TYPE_PREFIX: Final = "urn:gitlab-sync:problem:"
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Kind:
    """One type of problem. The slug is a promise; the title may be reworded."""

    slug: str
    status: int
    title: str


MALFORMED: Final = Kind("malformed", 400, "The message cannot be read")
UNAUTHORIZED: Final = Kind("unauthorized", 401, "The credentials are missing or wrong")
FORBIDDEN: Final = Kind("forbidden", 403, "The token may not do this")
NOT_FOUND: Final = Kind("not-found", 404, "There is nothing here")
METHOD_NOT_ALLOWED: Final = Kind("method-not-allowed", 405, "The method is not served here")
TOO_SLOW: Final = Kind("too-slow", 408, "The body did not arrive in time")
RELATION_BUSY: Final = Kind("relation-busy", 409, "The relation is held or in another state")
OPERATION_EXISTS: Final = Kind("operation-exists", 409, "The operation_id is taken")
TWIN_IN_FLIGHT: Final = Kind("twin-in-flight", 409, "The same call is being worked on")
STALE: Final = Kind("stale", 409, "The state has moved")
TOO_LARGE: Final = Kind("too-large", 413, "The body is too large")
UNSUPPORTED: Final = Kind("unsupported-media-type", 415, "The body is in a form that is not read")
INVALID: Final = Kind("invalid-request", 422, "The request is not valid")
KEY_REUSED: Final = Kind("idempotency-key-reused", 422, "The Idempotency-Key came before with another body")
INTERNAL: Final = Kind("internal", 500, "Something went wrong here")
GITLAB_REFUSED: Final = Kind("gitlab-refused", 502, "GitLab refused")
UNAVAILABLE: Final = Kind("unavailable", 503, "The database does not answer")
COMMIT_UNKNOWN: Final = Kind("outcome-unknown", 503, "It is not known whether the write was kept")
GITLAB_UNAVAILABLE: Final = Kind("gitlab-unavailable", 503, "GitLab does not answer")

PROBLEMS: Final = (
    MALFORMED,
    UNAUTHORIZED,
    FORBIDDEN,
    NOT_FOUND,
    METHOD_NOT_ALLOWED,
    TOO_SLOW,
    RELATION_BUSY,
    OPERATION_EXISTS,
    TWIN_IN_FLIGHT,
    STALE,
    TOO_LARGE,
    UNSUPPORTED,
    INVALID,
    KEY_REUSED,
    INTERNAL,
    GITLAB_REFUSED,
    UNAVAILABLE,
    COMMIT_UNKNOWN,
    GITLAB_UNAVAILABLE,
)


class Problem(Exception):
    """An answer that is an error. `detail` says what to do; `members` are further fields of its object."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        members: Mapping[str, Any] = _NONE,
        *,
        headers: Mapping[str, str] = _NONE,
    ) -> None:
        super().__init__(f"{kind.slug}: {detail}")
        self.kind = kind
        self.detail = detail
        self.members = members
        self.headers = headers

    def response(self) -> Response:
        body = {
            "type": TYPE_PREFIX + self.kind.slug,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            **self.members,
        }
        return JSONResponse(body, self.kind.status, dict(self.headers), "application/problem+json")


def invalid(problems: Iterable[FieldProblem]) -> Problem:
    """A 422 that names each field by JSON pointer and says what to do about it."""
    found = [{"pointer": problem.pointer, "detail": problem.message} for problem in problems]
    first = f"{found[0]['pointer'] or 'the body'}: {found[0]['detail']}" if found else "the body is not valid"
    more = f" ({len(found) - 1} more in `errors`)" if len(found) > 1 else ""
    return Problem(
        INVALID,
        f"{first}{more}; mend it and send the whole call again, nothing was written",
        {"errors": found},
    )


def unavailable() -> Problem:
    """A 503 for a database that is away or overloaded."""
    detail = "nothing was written; send the same call again after the time in Retry-After"
    return Problem(UNAVAILABLE, detail, headers={"Retry-After": str(RETRY_AFTER_S)})


def cut_short() -> Problem:
    """A 503 for a call that was still running when this replica had to end."""
    return _on_unknown_commit(errors.CommitUnknown("this replica has ended"))


def _on_http_exception(error: HTTPException) -> Problem:
    match error.status_code:
        case 404:
            return Problem(NOT_FOUND, "no such path; /openapi.json lists what is served")
        case 405:
            allowed = (error.headers or {}).get("Allow", "")
            return Problem(METHOD_NOT_ALLOWED, f"use one of {allowed}", headers={"Allow": allowed})
        case _:
            return Problem(Kind("http", error.status_code, "The message cannot be served"), error.detail)


def _on_relation_busy(error: errors.RelationBusy) -> Problem:
    held_by = str(error.operation_id) if error.operation_id else None
    members = {"index": error.index, "operation_id": held_by, "relation_status": error.status}
    return Problem(RELATION_BUSY, str(error), members)


def _on_stale_write(error: errors.StaleWrite) -> Problem:
    return Problem(STALE, f"{error}; read it again and decide anew", {"present": error.present})


def _on_unknown_commit(_error: errors.CommitUnknown) -> Problem:
    detail = "send the same call with the same Idempotency-Key again, or read the present state first"
    return Problem(COMMIT_UNKNOWN, detail, headers={"Retry-After": str(RETRY_AFTER_S)})


def _on_gitlab_unavailable(error: errors.GitLabUnavailable) -> Problem:
    wait = max(1, round(error.retry_after_s or RETRY_AFTER_S))
    return Problem(GITLAB_UNAVAILABLE, "nothing was changed; try again", headers={"Retry-After": str(wait)})


def _on_operation_exists(error: errors.OperationExists) -> Problem:
    return Problem(OPERATION_EXISTS, str(error), {"operation_id": str(error.operation_id)})


# First match wins; subclasses of DatabaseError that are bugs stay out and become 500.
_TABLE: Final[tuple[tuple[type[Exception], Callable[[Any], Problem]], ...]] = (
    (Problem, lambda error: error),
    (HTTPException, _on_http_exception),
    (
        ClientDisconnect,
        lambda _: Problem(MALFORMED, "the connection ended before the body did; send it again"),
    ),
    (errors.InvalidRequest, lambda error: invalid(error.problems)),
    (errors.NotFound, lambda error: Problem(NOT_FOUND, f"{error}; check the id, or list what there is")),
    (errors.RelationBusy, _on_relation_busy),
    (errors.OperationExists, _on_operation_exists),
    (
        errors.KeyReused,
        lambda _: Problem(
            KEY_REUSED, "send a fresh Idempotency-Key, or the very body that came with it first"
        ),
    ),
    (
        errors.TwinInFlight,
        lambda _: Problem(
            TWIN_IN_FLIGHT, "send the same call again in a second", headers={"Retry-After": "1"}
        ),
    ),
    (errors.StaleWrite, _on_stale_write),
    (errors.IllegalEdge, lambda error: Problem(STALE, f"{error}; read it again and decide anew")),
    (errors.CommitUnknown, _on_unknown_commit),
    (errors.DatabaseUnavailable, lambda _: unavailable()),
    (errors.DatabaseBusy, lambda _: unavailable()),
    (errors.GitLabUnavailable, _on_gitlab_unavailable),
    (
        errors.GitLabRefused,
        lambda _: Problem(GITLAB_REFUSED, "run `gitlab-sync doctor --gitlab` and mend what it finds"),
    ),
)


def exception_handlers() -> dict[type[Exception], ExceptionHandler]:
    """The table for Starlette: each known exception and its answer."""
    return {kind: _handler(answer) for kind, answer in _TABLE}


def unexpected(error: Exception) -> Response:
    """Say in the request's line what nobody foresaw, and answer without telling its text."""
    problem = Problem(
        INTERNAL, "report the X-Request-Id of this answer to the operator; the log has the rest"
    )
    _tell(problem, error)
    return problem.response()


def _tell(problem: Problem, error: Exception) -> None:
    """A problem's detail may repeat what a client sent: the log has its type, and our own errors."""
    line = current()
    outcome = line.outcome if line.unit is Unit.WEBHOOK else problem.kind.slug
    if problem.kind.status >= INTERNAL.status and error is not problem:
        line.blame(error)
    line.outcome = outcome


def _handler(answer: Callable[[Any], Problem]) -> ExceptionHandler:
    async def handle(_request: Request, error: Exception) -> Response:
        problem = answer(error)
        _tell(problem, error)
        return problem.response()

    return handle
