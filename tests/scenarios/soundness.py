"""What must hold after every run, whatever happened in it: looks past the engine, tells breaches in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gitlab_sync.describe import parse_branch_name
from gitlab_sync.invariants import find_violations
from gitlab_sync.states import BatchStatus, OperationStatus
from tests.scenarios.stage import ENDED, Batch, Stage
from tests.support.landings import landings_in

#: Ends of a batch whose merge request did not merge and that landed all the same, or that never had one.
_LANDED_OTHERWISE = frozenset({"landed_otherwise", "already_there"})


async def faults_of(stage: Stage) -> list[str]:
    """Every breach of what must hold; empty: the run is sound."""
    found = [
        f"{one.invariant} {one.subject}: {one.detail}" for one in await find_violations(stage.one.ctx.db)
    ]
    found += _of_requests(stage)
    found += _of_notifications(stage)
    project = await stage.seen()
    log = await stage.do(stage.control.log)
    files = await stage.do(stage.control.files)
    found += _of_gitlab(project, stage.batches())
    found += _of_landings(stage, log, stage.batches())
    found += _of_files(stage, files)
    return found


def _of_requests(stage: Stage) -> Iterator[str]:
    rows = stage.run("SELECT HEX(operation_id), status FROM operation")
    if len(rows) != stage.asked:
        yield f"{len(rows)} requests are there, {stage.asked} were asked for"
    for who, status in rows:
        if status not in ENDED:
            yield f"request {who} is {OperationStatus(status).name}"
    for who, times in stage.run(
        "SELECT HEX(operation_id), COUNT(*) FROM operation_audit WHERE to_status = 4"
        " GROUP BY 1 HAVING COUNT(*) > 1"
    ):
        yield f"request {who} became MERGED {times} times"
    for who, times in stage.run(
        "SELECT HEX(m.operation_id), COUNT(*) FROM merge_batch_member m"
        " JOIN merge_batch b ON b.id = m.batch_id AND b.status = 2"
        " JOIN operation_audit a ON a.operation_id = m.operation_id AND a.batch_id = b.id AND a.to_status = 4"
        " GROUP BY 1 HAVING COUNT(*) > 1"
    ):
        yield f"request {who} landed with {times} batches"


def _of_notifications(stage: Stage) -> Iterator[str]:
    told = Counter(
        row[0]
        for row in stage.run("SELECT batch_id FROM outbox WHERE event IN ('batch.succeeded', 'batch.failed')")
    )
    for batch in stage.batches():
        if told[batch.id] != 1:
            yield f"batch {batch.id}: its end was told {told[batch.id]} times"


def _of_gitlab(project: dict[str, Any], batches: list[Batch]) -> Iterator[str]:
    if project["fsck"]:
        yield f"git fsck: {project['fsck']}"
    for branch in project["branches"]:
        if branch.startswith("gitlab-sync/"):
            yield f"branch {branch} is left behind"
    known = {batch.id: batch for batch in batches}
    made = Counter[int]()
    for shown in project["merge_requests"]:
        reference = parse_branch_name(shown["source_branch"])
        batch = known.get(reference.batch_id) if reference else None
        if batch is None:
            yield f"merge request !{shown['iid']} belongs to no batch"
            continue
        made[batch.id] += 1
        yield from _of_merge_request(shown, batch)
    for batch in batches:
        if made[batch.id] > 1:
            yield f"batch {batch.id} has {made[batch.id]} merge requests"
        if not made[batch.id] and batch.status is BatchStatus.SUCCEEDED and batch.reason == "merged":
            yield f"batch {batch.id} is merged, and GitLab knows no merge request of it"


def _of_merge_request(shown: dict[str, Any], batch: Batch) -> Iterator[str]:
    state = str(shown["state"])
    if shown["iid"] != batch.iid and batch.iid:
        yield f"batch {batch.id} recorded !{batch.iid}, GitLab has !{shown['iid']}"
    if state not in ("merged", "closed"):
        yield f"merge request !{shown['iid']} is {state}, its batch {batch.status.name}"
    elif not _agree(state, batch):
        yield f"merge request !{shown['iid']} is {state}, its batch {batch.status.name} ({batch.reason})"
    if shown["text_findings"]:
        yield f"merge request !{shown['iid']} says what GitLab acts upon: {shown['text_findings']}"


def _agree(state: str, batch: Batch) -> bool:
    is_landed = batch.status is BatchStatus.SUCCEEDED
    return (state == "merged") == is_landed or batch.reason in _LANDED_OTHERWISE


def _of_landings(stage: Stage, log: list[dict[str, Any]], batches: list[Batch]) -> Iterator[str]:
    landings = landings_in(log)
    markers = {row[0]: row[1] for row in stage.run("SELECT id, LOWER(HEX(marker)) FROM merge_batch")}
    found = {marker.replace("-", ""): times for marker, times in landings.items()}
    for batch in batches:
        times = found.pop(markers[batch.id], 0)
        wanted = int(batch.status is BatchStatus.SUCCEEDED and batch.reason != "already_there")
        if times != wanted:
            yield f"batch {batch.id} ({batch.reason}) is on the target branch {times} times, not {wanted}"
    for marker in found:
        yield f"the target branch holds a batch that nobody knows: {marker}"


def _of_files(stage: Stage, files: dict[str, str]) -> Iterator[str]:
    """Each request made one file: it is there exactly if the request is MERGED."""
    for subject, status in stage.run("SELECT subject_id, status FROM operation"):
        number = subject.decode().partition(":")[2]
        is_there = files.get(f"access/item-{number}.txt") == f"item {number}\n"
        if is_there != (status == OperationStatus.MERGED):
            how = "is" if is_there else "is not"
            yield f"request {number} is {OperationStatus(status).name}, its file {how} there"
