"""Reads what the members' edits need at a commit and composes them there: for publish and for a rebuild.

Reads only; a commit never changes, so two who compose on one commit get the same. What is read is bounded:
members that do not fit into one commit wait, and files are read no further than that.

A project may keep its CI configuration under a name of its own; then that file is protected like the usual
one. Only GitLab knows it, so it is asked each time, and whoever edits it fails here, not at admission.

Races considered:
A  the project's CI file gets another name between composing and merging: the file that ran is what was
   composed against; people who may change that setting may change the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from posixpath import normpath
from typing import Final

from gitlab_sync import policy
from gitlab_sync.base_files import Exists
from gitlab_sync.compose import Composition, paths_to_read, paths_touched
from gitlab_sync.context import Context
from gitlab_sync.errors import GitLabRefused
from gitlab_sync.lawful import MOST_READ_BYTES, compose_fitting, first_fitting, sorted_out
from gitlab_sync.log_words import Event
from gitlab_sync.model import BatchRow, MemberRow, ProjectId, ProjectInfo
from gitlab_sync.target_tree import MOST_ENTRIES, EntryKind, Search, may_be_link

READ_AT_ONCE: Final = 16
_STANDING: Final[Mapping[EntryKind, Exists]] = {
    EntryKind.FILE: Exists.UNREAD,
    EntryKind.LINK: Exists.LINK,
    EntryKind.FOLDER: Exists.FOLDER,
    EntryKind.SUBMODULE: Exists.SUBMODULE,
}


async def compose_on(
    ctx: Context, batch: BatchRow, project_id: ProjectId, base_sha: str, members: Sequence[MemberRow]
) -> Composition:
    """Compose `members` on `base_sha`, under the policy the batch runs under.

    In a thread: parsing can take long. A member that is not lawful, too large or in the way of what stands
    on the target fails alone.
    """
    ran_under, project = policy.recorded(batch.policy), await ctx.gitlab.project(project_id)
    bounds = replace(ran_under, protected_paths=(*ran_under.protected_paths, *own_ci_files(project)))
    lawful, refused = await asyncio.to_thread(sorted_out, members, bounds)
    fitting = await asyncio.to_thread(first_fitting, lawful)
    existing = await _existing(ctx, project_id, base_sha, fitting)
    composition = await asyncio.to_thread(compose_fitting, fitting, existing)
    waiting = tuple(member.operation_id for member in lawful[len(fitting) :])
    return replace(
        composition,
        failed=(*composition.failed, *refused),
        deferred=(*composition.deferred, *waiting),
    )


def own_ci_files(project: ProjectInfo) -> tuple[str, ...]:
    """The project's own CI configuration, if its name is not the usual one and it is a file in this project.

    GitLab also takes an address, or `file@group/project:ref` of another project. However it is written there,
    requests name it the one plain way (`edits.paths`), so that is what is protected. Pure.
    """
    path, at, elsewhere = project.ci_config_path.strip().partition("@")
    is_elsewhere = "://" in path or (at and elsewhere.partition(":")[0] != project.path)
    plain = normpath(path.lstrip("/")) if path and not is_elsewhere else "."
    return () if plain == "." else (plain,)


async def _existing(
    ctx: Context, project_id: ProjectId, base_sha: str, members: Sequence[MemberRow]
) -> dict[str, bytes | Exists]:
    """What stands at the members' paths, and what stands in the way of those that are new."""
    touched = paths_touched(members)
    there = await ctx.gitlab.existing_paths(project_id, base_sha, touched)
    existing: dict[str, bytes | Exists] = dict.fromkeys(there, Exists.UNREAD)
    existing |= await _contents(
        ctx, project_id, base_sha, [path for path in paths_to_read(members) if path in there]
    )
    unsure = [path for path in touched if path not in there]
    unsure += [path for path, one in existing.items() if isinstance(one, bytes) and may_be_link(one)]
    for path, kind in (await _in_the_way(ctx, project_id, base_sha, unsure)).items():
        if path not in existing or kind is not EntryKind.FILE:
            existing[path] = _STANDING[kind]
    return existing


async def _contents(
    ctx: Context, project_id: ProjectId, base_sha: str, paths: Sequence[str]
) -> dict[str, bytes | Exists]:
    """The contents in the order of `paths`, until there are more bytes than fit into any commit."""
    found: dict[str, bytes | Exists] = {}
    total_bytes = 0
    for start in range(0, len(paths), READ_AT_ONCE):
        if total_bytes >= MOST_READ_BYTES:
            break
        part = paths[start : start + READ_AT_ONCE]
        contents = await asyncio.gather(*(_content(ctx, project_id, path, base_sha) for path in part))
        found |= {path: one for path, one in zip(part, contents, strict=True) if one is not None}
        total_bytes += sum(len(one) for one in contents if isinstance(one, bytes))
    return found


async def _content(ctx: Context, project_id: ProjectId, path: str, base_sha: str) -> bytes | Exists | None:
    try:
        file = await ctx.gitlab.read_file(project_id, path, base_sha)
    except GitLabRefused as refused:
        if refused.status != 413:
            raise
        return Exists.TOO_LARGE
    return None if file is None else file.content


async def _in_the_way(
    ctx: Context, project_id: ProjectId, base_sha: str, paths: Iterable[str]
) -> dict[str, EntryKind]:
    """See `target_tree`; a folder too large to be looked through is told."""
    search = Search(paths)
    folders = [""] if search.is_needed else []
    while folders:
        listings = await asyncio.gather(
            *(ctx.gitlab.list_folder(project_id, base_sha, folder, most=MOST_ENTRIES) for folder in folders)
        )
        huge = [folder for folder, rows in zip(folders, listings, strict=True) if len(rows) >= MOST_ENTRIES]
        for folder in huge:
            ctx.log.warning(Event.FOLDER_TOO_LARGE, detail=folder)
        folders = search.take(entry for rows in listings for entry in rows)
    return search.found
