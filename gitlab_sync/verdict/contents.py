"""Compares what was composed with what stands on a branch, path by path, by the ids of blobs. Pure.

A tree is a mapping from path to blob id; a path that is not in it is no file there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

Blobs = Mapping[str, str]


def changed_between(before: Blobs, after: Blobs, paths: Iterable[str]) -> dict[str, str | None]:
    """Those of `paths` that differ, each with its blob in `after`; None: it is gone there."""
    return {path: after.get(path) for path in paths if before.get(path) != after.get(path)}


def strays(composed: Mapping[str, str | None], there: Blobs) -> tuple[str, ...]:
    """The paths that do not stand there as composed, in order."""
    return tuple(sorted(path for path, blob in composed.items() if there.get(path) != blob))


def is_as_composed(composed: Mapping[str, str | None], there: Blobs) -> bool:
    """True if something was composed and all of it stands there. What composed nothing proves nothing."""
    return bool(composed) and not strays(composed, there)


def unexplained(stray_paths: Iterable[str], base: Blobs, before_merge: Blobs) -> tuple[str, ...]:
    """Strays of a merge that the target's own changes do not explain.

    A path that the target had changed since our base was merged by three ways: its content is neither side's.
    """
    return tuple(path for path in stray_paths if before_merge.get(path) == base.get(path))


def dropped(stray_paths: Iterable[str], there: Blobs, before_merge: Blobs) -> tuple[str, ...]:
    """Strays that a merge left as the target had them: of what was composed nothing came in."""
    return tuple(path for path in stray_paths if there.get(path) == before_merge.get(path))


def blob_id(content: bytes, *, like: str) -> str:
    """Git's id for `content` where the commit `like` is from: SHA-1, or SHA-256 by its length."""
    algorithm = "sha256" if len(like) == 64 else "sha1"
    return hashlib.new(algorithm, b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
