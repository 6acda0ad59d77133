"""Two thousand hostile requests: no 500, no traceback, and nothing lands that the policy forbids.

A thousand on each server, made by Hypothesis, over real HTTP into the real engine; what is accepted is
landed through the simulated GitLab, and its real git is what the test looks at. The oracle knows nothing of
`edits.paths`: it says in its own few lines what may never be in the repository.
"""

from __future__ import annotations

import asyncio
import json
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitlab_sync.context import Context
from gitlab_sync.rounds import RoundResult, run_round
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.service import Engine
from gitlab_sync.states import Via
from tests.support.api import VARIABLES
from tests.support.edge import ALL_SCOPES, bearer, served
from tests.support.engine import (
    PARTITION,
    engine_context,
    gitlab_client,
    partition,
    require_no_violations,
)
from tests.support.git_tree import EXECUTABLE, LINK, tree_of
from tests.support.log_lines import logging_restored
from tests.support.road import BOT_TOKEN, PATH, batch_of, until_settled

REQUESTS: Final = 1_000
MOST_ROUNDS: Final = 6
QUICK: Final = {"MERGE_CHECK_S": "0.05", "POLL_INTERVAL_S": "0.2", "ROUND_INTERVAL_S": "0.1"}
CI: Final = "test:\n  script: [make]\n"
OWNERS: Final = "* @platform\n"
START: Final = {
    "README.md": "# access\n",
    "CODEOWNERS": OWNERS,
    ".gitlab-ci.yml": CI,
    "access/db.yaml": "# who may\nmembers: {alice: {role: reader}}\nlist: [1]\n",
    "access/locked/root.yaml": "owner: root\n",
    "access/run.sh": "make\n",
}
LINKS: Final = {
    "access/hooks": "../.gitlab-ci.yml",
    "access/link.yaml": "locked/root.yaml",
    "access/out": "locked",
}
CHANGEABLE: Final = ("access/db.yaml", "access/run.sh")
CONTROL_FILES: Final = ("codeowners", ".gitattributes", ".gitmodules", ".lfsconfig", ".gitlab-ci.yml")

