"""Reads what the members' edits need at a commit and composes them there: for publish and for a rebuild.

Reads only; a commit never changes, so two who compose on one commit get the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gitlab_sync import policy
from gitlab_sync.compose import Composition, Exists, paths_to_read, paths_touched
from gitlab_sync.context import Context
from gitlab_sync.lawful import compose_lawful, folders_of
from gitlab_sync.model import BatchRow, MemberRow, ProjectId


async def compose_on(
    ctx: Context, batch: BatchRow, project_id: ProjectId, base_sha: str, members: Sequence[MemberRow]
) -> Composition:
    """Compose `members` on `base_sha`, under the policy the batch runs under.

    In a thread: parsing can take long. The files that stand where an edit needs a folder are read too, so
    that such a member fails alone.
    """
    touched = paths_touched(members)
    there = await ctx.gitlab.existing_paths(project_id, base_sha, (*touched, *folders_of(touched)))
    wanted = [path for path in paths_to_read(members) if path in there]
    found = await asyncio.gather(*(ctx.gitlab.read_file(project_id, path, base_sha) for path in wanted))
    existing: dict[str, bytes | Exists] = dict.fromkeys(there, Exists.UNREAD)
    existing |= {file.path: file.content for file in found if file is not None}
    return await asyncio.to_thread(compose_lawful, members, existing, policy.recorded(batch.policy))
