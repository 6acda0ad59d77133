"""Lists for people: every filter, page by page, complete and without repeats while rows come and move."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from gitlab_sync.context import Context
from gitlab_sync.errors import InvalidRequest
from gitlab_sync.model import BatchId, OperationId
from gitlab_sync.queries import list_batches, list_requests
from gitlab_sync.states import BatchStatus, OperationStatus
from gitlab_sync.store.views import BatchFilter, OperationFilter
from tests.support.engine import PARTITION, enqueue
from tests.support.rows import ELSEWHERE, grid_context, make_batch, make_each, make_operation, operation_of

Place = tuple[OperationId, OperationStatus, str, str]


async def pages_of(ctx: Context, limit: int, **wanted: Any) -> list[list[OperationId]]:
    """Every page of a filter, as ids."""
    pages: list[list[OperationId]] = []
    position: str | None = None
    while True:
        page = await list_requests(ctx, OperationFilter(limit=limit, **wanted), position)
        pages.append([row.operation_id for row in page.entries])
        if page.next_position is None:
            return pages
        position = page.next_position


async def all_of(ctx: Context, limit: int, **wanted: Any) -> list[OperationId]:
    """Everything that the pages of a filter hold, in their order."""
    return [one for page in await pages_of(ctx, limit, **wanted) for one in page]


async def place_of(ctx: Context, operation_id: OperationId) -> Place:
    """What the filters ask about."""
    row = await operation_of(ctx, operation_id)
    return row.operation_id, row.status, row.partition_key, row.subject


async def test_every_filter_shows_exactly_what_it_names(database_url: str) -> None:
    """Each combination of status, partition, subject and target, against a look at every row."""
    async with grid_context(database_url) as ctx:
        each = list((await make_each(ctx)).values())
        each += (await make_each(ctx, first=20, key=ELSEWHERE)).values()
        rows = [await operation_of(ctx, one) for one in each]
        subjects = ("user:0", "user:6", "user:20", "nobody")
        for status, partition, subject, target in product(
            (None, *OperationStatus), (None, PARTITION, "nowhere"), (None, *subjects), (None, "db-orders")
        ):
            expected = {
                row.operation_id
                for row in rows
                if (status is None or row.status is status)
                and (partition is None or row.partition_key == partition)
                and (subject is None or row.subject == subject)
                and (target is None or row.target == target)
            }
            wanted = {"status": status, "partition": partition, "subject": subject, "target": target}
            found = await all_of(ctx, 50, **wanted)
            assert set(found) == expected, wanted
            assert len(found) == len(expected), wanted


@pytest.mark.parametrize("limit", [1, 3, 7, 20, 21])
async def test_pages_together_are_the_whole_list(database_url: str, limit: int) -> None:
    """Newest first, each full but the last, nothing twice; the last one says that it is the last."""
    async with grid_context(database_url) as ctx:
        operation_ids = await enqueue(ctx, 20)
        for wanted in (
            {},
            {"partition": PARTITION},
            {"status": OperationStatus.PENDING},
            {"status": OperationStatus.PENDING, "partition": PARTITION},
            {"target": "db-orders"},
        ):
            pages = await pages_of(ctx, limit, **wanted)
            assert [one for page in pages for one in page] == operation_ids[::-1], wanted
            assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
            assert 0 < len(pages[-1]) <= limit


async def test_an_empty_list_is_one_empty_page(database_url: str) -> None:
    """And says that it is the last."""
    async with grid_context(database_url) as ctx:
        page = await list_requests(ctx, OperationFilter())
        assert (page.entries, page.next_position) == ((), None)
        batches = await list_batches(ctx, BatchFilter())
        assert (batches.entries, batches.next_position) == ((), None)


async def test_pages_stay_whole_while_requests_come_in(database_url: str) -> None:
    """Between two pages new ones arrive: what was there at the first page is seen once, in order."""
    async with grid_context(database_url) as ctx:
        await enqueue(ctx, 9)
        filters: list[dict[str, Any]] = [{}, {"partition": PARTITION}, {"target": "db-orders"}]
        for number, wanted in enumerate(filters, start=1):
            present = await all_of(ctx, 100, **wanted)
            seen: list[OperationId] = []
            position: str | None = None
            for turn in range(3):
                page = await list_requests(ctx, OperationFilter(limit=3, **wanted), position)
                seen += [row.operation_id for row in page.entries]
                position = page.next_position
                await enqueue(ctx, 2, first=1000 * number + 10 * turn)
            assert seen == present[:9], wanted


async def test_a_list_by_status_goes_on_after_rows_that_moved_at_one_moment(database_url: str) -> None:
    """Twenty requests fail in one settlement, so at one moment: the row's number parts them."""
    async with grid_context(database_url) as ctx:
        await make_batch(ctx, BatchStatus.FAILED, members=20)
        late = await make_operation(ctx, OperationStatus.FAILED, number=50)
        found = await all_of(ctx, 3, status=OperationStatus.FAILED)
        assert found[0] == late
        assert len(found) == len(set(found)) == 21