names = st.sampled_from(
    [
        *(
            "access",
            "db.yaml",
            "x.json",
            "new.txt",
            "..",
            ".",
            "",
            ".git",
            ".GIT",
            "git~1",
            ".g\u200bit",
            "hooks",
            "link.yaml",
            "out",
            "run.sh",
            "DB.yaml",
            "Access",
        ),
        *(
            ".gitlab-ci.yml",
            ".GitLab-CI.yml",
            "CODEOWNERS",
            "\uff23\uff2f\uff24\uff25\uff2f\uff37\uff2e\uff25\uff32\uff33",
            ".gitattributes",
            ".gitmodules",
        ),
        *(
            "locked",
            "LOCKED",
            "locKed",
            "a\\b",
            "C:",
            "con",
            "a ",
            "a.",
            "caf\u00e9",
            "cafe\u0301",
            "\u202etxt.exe",
        ),
        *(
            "\x00",
            "a\nb",
            "%2e%2e",
            "x" * 255,
            "x" * 256,
            ".git::$INDEX_ALLOCATION",
            "-rf",
            "$(id)",
            "root.yaml",
        ),
    ]
)
paths = (
    st.lists(names, min_size=1, max_size=4).map("/".join)
    | st.lists(names, min_size=1, max_size=3).map(lambda parts: "access/" + "/".join(parts))
    | st.integers(0, 500).map("access/item-{}.yaml".format)
    | st.text(max_size=30)
)
texts = st.text(max_size=30) | st.sampled_from(
    [
        "/merge",
        "@all",
        "[skip ci]",
        "Closes #1",
        "Draft: x",
        "</table><script>",
        "a\r\nChangelog: x",
        "~bug %1",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
plain = st.fixed_dictionaries({"op": st.just("put"), "path": paths, "content": texts})
edits = (
    plain
    | st.fixed_dictionaries({"op": st.just("delete"), "path": paths})
    | st.fixed_dictionaries({"op": st.just("merge"), "path": paths, "patch": st.dictionaries(texts, values)})
    | st.fixed_dictionaries(
        {
            "op": st.sampled_from(["ensure_item", "remove_item"]),
            "path": paths,
            "pointer": st.sampled_from(["", "/", "/list", "/list/0", "/~2", "/members/alice", "list"]),
            "item": values,
        }
    )
    | st.fixed_dictionaries({"op": st.just("put"), "path": paths, "content": values, "encoding": texts})
    | st.dictionaries(st.sampled_from(["op", "path", "content", "patch", "if_match", "mode"]), values)
)
# Most of a request is sane, so that the hostile part of it gets as far as it can.
sane = st.builds(
    lambda number, edit: {
        "partition": PARTITION,
        "subject": f"user:{number}",
        "target": "db-orders",
        "action": "apply",
        "edits": [edit],
        "title": f"request {number}",
        "requested_by": "alice",
    },
    st.integers(1, 10**9),
    plain
    | st.integers(0, 500).map(
        lambda number: {"op": "put", "path": f"access/item-{number}.yaml", "content": "x: 1\n"}
    ),
)
twists = st.fixed_dictionaries(
    {},
    optional={
        "subject": texts,
        "target": texts,
        "action": st.sampled_from(["apply", "amend", "remove", "drop"]),
        "edits": st.lists(edits, min_size=1, max_size=2) | values,
        "title": texts,
        "requested_by": texts,
        "expires_at": texts,
        "priority": values,
        "owner": values,
    },
)
requests = sane | st.builds(lambda body, twist: body | twist, sane, twists)


@dataclass(slots=True)
class Town:
    """One loop with service and simulator on it, so that each example may be a plain function."""

    loop: asyncio.Runner
    client: httpx2.AsyncClient
    ctx: Context
    gitlab: Running
    statuses: Counter[int] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)

    def submit(self, body: Any) -> httpx2.Response:
        content = json.dumps(body).encode("utf-8", "surrogatepass")
        headers = {"Content-Type": "application/json"}
        answer = self.loop.run(self.client.post("/api/v1/requests", content=content, headers=headers))
        self.statuses[answer.status_code] += 1
        return answer

    async def land(self) -> int:
        """Rounds until nothing waits, or as many as a test has time for; how many batches were made."""
        for number in range(MOST_ROUNDS):
            report = await run_round(self.ctx, PARTITION, via=Via.ROUND)
            if report.result is not RoundResult.CLAIMED or report.batch_id is None:
                return number
            try:
                await until_settled(self.ctx, report.batch_id)
            except AssertionError:
                raise AssertionError(await batch_of(self.ctx, report.batch_id)) from None
        return MOST_ROUNDS


@asynccontextmanager
async def opened(running: Running, database_url: str) -> AsyncIterator[tuple[httpx2.AsyncClient, Context]]:
    """The API over an engine whose partition may change `access/`, but not `access/locked/`."""
    policy = partition(project=PATH, allowed_paths=("access/**",), protected_paths=("access/locked/**",))
    async with (
        gitlab_client(running.base_url, BOT_TOKEN) as gitlab,
        engine_context(database_url, policy, gitlab=gitlab, variables=VARIABLES | QUICK) as ctx,
        served(Engine(ctx)) as client,
    ):
        client.headers.update(bearer(ALL_SCOPES))
        yield client, ctx


@pytest.fixture
def town(simulator: Running, database_url: str) -> Iterator[Town]:
    """Service and simulator; what the service logs is kept."""
    modes = dict.fromkeys(LINKS, LINK) | {"access/run.sh": EXECUTABLE}
    simulator.control.push(PATH, "main", START | LINKS, modes=modes)
    with asyncio.Runner() as loop:
        opening = opened(simulator, database_url)
        client, ctx = loop.run(opening.__aenter__())
        town = Town(loop, client, ctx, simulator)

        def keep(_logger: object, _method: str, line: MutableMapping[str, Any]) -> Any:
            town.lines.append(repr(line))
            raise structlog.DropEvent

        try:
            with logging_restored():
                structlog.configure(processors=[keep])
                yield town
        finally:
            loop.run(opening.__aexit__(None, None, None))


def forbidden(path: str) -> str:
    """Why a landed path should never be there; empty: it may."""
    folded = unicodedata.normalize("NFKC", path).casefold()
    parts = folded.split("/")
    hidden = [sign for sign in path if unicodedata.category(sign) in ("Cc", "Cf", "Cs")]
    rules = {
        "outside of access/": not path.startswith("access/"),
        "in the protected folder": folded.startswith("access/locked/"),
        "leads elsewhere": bool({"", ".", "..", ".git", "git~1"} & set(parts)),
        "a control file": bool(set(CONTROL_FILES) & set(parts)),
        "hidden characters": bool(hidden) or "\\" in path,
        "over-long": any(len(part.encode()) > 255 for part in path.split("/")),
    }
    return ", ".join(rule for rule, is_broken in rules.items() if is_broken)


def spelled_alike(paths: Iterable[str]) -> list[list[str]]:
    """Paths of which some checkout could hold only one."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(unicodedata.normalize("NFKC", path).casefold(), []).append(path)
    return [group for group in groups.values() if len(group) > 1]


def test_two_thousand_hostile_requests_break_nothing_and_land_nothing_forbidden(
    town: Town, tmp_path: Path
) -> None:
    """Every answer is 201 or a refusal with a remedy; the tree holds nothing that the oracle forbids."""

    @settings(max_examples=REQUESTS, suppress_health_check=list(HealthCheck), database=None)
    @given(requests | values)
    def each(body: Any) -> None:
        answer = town.submit(body)
        assert answer.status_code in (201, 400, 409, 422), (answer.status_code, answer.text)
        assert answer.status_code == 201 or answer.json()["detail"], answer.text
        assert "Traceback" not in answer.text

    each()
    assert town.statuses.keys() >= {201, 422}, town.statuses
    assert town.statuses[201] >= REQUESTS // 20, town.statuses
    batches = town.loop.run(town.land())
    assert batches > 0
    files = town.gitlab.control.files(PATH)
    tree = tree_of(tmp_path / "repositories")
    links = {path: files[path] for path, mode in tree.items() if mode == LINK}
    assert links.items() <= LINKS.items()  # one may be deleted, none is led elsewhere
    assert {path for path, mode in tree.items() if mode == EXECUTABLE} <= {"access/run.sh"}
    assert spelled_alike(tree) == []
    new = files.keys() - START.keys() - LINKS.keys()
    assert len(new) >= REQUESTS // 100, sorted(new)
    assert {path: why for path in new if (why := forbidden(path))} == {}
    untouched = {path: files.get(path) for path in START if path not in CHANGEABLE}
    assert untouched == {path: START[path] for path in untouched}
    assert not [line for line in town.lines if "exc_info" in line or "Traceback" in line][:3]
    town.loop.run(require_no_violations(town.ctx))
