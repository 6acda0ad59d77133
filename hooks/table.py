"""The route table: every path that is served, in one list. What each does is in its handler."""

from __future__ import annotations

from typing import Final

from gitlab_sync.setting_values import Scope
from hooks import probes
from hooks.api import batches, partitions, requests
from hooks.api.incoming import BatchMoveIn, EmptyIn, MoveIn, PauseIn, RequestIn
from hooks.api.shapes import (
    AcceptedOut,
    BatchDetailOut,
    BatchPageOut,
    PartitionListOut,
    PartitionOut,
    RequestDetailOut,
    RequestOut,
    RequestPageOut,
    RoundOut,
)
from hooks.endpoints import Endpoint, Handler, Parameter
from hooks.problems import (
    COMMIT_UNKNOWN,
    FORBIDDEN,
    INTERNAL,
    INVALID,
    KEY_REUSED,
    MALFORMED,
    NOT_FOUND,
    OPERATION_EXISTS,
    RELATION_BUSY,
    STALE,
    TOO_LARGE,
    TOO_SLOW,
    TWIN_IN_FLIGHT,
    UNAUTHORIZED,
    UNAVAILABLE,
    UNSUPPORTED,
)
from hooks.receiver import receive_hook

_READING: Final = (UNAUTHORIZED, FORBIDDEN, INVALID, INTERNAL, UNAVAILABLE)
_WRITING: Final = (MALFORMED, *_READING, TOO_SLOW, TOO_LARGE, UNSUPPORTED, COMMIT_UNKNOWN)
_MOVING: Final = (*_WRITING, NOT_FOUND, STALE)

_STATUS: Final = Parameter("status", "Only those in this status.")
_PARTITION: Final = Parameter("partition", "Only those of this partition.")
_PAGE: Final = (
    Parameter("cursor", "`next_cursor` of the page before."),
    Parameter("limit", "Entries of a page, 1 to 200; 50 if absent."),
)
_SUBMIT_KEY: Final = Parameter("Idempotency-Key", "Makes the same call safe to repeat.", "header")

_REQUEST: Final = "/api/v1/requests/{operation_id}"
_BATCH: Final = "/api/v1/batches/{batch_id}"
_ONE_PARTITION: Final = "/api/v1/partitions/{key}"


def _move(verb: str, scope: Scope, handler: Handler) -> Endpoint:
    return Endpoint(
        "POST",
        f"{_REQUEST}/{verb}",
        f"{verb}_request",
        f"{verb.capitalize()} a request.",
        handler,
        scope,
        body=MoveIn,
        answers={200: ("The request after the move.", RequestDetailOut)},
        problems=_MOVING,
    )


def _batch_move(verb: str, handler: Handler) -> Endpoint:
    return Endpoint(
        "POST",
        f"{_BATCH}/{verb}",
        f"{verb}_batch",
        f"{verb.capitalize()} a batch.",
        handler,
        Scope.OPERATE,
        body=BatchMoveIn,
        answers={202: ("Taken on; how it ends shows in the batch.", AcceptedOut)},
        problems=_MOVING,
    )


REQUESTS: Final = (
    Endpoint(
        "POST",
        "/api/v1/requests",
        "submit_requests",
        "Submit one request, or up to 1,000 that are taken together or not at all.",
        requests.submit,
        Scope.SUBMIT,
        body=RequestIn | list[RequestIn],
        parameters=(_SUBMIT_KEY,),
        answers={
            201: ("Admitted.", RequestDetailOut | list[RequestOut]),
            200: (
                "The same key and body came before; nothing was written.",
                RequestDetailOut | list[RequestOut],
            ),
        },
        problems=(*_WRITING, RELATION_BUSY, OPERATION_EXISTS, TWIN_IN_FLIGHT, KEY_REUSED),
    ),
    Endpoint(
        "GET",
        "/api/v1/requests",
        "list_requests",
        "List requests, newest first.",
        requests.list_requests,
        Scope.READ,
        parameters=(
            _STATUS,
            _PARTITION,
            Parameter("subject", "Only those of this subject."),
            Parameter("target", "Only those on this target."),
            *_PAGE,
        ),
        answers={200: ("A page.", RequestPageOut)},
        problems=_READING,
    ),
    Endpoint(
        "GET",
        _REQUEST,
        "show_request",
        "Show one request with its batch, its place in the waiting set and its history.",
        requests.show_request,
        Scope.READ,
        answers={200: ("The request.", RequestDetailOut)},
        problems=(*_READING, NOT_FOUND),
    ),
    _move("approve", Scope.APPROVE, requests.approve),
    _move("reject", Scope.APPROVE, requests.reject),
    _move("close", Scope.SUBMIT, requests.close),
    _move("retry", Scope.SUBMIT, requests.retry),
)

