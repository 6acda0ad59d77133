"""Edits meet what stands on the target branch: links, submodules, twins, folders, modes, and too much."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from gitlab_sync import composing, lawful
from gitlab_sync.admission import submit
from gitlab_sync.context import Context
from gitlab_sync.model import OperationId
from gitlab_sync.queries import request_view
from gitlab_sync.rounds import RoundResult, run_round
from gitlab_sync.sandbox.simulator import Running
from gitlab_sync.states import Via
from tests.support.engine import PARTITION, new_request, require_no_violations
from tests.support.git_tree import EXECUTABLE, LINK, PLAIN, SUBMODULE, tree_of
from tests.support.road import PATH, furnish, road, until_settled

LFS: Final = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
START: Final = {
    "access/db.yaml": "members: {}\n",
    "access/README": "read me\n",
    "access/caf\u00e9/x.yaml": "x: 1\n",
    "access/Teams/Blue.yaml": "x: 1\n",
    "access/link.yaml": "../.gitlab-ci.yml",
    "access/out": "../secrets",
    "access/vendor": "1" * 40,
    "access/run.sh": "#!/bin/sh\n",
    "access/one-line.json": '{"a":1}',
    "access/big.json": LFS,
}
MODES: Final = {
    "access/link.yaml": LINK,
    "access/out": LINK,
    "access/vendor": SUBMODULE,
    "access/run.sh": EXECUTABLE,
}


def put(path: str, content: str = "x: 2\n") -> dict[str, Any]:
    """Write a whole file."""
    return {"op": "put", "path": path, "content": content}


def merge(path: str) -> dict[str, Any]:
    """Change one key."""
    return {"op": "merge", "path": path, "patch": {"x": 2}}


def delete(path: str) -> dict[str, Any]:
    """Take a file away."""
    return {"op": "delete", "path": path}


@pytest.fixture
def furnished(simulator: Running) -> Running:
    """A project whose tree has one of everything."""
    furnish(simulator)
    simulator.control.push(PATH, "main", START, modes=MODES)
    return simulator


async def asked(ctx: Context, *edits: dict[str, Any]) -> list[OperationId]:
    """One request for each edit, all in one call."""
    requests = [new_request(number, edits=(edit,)) for number, edit in enumerate(edits)]
    return list((await submit(ctx, requests, caller="portal")).operation_ids)


async def land_all(ctx: Context) -> int:
    """Rounds until nothing waits; how many batches there were."""
    for number in range(20):
        report = await run_round(ctx, PARTITION, via=Via.ROUND)
        if report.result is not RoundResult.CLAIMED or report.batch_id is None:
            return number
        await until_settled(ctx, report.batch_id)
    raise AssertionError("something still waits after twenty rounds")


async def fates(ctx: Context, operation_ids: list[OperationId]) -> list[str]:
    """What became of each request: its reason if it failed, else its status."""
    views = [await request_view(ctx, one) for one in operation_ids]
    return [
        (view.operation.reason_code if view.operation.status.name == "FAILED" else None)
        or view.operation.status.name
        for view in views
        if view is not None
    ]


async def test_nothing_is_written_through_a_link_a_submodule_or_over_a_folder(
    furnished: Running, database_url: str, tmp_path: Path
) -> None:
    """Each such member fails alone with a reason, the good ones land, and every mode is as it was."""
    bad = (
        *(put("access/link.yaml"), merge("access/link.yaml"), put("access/out/x.yaml")),
        *(delete("access/out/x.yaml"), put("access/vendor"), put("access/vendor/x.yaml")),
        *(put("access/Teams"), delete("access/Teams")),
    )
    async with road(furnished, database_url) as ctx:
        ids = await asked(ctx, *bad, put("access/run.sh", "#!/bin/bash\n"), merge("access/one-line.json"))
        await land_all(ctx)
        assert await fates(ctx, ids) == ["not_a_file"] * len(bad) + ["MERGED", "MERGED"]
        told = await request_view(ctx, ids[2])
        assert told is not None
        assert "access/out, which is a symbolic link" in str(told.operation.reason_text)
        await require_no_violations(ctx)
    tree = tree_of(tmp_path / "repositories")
    assert {path: tree[path] for path in MODES} == MODES
    assert len(tree) == len(START) + 1  # README.md


async def test_a_new_name_does_not_stand_beside_its_twin_on_the_target(
    furnished: Running, database_url: str, tmp_path: Path
) -> None:
    """In other letter case or Unicode form, also below a folder's twin; what only looks similar lands."""
    twins = (put("access/readme"), put("access/teams/blue.yaml"), put("access/README/x"), put("access/teams"))
    good = (put("access/teams/red.yaml"), merge("access/db.yaml"), put("access/caf\u00e9/y.yaml"))
    async with road(furnished, database_url) as ctx:
        ids = await asked(ctx, *twins, *good)
        await land_all(ctx)
        assert await fates(ctx, ids) == ["path_collision"] * len(twins) + ["MERGED"] * len(good)
    assert {"access/teams/red.yaml", "access/caf\u00e9/y.yaml"} <= tree_of(tmp_path / "repositories").keys()


