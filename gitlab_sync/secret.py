"""A text that must not be seen: what tokens, passwords and keys travel in.

Masked wherever Python would show it; only `reveal()` gives the text, so one grep finds every use of a
secret.
"""

from __future__ import annotations

import hmac
from typing import Final, NoReturn

MASK: Final = "***"


class Secret:
    """A text that shows itself only to `reveal()`: repr, str, format and JSON by `str` give a mask."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written down: it stays in this process")

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))
