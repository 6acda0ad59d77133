"""What a request carries arrives byte for byte: hostile names, large and odd edits, times, priorities."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from gitlab_sync.admission import submit
from gitlab_sync.errors import InvalidRequest
from gitlab_sync.model import NewRequest
from gitlab_sync.queries import list_requests
from gitlab_sync.store import batches
from gitlab_sync.store.views import OperationFilter
from tests.conftest import MakeConnection
from tests.support.engine import engine_context, new_request, require_no_violations
from tests.support.pictures import picture
from tests.support.replicas import claimed
from tests.support.rows import operation_of

SUBJECTS = [
    "alice",
    "Alice",
    "ALICE",
    "alíce",
    "ali\u0301ce",
    "alice ",
    " alice",
    "alice\u200b",
    "alice\n",
    "alice\t",
    "\uff41\uff4c\uff49\uff43\uff45",
    "straße",
    "strasse",
    "🦊",
    "🦊🦊",
    "\u202eecila",
    "%(subject_id)s",
    "100%",
    "' OR '1'='1",
    'a"b\\c',
    "\\",
    "for key 'uk_relation'",
    "x" * 255,
    "x" * 254 + "y",
    "ü" * 127 + "z",
    "\x01\x1f\x7f",
]
JSON_PATCH: dict[str, Any] = {
    "zeta": 1,
    "a": {"ü": "🦊", "": "empty key", "q\"'\\": None},
    "numbers": [0, -1, 2**53 + 1, 2**63, 10**40, 1.5, 1e22, 0.1, True, False],
    "text": "line\nline\r\n\ttab \u2028 \x7f %s %(x)s ' \" \\",
    "b": [],
}


@pytest.mark.parametrize("field", ["subject", "target", "requested_by", "title"])
async def test_names_that_look_alike_stay_apart_and_whole(database_url: str, field: str) -> None:
    """Case, accents, width, blanks and control characters: each is found again, by exactly its own bytes."""
    async with engine_context(database_url) as ctx:
        requests = [
            named(number, field, text)
            for number, text in enumerate(SUBJECTS)
            if field != "title" or text.strip()
        ]
        await submit(ctx, requests, caller="portal")
        for request in requests:
            row = await operation_of(ctx, request.operation_id)
            assert getattr(row, field) == getattr(request, field)
        if field in ("subject", "target"):
            for request in requests:
                wanted = OperationFilter(**{field: getattr(request, field)})
                page = await list_requests(ctx, wanted)
                assert [row.operation_id for row in page.entries] == [request.operation_id]
        await require_no_violations(ctx)


async def test_names_that_cannot_be_kept_whole_are_refused(
    database_url: str, connect: MakeConnection
) -> None:
    """They are not cut and not repaired; nothing is written."""
    look = connect()
    async with engine_context(database_url) as ctx:
        before = picture(look)
        for field in ("subject", "target", "requested_by", "title"):
            for text in ("", "\0", "a\0", "\ud800", "x" * 256, "🦊" * 256):
                with pytest.raises(InvalidRequest):
                    await submit(ctx, [named(0, field, text)], caller="portal")
        assert picture(look) == before


def named(number: int, field: str, text: str) -> NewRequest:
    """A request on a relation of its own, with one of its names replaced."""
    return replace(new_request(number), **{field: text})  # type: ignore[arg-type]


def contents() -> dict[str, dict[str, Any]]:
    """Edits that a database, a JSON text or a driver might bend."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    noise = "".join(chr(dice.choice((dice.randrange(1, 0xD800), 0x1F98A))) for _ in range(2000))
    put = {"op": "put", "path": "access/file"}
    return {
        "empty": put | {"content": ""},
        "large": put | {"content": "0123456789abcde\n" * 65536},
        "large base64": put
        | {"content": base64.b64encode(dice.randbytes(1024 * 1024)).decode(), "encoding": "base64"},
        "all bytes": put
        | {"content": base64.b64encode(bytes(range(256)) * 3).decode(), "encoding": "base64"},
        "odd text": put | {"content": "\ufeff\r\n\u2028\u0085 \x01\x7f \\u0000 \\n %s %(a)s 'x' \"y\" 🦊"},
        f"noise (seed {seed})": put | {"content": noise},
        "patch": {"op": "merge", "path": "access/file.yaml", "patch": JSON_PATCH},
        "item": {"op": "ensure_item", "path": "access/file.json", "pointer": "/a~1b/~0", "item": JSON_PATCH},
    }


