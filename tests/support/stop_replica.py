"""Replicas that are told to stop: `gitlab-sync serve` as it is, forked by a parent that has imported it all.

The same parent as of replicas that are killed (`crash_replica`). A replica reads its settings from its order,
has traps at the engine's points, and may have shorter limits, so that what hangs is given up soon.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from pathlib import Path
from typing import Any, Final

from gitlab_sync import assembly, service
from gitlab_sync.cli.app import run
from gitlab_sync.cli.signals import end_on_signals
from gitlab_sync.settings import PREFIX
from tests.support.crash_flows import OUTBOX_INTERVAL_S, QUICK, Flow, partition_of
from tests.support.crash_points import How, Trap, Traps
from tests.support.crash_replica import Parent
from tests.support.engine import PARTITION
from tests.support.road import BOT_TOKEN
from tests.support.sink import SECRET

PORTAL: Final = "portal-token-of-the-tests"
HOOK_TOKEN: Final = "hook-secret-of-the-tests"
EDGE: Final = {
    "API_TOKENS": f"portal:read+submit+approve+operate:{hashlib.sha256(PORTAL.encode()).hexdigest()}",
    "WEBHOOK_TOKENS": HOOK_TOKEN,
}
IMPATIENT: Final = {
    "gitlab_sync.service.DRAIN_S": 0.5,
    "hooks.server.GRACE_S": 1,
    "hooks.server.KEPT_S": 0.3,
}


def serve(order: dict[str, Any]) -> int:
    """One replica's life; its exit code."""
    traps = Traps(*(Trap(one["point"], one["nth"], How(one["how"])) for one in order["traps"]))
    vars(assembly)["FaultPoints"] = lambda: traps
    for name, value in order.get("limits", {}).items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, value)
    os.environ.update({PREFIX + name: value for name, value in _settings(order).items()})
    end_on_signals()
    return run(["serve"])


def _settings(order: dict[str, Any]) -> dict[str, str]:
    partitions = Path(order["log"]).with_suffix(".yaml")
    partitions.write_text(_partitions(Flow(order["flow"]), order["project"]))
    more: dict[str, str] = order.get("settings", {})
    return (
        QUICK
        | EDGE
        | {
            "DATABASE_URL": order["database_url"],
            "GITLAB_URL": order["gitlab_url"],
            "GITLAB_TOKEN": BOT_TOKEN,
            "PARTITIONS": f"{partitions}",
            "LISTEN": "127.0.0.1:0",
            "NOTIFY_URL": order["notify_url"],
            "NOTIFY_SECRET": SECRET,
        }
        | more
    )


def _partitions(flow: Flow, project: str) -> str:
    one = partition_of(flow, project)
    fields = {
        "project": project,
        "target_branch": one.target_branch,
        "merge": one.merge.value,
        "on_failure": one.on_failure.value,
        "approval": one.approval.value,
    }
    return json.dumps({"partitions": {PARTITION: fields}})  # which is YAML


if __name__ == "__main__":
    service.OUTBOX_INTERVAL_S = OUTBOX_INTERVAL_S  # type: ignore[misc]  # a test does not wait for the next turn
    Parent(serve).serve()
