"""The edits that take a request's edits back, for the day on which its relation expires. Pure.

A `put` is taken back by deleting the file, `ensure_item` by `remove_item`, a `merge` by the same patch with
every leaf null; the last edit first, and without `if_match`, because the files have changed since. So what
the request brought goes away. What was there before does not come back: whoever wants that, or has edits
that only take away, says in `on_expiry` what shall be done instead. Never guesses: an edit that has no
inverse is named. Knows nothing of the requests before: the end of an amend is said by whoever asks for it
(`validation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from gitlab_sync.edits.ops import Op


class CannotInvert(ValueError):
    """Edit `index` of a request cannot be taken back without being told how; the message says why."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.index = index


def inverse(edits: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The edits that undo `edits`, which were checked before. Raises CannotInvert."""
    inverted = [_inverse_of(index, edit) for index, edit in enumerate(edits)]
    return tuple(reversed(inverted))


def _inverse_of(index: int, edit: Mapping[str, Any]) -> dict[str, Any]:
    path = edit["path"]
    match Op(edit["op"]):
        case Op.PUT:
            return {"op": Op.DELETE.value, "path": path}
        case Op.ENSURE_ITEM:
            pointer, item = edit["pointer"], edit["item"]
            return {"op": Op.REMOVE_ITEM.value, "path": path, "pointer": pointer, "item": item}
        case Op.MERGE:
            return {"op": Op.MERGE.value, "path": path, "patch": _without_leaves(index, edit["patch"])}
        case Op.DELETE | Op.REMOVE_ITEM:
            raise CannotInvert(index, f"{edit['op']} does not say what was there before")
        case unknown:
            assert_never(unknown)


def _without_leaves(index: int, patch: Mapping[str, Any]) -> dict[str, Any]:
    """The patch that removes what `patch` sets. The depth of a patch is bounded by its check."""
    if not patch:
        # Taking the whole object away could take away what others have put into it.
        raise CannotInvert(index, "an empty object in a merge does not say what it brings")
    return {key: _nulled(index, value) for key, value in patch.items()}


def _nulled(index: int, value: Any) -> dict[str, Any] | None:
    if value is None:
        raise CannotInvert(index, "a null in a merge does not say what was there before")
    return _without_leaves(index, value) if isinstance(value, dict) else None
