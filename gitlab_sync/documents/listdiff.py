"""Which items of a list stay, go or come: the steps from an old list to a new one, in the old one's order."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

from gitlab_sync.documents.tree import same_value

# Above this many pairs the middle in which two lists differ is replaced instead of compared.
_MAX_PAIRS: Final = 250_000


class Step(NamedTuple):
    """Replace old[old:old_end] by new[new:new_end]; one of the two may be empty."""

    old: int
    old_end: int
    new: int
    new_end: int


def list_steps(old: list[Any], new: list[Any]) -> Iterator[Step]:
    """The steps that make `new` out of `old`; equal runs are left out. Cheap if little changed."""
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and same_value(old[head], new[head]):
        head += 1
    tail = 0
    while tail < shorter - head and same_value(old[-1 - tail], new[-1 - tail]):
        tail += 1
    for step in _middle_steps(old[head : len(old) - tail], new[head : len(new) - tail]):
        yield Step(*(head + place for place in step))


def _middle_steps(old: list[Any], new: list[Any]) -> Iterator[Step]:
    if not old and not new:
        return
    if not old or not new or len(old) * len(new) > _MAX_PAIRS:
        yield Step(0, len(old), 0, len(new))
        return
    before, after = [_hashable(one) for one in old], [_hashable(one) for one in new]
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, *places in matcher.get_opcodes():
        if tag != "equal":
            yield Step(*places)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return ("object", frozenset((key, _hashable(one)) for key, one in value.items()))
    if isinstance(value, list):
        return ("list", tuple(_hashable(one) for one in value))
    return (isinstance(value, bool), value)
