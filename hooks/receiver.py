"""POST /hooks/gitlab: take a webhook delivery, remember it, make its batch due, answer fast. Nothing else.

The payload is a hint that says which merge request to look at; the looking is the engine's, after the
answer. Order: credentials from the headers, size and time of the body, its signature, JSON, the few fields,
then one short transaction. Everything authentic is answered 2xx, also what is not ours, because GitLab
disables hooks that are answered with errors.

Races considered:
A  the same delivery twice, also on two replicas: the unique key lets one be TAKEN, the other is DUPLICATE.
B  the event arrives before the call that caused it was answered: the batch is found by its branch's name,
   or not found, and then the poller looks.
C  strangers send bodies under made-up signatures: few of them are in memory at a time, the others wait within
   the answer's limit; a genuine delivery that is refused meanwhile is made good by the poller.
D  this process dies after the answer: the batch was made due in the database, so any replica looks.
E  a database that is slow instead of away: GitLab hangs up after 10 s, and socket and connection would stay
   busy for nobody, so we answer 503 before it does. What was being written may be kept or not; either way the
   poller looks. A COMMIT that hangs at that moment does not delay the answer: the database port carries it to
   its end, keeps its connection until then, and waits for it at a stop.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from gitlab_sync.edge_values import Delivery, DeliveryAnswer
from gitlab_sync.errors import CommitUnknown, DatabaseBusy, DatabaseUnavailable
from gitlab_sync.log_words import Unit
from gitlab_sync.telemetry import WebhookEvent, WebhookResult
from gitlab_sync.units import current
from hooks.auth import single_header
from hooks.endpoints import EdgeRequest
from hooks.engine_port import EnginePort
from hooks.limits import BodyLimits, read_body
from hooks.payloads import BadPayload, Hint, Ignored, read_payload
from hooks.problems import MALFORMED, UNAUTHORIZED, Problem, unavailable
from hooks.signature import Accepted, Pending, Refused, WebhookSecrets
from hooks.strict_json import BadJson, read_json

HOOK_LIMITS: Final = BodyLimits(size_bytes=1_048_576, deadline_s=5.0)
ANSWER_LIMIT_S: Final = 9.0  # of the whole delivery: GitLab gives up at 10
LONGEST_DELIVERY_KEY_BYTES: Final = 255

_RESULT_OF_STATUS: Final = {
    401: WebhookResult.UNAUTHORIZED,
    408: WebhookResult.TOO_SLOW,
    413: WebhookResult.TOO_LARGE,
}
_RESULT_OF_ANSWER: Final = {
    DeliveryAnswer.TAKEN: WebhookResult.TAKEN,
    DeliveryAnswer.DUPLICATE: WebhookResult.DUPLICATE,
    DeliveryAnswer.NOT_OURS: WebhookResult.NOT_OURS,
    DeliveryAnswer.CONFLICT: WebhookResult.CONFLICT,
}


@dataclass(slots=True)
class _Line:
    """What the line of one delivery will say, filled in on the way."""

    event: WebhookEvent = WebhookEvent.UNREAD
    result: WebhookResult = WebhookResult.FAILED
    why: str = ""
    delivery_id: str = ""


async def receive_hook(request: EdgeRequest) -> Response:
    """202: the batch is looked at now. 200: a duplicate, ignored, or not ours. Else a Problem."""
    engine = request.state["parts"].engine
    line = _Line()
    current().become(Unit.WEBHOOK)
    try:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            return await _take(request, line)
    except TimeoutError:
        line.result, line.why = WebhookResult.UNAVAILABLE, f"no answer within {ANSWER_LIMIT_S:g} s"
        raise unavailable() from None
    except Problem as problem:
        if line.result is not WebhookResult.CONFLICT:
            line.result = _RESULT_OF_STATUS.get(problem.kind.status, WebhookResult.MALFORMED)
        line.why = line.why or problem.detail
        raise
    except (DatabaseUnavailable, DatabaseBusy, CommitUnknown):
        line.result = WebhookResult.UNAVAILABLE
        raise
    except ClientDisconnect:
        line.result, line.why = WebhookResult.TOO_SLOW, "the connection ended before the body did"
        raise
    finally:
        _tell(engine, line)


async def _take(request: EdgeRequest, line: _Line) -> Response:
    parts = request.state["parts"]
    credentials = _credentials(parts.secrets, request, line)
    async with parts.unproven_bodies if isinstance(credentials, Pending) else nullcontext():
        body = await read_body(request, HOOK_LIMITS)
    _check_signature(credentials, body, line)
    line.delivery_id = _delivery_key(credentials, request, body)
    current().know(delivery_id=line.delivery_id)
    hint = _read(body)
    if isinstance(hint, Ignored):
        line.event, line.result, line.why = WebhookEvent.OTHER, WebhookResult.IGNORED, hint.reason
        return _answer(200, "ignored", hint.reason)
    line.event = hint.event
    current().know(mr_iid=hint.mr_iid)
    current().add(project_id=hint.project_id, action=hint.action)
    answer = await _hand_over(parts.engine, line.delivery_id, body, hint)
    line.result = _RESULT_OF_ANSWER[answer]
    return _answer_of(answer)


def _credentials(secrets: WebhookSecrets, request: EdgeRequest, line: _Line) -> Accepted | Pending:
    credentials = secrets.examine(request.scope["headers"])
    if isinstance(credentials, Refused):
        line.why = credentials.why
        raise _unauthorized()
    return credentials


def _check_signature(credentials: Accepted | Pending, body: bytes, line: _Line) -> None:
    if isinstance(credentials, Pending) and not credentials.verify(body):
        line.why = "no configured key made the signature"
        raise _unauthorized()


def _unauthorized() -> Problem:
    return Problem(UNAUTHORIZED, "give the hook the secret that the service is configured with")


def _delivery_key(credentials: Accepted | Pending, request: EdgeRequest, body: bytes) -> str:
    """The signed id, or GitLab's Idempotency-Key (from 17.4); else a hash over path and body."""
    unsigned = single_header(request.scope["headers"], b"idempotency-key")
    given = credentials.delivery_id if isinstance(credentials, Pending) else unsigned
    if (
        given.isascii()
        and given.decode("ascii").isprintable()
        and 0 < len(given) <= LONGEST_DELIVERY_KEY_BYTES
    ):
        return given.decode("ascii")
    return "sha256:" + hashlib.sha256(request.url.path.encode() + b"\n" + body).hexdigest()


