"""What happens, as a newcomer can follow it: the service's answers as sentences, each told once. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_NOTICED: Final = {
    "webhook": "a webhook was first to notice",
    "poller": "the poller was first to notice",
    "sweep": "the deadline sweep was first to notice",
    "operator": "an operator ended it",
}


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition as the table shows it."""

    partition: str
    waiting: int
    at_work: str
    merge_requests: int
    landed: int


class Progress:
    """Remembers what has been told of which batch."""

    def __init__(self) -> None:
        self._told: dict[int, str] = {}
        self.rows: tuple[PartitionRow, ...] = ()
        self.is_idle = False

    def see(self, partitions: Sequence[Mapping[str, Any]], batches: Sequence[Mapping[str, Any]]) -> list[str]:
        """Take in what the service says now; what is new, in sentences."""
        self.rows = tuple(_row(partition, batches) for partition in partitions)
        self.is_idle = all(one["active"] is None and one["waiting"] == 0 for one in partitions)
        oldest_first = sorted(batches, key=lambda batch: int(batch["id"]))
        return [line for batch in oldest_first for line in self._news(batch)]

    def _news(self, batch: Mapping[str, Any]) -> Iterator[str]:
        before, now = self._told.get(batch["id"], ""), _stand(batch)
        if before == now:
            return
        self._told[batch["id"]] = now
        if batch["merge_request"] and before in ("", "RUNNING"):
            yield f"{_who(batch)} carries {_requests(batch)}; one pipeline starts."
        match batch["status"]:
            case "SUCCEEDED":
                noticed = _NOTICED.get(batch["settled_via"], batch["settled_via"])
                yield f"{_who(batch)} is merged: {_requests(batch)} landed; {noticed}."
            case "FAILED":
                yield f"{_who(batch)} failed ({_reason(batch)}); its requests wait again or have failed."
            case "BLOCKED":
                yield f"{_who(batch)} needs a person: {_reason(batch)}."
            case _:
                pass


def _stand(batch: Mapping[str, Any]) -> str:
    if batch["status"] == "RUNNING" and batch["merge_request"]:
        return "PUBLISHED"
    return str(batch["status"])


def _who(batch: Mapping[str, Any]) -> str:
    merge_request = batch["merge_request"]
    name = f"merge request !{merge_request['iid']}" if merge_request else f"batch {batch['id']}"
    return f"{batch['partition']}: {name}"


def _requests(batch: Mapping[str, Any]) -> str:
    return "1 request" if batch["members"] == 1 else f"{batch['members']} requests"


def _reason(batch: Mapping[str, Any]) -> str:
    return str((batch["reason"] or {}).get("code", "no reason given"))


def _row(partition: Mapping[str, Any], batches: Sequence[Mapping[str, Any]]) -> PartitionRow:
    own = [batch for batch in batches if batch["partition"] == partition["key"]]
    at_work = next((batch for batch in own if batch["status"] in ("RUNNING", "BLOCKED")), None)
    return PartitionRow(
        partition=str(partition["key"]),
        waiting=int(partition["waiting"]),
        at_work="-" if at_work is None else _at_work(at_work),
        merge_requests=sum(batch["merge_request"] is not None for batch in own),
        landed=sum(int(batch["members"]) for batch in own if batch["status"] == "SUCCEEDED"),
    )


def _at_work(batch: Mapping[str, Any]) -> str:
    merge_request = batch["merge_request"]
    if merge_request is None:
        return f"{_requests(batch)}, being published"
    step = "asked to merge" if batch["merge_asked_at"] else "pipeline"
    return f"!{merge_request['iid']} with {_requests(batch)}: {step}"