BATCHES: Final = (
    Endpoint(
        "GET",
        "/api/v1/batches",
        "list_batches",
        "List batches, newest first.",
        batches.list_batches,
        Scope.READ,
        parameters=(_STATUS, _PARTITION, *_PAGE),
        answers={200: ("A page.", BatchPageOut)},
        problems=_READING,
    ),
    Endpoint(
        "GET",
        _BATCH,
        "show_batch",
        "Show one batch with everybody who was in it.",
        batches.show_batch,
        Scope.READ,
        answers={200: ("The batch.", BatchDetailOut)},
        problems=(*_READING, NOT_FOUND),
    ),
    _batch_move("retry", batches.retry_batch),
    _batch_move("fail", batches.fail_batch),
)

PARTITIONS: Final = (
    Endpoint(
        "GET",
        "/api/v1/partitions",
        "list_partitions",
        "List the configured partitions as they stand.",
        partitions.list_partitions,
        Scope.READ,
        answers={200: ("All of them.", PartitionListOut)},
        problems=_READING,
    ),
    Endpoint(
        "POST",
        f"{_ONE_PARTITION}/rounds",
        "run_round",
        "Try one round now.",
        partitions.run_round,
        Scope.OPERATE,
        body=EmptyIn,
        answers={200: ("What it came to.", RoundOut)},
        problems=(*_WRITING, NOT_FOUND),
    ),
    Endpoint(
        "POST",
        f"{_ONE_PARTITION}/pause",
        "pause_partition",
        "Claim nothing more until it is resumed.",
        partitions.pause,
        Scope.OPERATE,
        body=PauseIn,
        answers={200: ("The partition.", PartitionOut)},
        problems=_MOVING,
    ),
    Endpoint(
        "POST",
        f"{_ONE_PARTITION}/resume",
        "resume_partition",
        "Let rounds claim again.",
        partitions.resume,
        Scope.OPERATE,
        body=EmptyIn,
        answers={200: ("The partition.", PartitionOut)},
        problems=_MOVING,
    ),
)

HOOKS: Final = (
    Endpoint(
        "POST",
        "/hooks/gitlab",
        "gitlab_hook",
        "Take a webhook of GitLab as a hint to look.",
        receive_hook,
        answers={202: ("Taken.", None), 200: ("Duplicate, ignored, or not ours.", None)},
        problems=(MALFORMED, UNAUTHORIZED, TOO_SLOW, TOO_LARGE, UNSUPPORTED, INTERNAL, UNAVAILABLE),
    ),
)

PROBES: Final = (
    Endpoint("GET", "/livez", "livez", "Is the process alive?", probes.livez, answers={200: ("Yes.", None)}),
    Endpoint(
        "GET",
        "/readyz",
        "readyz",
        "Should this replica get traffic?",
        probes.readyz,
        answers={200: ("Yes.", None), 503: ("No; `checks` names what is missing.", None)},
    ),
    Endpoint(
        "GET", "/metrics", "metrics", "Prometheus metrics.", probes.metrics, answers={200: ("All.", None)}
    ),
    Endpoint(
        "GET", "/openapi.json", "openapi", "This document.", probes.openapi, answers={200: ("It.", None)}
    ),
)

PUBLIC: Final[tuple[Endpoint, ...]] = (*HOOKS, *REQUESTS, *BATCHES, *PARTITIONS)
ALL: Final[tuple[Endpoint, ...]] = (*PUBLIC, *PROBES)