async def test_a_link_may_be_deleted_and_its_name_used_in_a_later_round(
    furnished: Running, database_url: str, tmp_path: Path
) -> None:
    """Taking the link away writes nothing anywhere else."""
    async with road(furnished, database_url) as ctx:
        ids = await asked(ctx, delete("access/link.yaml"), put("access/link.yaml"))
        assert await land_all(ctx) == 2
        assert await fates(ctx, ids) == ["MERGED", "MERGED"]
    assert tree_of(tmp_path / "repositories")["access/link.yaml"] == PLAIN


async def test_a_file_in_lfs_is_not_edited_by_its_pointer(furnished: Running, database_url: str) -> None:
    """A put would break every checkout, a merge would replace the pointer by a document."""
    async with road(furnished, database_url) as ctx:
        ids = await asked(ctx, put("access/big.json"), merge("access/big.json"))
        await land_all(ctx)
        assert await fates(ctx, ids) == ["lfs_pointer", "lfs_pointer"]


async def test_a_batch_that_is_too_much_for_one_commit_lands_in_several(
    furnished: Running, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By files, by what is edited and by what is read; only the one that never fits fails."""
    monkeypatch.setattr(lawful, "MOST_FILES", 3)
    monkeypatch.setattr(lawful, "MOST_BYTES", 4000)
    monkeypatch.setattr(lawful, "MOST_BYTES_ALONE", 6000)
    monkeypatch.setattr(lawful, "MOST_READ_BYTES", 6001)
    monkeypatch.setattr(composing, "MOST_READ_BYTES", 6001)
    monkeypatch.setattr(composing, "READ_AT_ONCE", 1)
    sizes = {"a": 1500, "b": 1500, "c": 1500, "huge": 7000, "d": 100}
    files = {f"access/{name}.yaml": "# " + "x" * size + "\na: 1\n" for name, size in sizes.items()}
    furnished.control.push(PATH, "main", files)
    async with road(furnished, database_url) as ctx:
        ids = await asked(ctx, *(merge(path) for path in files), *(put(f"access/n{n}") for n in range(4)))
        async with asyncio.timeout(60):
            assert await land_all(ctx) >= 3
        wanted = ["MERGED"] * 3 + ["commit_too_large"] + ["MERGED"] * 5
        assert await fates(ctx, ids) == wanted
        await require_no_violations(ctx)


async def test_a_file_larger_than_any_that_is_edited_does_not_hold_up_the_round(
    furnished: Running, database_url: str
) -> None:
    """Its answer is not read to the end: who edits it fails, who replaces it lands, the others too."""
    furnished.control.push(PATH, "main", {f"access/{name}": "x" * 4_000_000 for name in ("1.yaml", "2.yaml")})
    async with road(furnished, database_url) as ctx:
        ids = await asked(ctx, merge("access/1.yaml"), put("access/2.yaml"), merge("access/db.yaml"))
        await land_all(ctx)
        assert await fates(ctx, ids) == ["document_too_large", "MERGED", "MERGED"]