async def test_a_list_entry_carries_everything_but_the_edits(database_url: str) -> None:
    """A page of a thousand large edits would be no page."""
    async with grid_context(database_url) as ctx:
        [operation_id] = await enqueue(ctx, 1)
        [row] = (await list_requests(ctx, OperationFilter())).entries
        whole = await operation_of(ctx, operation_id)
        assert row.edits == ()
        assert whole.edits
        assert (row.title, row.requested_by, row.version) == (whole.title, whole.requested_by, whole.version)


BAD_POSITIONS = [
    "",
    "|",
    "x",
    "1|2|3",
    "2026-01-01T00:00:00|x",
    "2026-13-01T00:00:00|1",
    "|1",
    "' OR 1=1 --|1",
    "2026-01-01T00:00:00|",
]


async def test_a_position_that_was_not_handed_out_is_refused(database_url: str) -> None:
    """With the remedy, and never as a broken page."""
    async with grid_context(database_url) as ctx:
        for position in BAD_POSITIONS:
            for status in (None, OperationStatus.PENDING):
                with pytest.raises(InvalidRequest) as refused:
                    await list_requests(ctx, OperationFilter(status=status), position)
                assert [problem.pointer for problem in refused.value.problems] == ["cursor"]
            with pytest.raises(InvalidRequest):
                await list_batches(ctx, BatchFilter(), position)


async def test_a_position_from_elsewhere_is_a_page_and_no_error(database_url: str) -> None:
    """Huge, negative, long past: nothing breaks; the page is empty or begins at the newest."""
    async with grid_context(database_url) as ctx:
        await enqueue(ctx, 2)
        for number in ("-5", "0", "9" * 19, "9" * 40):
            for moment in ("0001-01-01T00:00:00", "9999-12-31T23:59:59.999999", "2026-01-01T00:00:00+02:00"):
                for status in (None, OperationStatus.PENDING):
                    page = await list_requests(ctx, OperationFilter(status=status), f"{moment}|{number}")
                    assert len(page.entries) in (0, 2)


async def test_batches_are_listed_by_partition_and_status(database_url: str) -> None:
    """Newest first, with how many members each was claimed with; page by page like requests."""
    async with grid_context(database_url) as ctx:
        made: dict[BatchId, tuple[BatchStatus, str, int]] = {}
        statuses = (BatchStatus.SUCCEEDED, BatchStatus.FAILED, BatchStatus.SUCCEEDED, BatchStatus.BLOCKED)
        for turn, (key, status) in enumerate(product((PARTITION, ELSEWHERE), statuses)):
            members = 1 + turn % 3
            batch = await make_batch(ctx, status, members=members, first=10 * turn, key=key)
            made[batch.id] = (status, key, members)
        for status_wanted, key_wanted in product((None, *BatchStatus), (None, PARTITION, ELSEWHERE, "none")):
            expected = [
                (batch_id, count)
                for batch_id, (status, key, count) in sorted(made.items(), reverse=True)
                if status_wanted in (None, status) and key_wanted in (None, key)
            ]
            found: list[tuple[BatchId, int]] = []
            position: str | None = None
            while True:
                wanted = BatchFilter(status=status_wanted, partition=key_wanted, limit=2)
                page = await list_batches(ctx, wanted, position)
                found += [(summary.batch.id, summary.members) for summary in page.entries]
                position = page.next_position
                if position is None:
                    break
            assert found == expected, (status_wanted, key_wanted)