def _read(body: bytes) -> Hint | Ignored:
    try:
        return read_payload(read_json(body))
    except (BadJson, BadPayload) as error:
        raise Problem(MALFORMED, str(error)) from None


async def _hand_over(engine: EnginePort, key: str, body: bytes, hint: Hint) -> DeliveryAnswer:
    delivery = Delivery(
        key=key,
        body_hash=hashlib.sha256(body).digest(),
        event=hint.event,
        project_id=hint.project_id,
        mr_iid=hint.mr_iid,
        source_branch=hint.source_branch,
    )
    return await engine.accept_delivery(delivery)


def _answer_of(answer: DeliveryAnswer) -> Response:
    match answer:
        case DeliveryAnswer.TAKEN:
            return _answer(202, "taken", "the batch is looked at now")
        case DeliveryAnswer.DUPLICATE:
            return _answer(200, "duplicate", "it came before")
        case DeliveryAnswer.NOT_OURS:
            return _answer(200, "not_ours", "no active batch has this merge request")
        case DeliveryAnswer.CONFLICT:
            raise Problem(MALFORMED, "send another Idempotency-Key: this one came before with another body")


def _answer(status: int, result: str, detail: str) -> Response:
    return JSONResponse({"result": result, "detail": detail}, status)


def _tell(engine: EnginePort, line: _Line) -> None:
    engine.ctx.metrics.webhook_answered(line.event, line.result, line.delivery_id)
    if line.result in _ACCEPTED:
        engine.ctx.metrics.webhook_accepted()
    told = current()
    told.outcome = line.result
    told.add(kind=line.event, detail=line.why or None)
    if line.result in (WebhookResult.UNAVAILABLE, WebhookResult.FAILED):
        told.loud(logging.WARNING)


_ACCEPTED: Final = frozenset(
    {WebhookResult.TAKEN, WebhookResult.DUPLICATE, WebhookResult.NOT_OURS, WebhookResult.IGNORED}
)
