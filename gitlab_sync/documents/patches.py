"""The three structured edits, on plain values: RFC 7396 merge patch, and list items at an RFC 6901 pointer.

Nothing here changes a value in place: a new value shares what it does not touch with the old one, so that a
failing edit leaves no trace and the writer sees by identity what stayed.

Decisions beyond the RFCs: an edit never enters an Opaque value; `ensure_item` makes the objects and the
list that are missing on its way (null counts as missing); `remove_item` is content when there is nothing to
remove from.
"""

from __future__ import annotations

from typing import Any

from gitlab_sync.documents.tree import DocumentFault, DocumentProblem, Opaque, same_value


def merge_patch(target: Any, patch: Any, *, at: str = "") -> Any:
    """Return `target` with an RFC 7396 merge patch applied. Raises DocumentProblem on an Opaque target."""
    if not isinstance(patch, dict):
        return target if same_value(target, patch) else patch
    if isinstance(target, Opaque):
        raise _out_of_reach(target, at)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value, at=f"{at}/{escape_token(key)}")
    return target if _same_members(target, result) else result


def ensure_item(target: Any, pointer: str, item: Any) -> Any:
    """Return `target` with `item` in the list at `pointer`, at its end if it was not there."""
    return _ensure(target, pointer_tokens(pointer), item, at="")


def remove_item(target: Any, pointer: str, item: Any) -> Any:
    """Return `target` without any item equal to `item` in the list at `pointer`."""
    return _remove(target, pointer_tokens(pointer), item, at="")


def pointer_tokens(pointer: str) -> list[str]:
    """Split an RFC 6901 pointer. Raises ValueError, with the remedy, if it is none."""
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise ValueError('a pointer is "" for the whole document or begins with "/" (RFC 6901)')
    tokens = pointer[1:].split("/")
    for token in tokens:
        if "~" in token.replace("~0", "").replace("~1", ""):
            raise ValueError('in a pointer "~" is written "~0" and a "/" inside a key "~1" (RFC 6901)')
    return [token.replace("~1", "/").replace("~0", "~") for token in tokens]


def escape_token(key: str) -> str:
    """Write a key as it stands in a pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _ensure(target: Any, tokens: list[str], item: Any, *, at: str) -> Any:
    if not tokens:
        items = [] if target is None else _require_list(target, at)
        return items if any(same_value(one, item) for one in items) else [*items, item]
    if target is None:
        target = {}
    key, inner_at = tokens[0], f"{at}/{escape_token(tokens[0])}"
    inner = _step(target, key, at)
    changed = _ensure(inner, tokens[1:], item, at=inner_at)
    return target if changed is inner else _with_member(target, key, changed)


def _remove(target: Any, tokens: list[str], item: Any, *, at: str) -> Any:
    if target is None:
        return None
    if not tokens:
        items = _require_list(target, at)
        left = [one for one in items if not same_value(one, item)]
        return items if len(left) == len(items) else left
    inner = _step(target, tokens[0], at)
    changed = _remove(inner, tokens[1:], item, at=f"{at}/{escape_token(tokens[0])}")
    return target if changed is inner else _with_member(target, tokens[0], changed)


def _step(target: Any, key: str, at: str) -> Any:
    if isinstance(target, dict):
        return target.get(key)
    if isinstance(target, list):
        return target[_index(target, key, at)]
    if isinstance(target, Opaque):
        raise _out_of_reach(target, at)
    raise DocumentProblem(
        DocumentFault.NO_SUCH_PLACE,
        f"{at or 'the document'} is neither an object nor a list: nothing lies below it",
    )


def _index(target: list[Any], key: str, at: str) -> int:
    is_number = key == "0" or (key.isascii() and key.isdigit() and not key.startswith("0") and len(key) < 10)
    if not is_number or int(key) >= len(target):
        what = f"{at or 'the document'} is a list of {len(target)} without a place {key[:40]!r}"
        raise DocumentProblem(DocumentFault.NO_SUCH_PLACE, what)
    return int(key)


def _with_member(target: Any, key: str, value: Any) -> Any:
    if isinstance(target, list):
        index = int(key)
        return [*target[:index], value, *target[index + 1 :]]
    return {**target, key: value}


def _require_list(target: Any, at: str) -> list[Any]:
    if isinstance(target, list):
        return target
    if isinstance(target, Opaque):
        raise _out_of_reach(target, at)
    raise DocumentProblem(DocumentFault.NOT_A_LIST, f"{at or 'the document'} is not a list")


def _out_of_reach(target: Opaque, at: str) -> DocumentProblem:
    return DocumentProblem(
        DocumentFault.OUT_OF_REACH, f"{at or 'the document'} is {target.kind.value}; edit that file by hand"
    )


def _same_members(target: Any, result: dict[str, Any]) -> bool:
    return (
        isinstance(target, dict)
        and target.keys() == result.keys()
        and all(result[key] is value for key, value in target.items())
    )