async def test_edits_arrive_byte_for_byte(database_url: str) -> None:
    """As the requester sees them and as publishing reads them, keys in their order, numbers exactly."""
    async with engine_context(database_url) as ctx:
        cases = contents()
        requests = [new_request(number, edits=(edit,)) for number, edit in enumerate(cases.values())]
        await submit(ctx, requests, caller="portal")
        batch = await claimed(ctx)
        members = await ctx.db.read("members", lambda session: batches.select_members(session, batch.id))
        for name, request, member in zip(cases, requests, members, strict=True):
            shown = (await operation_of(ctx, request.operation_id)).edits
            for found in (shown, member.edits):
                assert found == request.edits, name
                assert json.dumps(found) == json.dumps(request.edits), name


async def test_a_hundred_edits_of_one_request_keep_their_order(database_url: str) -> None:
    """Later edits build on earlier ones."""
    async with engine_context(database_url) as ctx:
        edits = tuple(
            {"op": "ensure_item", "path": "access/list.yaml", "pointer": "/members", "item": number}
            for number in range(100)
        )
        request = new_request(edits=edits)
        await submit(ctx, [request], caller="portal")
        assert (await operation_of(ctx, request.operation_id)).edits == edits


async def test_an_expiry_is_stored_as_it_was_meant(database_url: str, connect: MakeConnection) -> None:
    """UTC with microseconds, whatever the zone of whoever reads the table."""
    look = connect()
    moments = [
        "2031-05-06T07:08:09.123456",
        "2031-01-01T00:00:00",
        "2031-03-30T02:30:00.000001",  # does not exist in Berlin
        "9999-12-31T23:59:59.999999",
        "2096-02-29T12:00:00",
    ]
    async with engine_context(database_url) as ctx:
        requests = [
            new_request(number, expires_at=datetime.fromisoformat(moment))
            for number, moment in enumerate(moments)
        ]
        await submit(ctx, requests, caller="portal")
        for zone in ("+00:00", "-09:30"):
            with look.cursor() as cursor:
                cursor.execute("SET SESSION time_zone = %s", (zone,))
            stored = [row["expires_at"] for row in picture(look)["operation"]]
            assert stored == [request.expires_at for request in requests]
        for request in requests:
            assert (await operation_of(ctx, request.operation_id)).expires_at == request.expires_at


async def test_times_are_the_databases_and_in_utc(database_url: str, connect: MakeConnection) -> None:
    """Created when the database says it was, with six digits."""
    look = connect()
    async with engine_context(database_url) as ctx:
        await submit(ctx, [new_request(number) for number in range(3)], caller="portal")
        with look.cursor() as cursor:
            cursor.execute("SELECT UTC_TIMESTAMP(6)")
            now = cursor.fetchone()
        assert now is not None
        rows = picture(look)
        stamps = [row["created_at"] for table in ("operation", "binding", "outbox") for row in rows[table]]
        assert all(timedelta(0) <= now[0] - stamp < timedelta(minutes=1) for stamp in stamps)
        assert any(stamp.microsecond for stamp in stamps)


async def test_a_priority_is_kept_on_request_and_waiting_row(
    database_url: str, connect: MakeConnection
) -> None:
    """The round reads it from the waiting set."""
    look = connect()
    wanted = [-1_000_000, -1, 0, 1, 1_000_000]
    async with engine_context(database_url) as ctx:
        requests = [new_request(number, priority=priority) for number, priority in enumerate(wanted)]
        await submit(ctx, requests, caller="portal")
        rows = picture(look)
        for table in ("operation", "merge_batch_request"):
            assert [row["priority"] for row in rows[table]] == wanted
