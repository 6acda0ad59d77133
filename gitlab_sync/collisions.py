"""Which file names cannot live side by side in one checkout: `README` and `readme`, `a` and `a/b`.

Knows only the names it was given (`target_tree` finds those that no edit speaks of). Folders may be twins:
what is in them is compared by its whole name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gitlab_sync.edits.paths import folded_parents, folded_path


class NameBook:
    """The names that are taken, compared without letter case and Unicode form."""

    def __init__(self, taken: Iterable[str], folders: Iterable[str] = ()) -> None:
        self._taken: dict[str, set[str]] = {}
        self._parents: Counter[str] = Counter(folded_path(folder) for folder in folders)
        for path in taken:
            self.add(path)

    def add(self, path: str) -> None:
        self._taken.setdefault(folded_path(path), set()).add(path)
        self._parents.update(folded_parents(path))

    def remove(self, path: str) -> None:
        self._taken[folded_path(path)].remove(path)
        self._parents.subtract(folded_parents(path))

    def holds(self, path: str) -> bool:
        return path in self._taken.get(folded_path(path), ())

    def rival(self, path: str) -> str | None:
        """The taken name that `path` cannot stand beside; None: it is free, or taken by exactly this name."""
        if self.holds(path):
            return None
        for name in (folded_path(path), *folded_parents(path)):
            if self._taken.get(name):
                return min(self._taken[name])
        if self._parents[folded_path(path)] > 0:
            return f"{path}/…"
        return None

    def move(self, gone: Iterable[str], come: Iterable[str]) -> tuple[str, str] | None:
        """Free the names `gone` and take the names `come`, all or none.

        None: done. Otherwise nothing has changed; the answer is the name that cannot be taken and its rival.
        """
        freed = [path for path in gone if self.holds(path)]
        for path in freed:
            self.remove(path)
        added: list[str] = []
        for path in come:
            if (rival := self.rival(path)) is not None:
                for name in added:
                    self.remove(name)
                for name in freed:
                    self.add(name)
                return path, rival
            if not self.holds(path):
                self.add(path)
                added.append(path)
        return None
