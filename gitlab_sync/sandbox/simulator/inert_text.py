"""Reads titles, descriptions and commit messages as GitLab would, and tells everything it would act upon.

Reads more than any one GitLab version does: code fences, comments and blockquotes protect nothing here, a
line begins after every kind of line break, entities are read as the signs they stand for. So what it finds
may have been harmless, what it does not find is. It knows nothing of gitlab-sync and shares no code with it.

Not reported: the SHA of a commit (a link, nothing else follows), emoji, emphasis, and a comment that is
closed on its line and holds one `Key: value`.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class TextPlace(StrEnum):
    """Where the text stands; titles and commit subjects have rules of their own."""

    TITLE = "title"
    DESCRIPTION = "description"
    COMMIT = "commit"


class TextEffect(StrEnum):
    """What GitLab would make of it."""

    QUICK_ACTION = "quick_action"
    MENTION = "mention"
    REFERENCE = "reference"
    CLOSES = "closes"
    SKIPS_CI = "skips_ci"
    DRAFT = "draft"
    TRAILER = "trailer"
    HTML = "html"
    IMAGE = "image"
    LINK = "link"
    FENCE = "fence"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Finding:
    """One stretch of text that has an effect."""

    place: TextPlace
    effect: TextEffect
    text: str


_SHOWN_CHARACTERS = 80
_COMMENT = re.compile(r"<!--[ ]*[\w-]+:[ ]*[\w-]+[ ]*-->")
_WORD = r"[^\W_]|_"
_JIRA = r"(?a:\b)[A-Z][A-Z0-9_]+-[0-9]"
_ISSUE = rf"(?:[\w./-]{{0,200}}#[0-9]|[a-z]{{2,20}}://\S{{0,300}}/issues/[0-9]|{_JIRA}|GL-[0-9])"
_CLOSING = "(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?)"
_ANYWHERE: tuple[tuple[TextEffect, re.Pattern[str]], ...] = (
    (TextEffect.MENTION, re.compile(rf"@(?:{_WORD}|\")")),
    (TextEffect.REFERENCE, re.compile(rf"(?:#|!|&|\$)[0-9]|[~%](?:{_WORD}|[\"*{{?])|\^(?:{_WORD})|{_JIRA}")),
    (
        TextEffect.REFERENCE,
        re.compile(r"\[(?:issue|epic|vulnerability|contact|cadence|feature_flag|[\w ]{1,40}):"),
    ),
    (TextEffect.CLOSES, re.compile(rf"\b{_CLOSING}:?\s{{1,9}}{_ISSUE}", re.IGNORECASE)),
    (TextEffect.SKIPS_CI, re.compile(r"\[(?:skip[ _-]?ci|ci[ _-]?skip|no[ _-]?ci)\]", re.IGNORECASE)),
    (TextEffect.IMAGE, re.compile(r"!\[")),
    (TextEffect.LINK, re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://\S")),
    (TextEffect.LINK, re.compile(r"(?<![A-Za-z0-9])www\.\w|\]\s?[(\[:]", re.IGNORECASE)),
    (TextEffect.HTML, re.compile(r"</?[A-Za-z!?]")),
)
_QUICK_ACTION = re.compile(r"[\s>]*/[A-Za-z_]\w*")
_FENCE = re.compile(r"[\s>]*(?:`{3}|~{3}|\$\$)")
_DRAFT = re.compile(r"\s*[\[(]?\s*(?:draft|wip)\b\s*(?:[\])]|:|-)", re.IGNORECASE)
_SQUASHED = re.compile(r"\s*(?:draft:|(?:fixup|squash|amend)!)", re.IGNORECASE)
_TRAILER = re.compile(
    r"[\s>]*(?:co-authored|signed-off|approved|reviewed|acked|tested|reported|suggested|merged)-by\s*:"
    r"|[\s>]*(?:changelog|cc|ee|mr|issue|see merge request)\s*:",
    re.IGNORECASE,
)
_UNSEEN = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"}
# Letters and marks that show nothing or a blank.
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0\u034f\u17b4\u17b5\u2800")


def findings(text: str, place: TextPlace) -> list[Finding]:
    """Return what GitLab would act upon in a text, in no particular order; empty: it is only shown."""
    found = {(effect, match) for effect, match in _read(_COMMENT.sub("", text), place)}
    return [Finding(place, effect, match[:_SHOWN_CHARACTERS]) for effect, match in sorted(found)]


def _read(text: str, place: TextPlace) -> Iterator[tuple[TextEffect, str]]:
    plain = html.unescape(text)
    for sight in (text, plain) if plain != text else (text,):
        yield from _anywhere(sight)
        for line in sight.splitlines():
            yield from _in_line(line, place)
    if place is not TextPlace.DESCRIPTION:
        yield from _at_start(plain, place)
    yield from ((TextEffect.HIDDEN, f"U+{ord(sign):04X}") for sign in set(plain) if _unseen(sign))


def _anywhere(text: str) -> Iterator[tuple[TextEffect, str]]:
    for effect, pattern in _ANYWHERE:
        yield from ((effect, match[0]) for match in pattern.finditer(text))


def _in_line(line: str, place: TextPlace) -> Iterator[tuple[TextEffect, str]]:
    if place is not TextPlace.TITLE and _QUICK_ACTION.match(line):
        yield TextEffect.QUICK_ACTION, line.strip()
    if place is not TextPlace.TITLE and _FENCE.match(line):
        yield TextEffect.FENCE, line.strip()
    if _TRAILER.match(line):
        yield TextEffect.TRAILER, line.strip()


def _at_start(text: str, place: TextPlace) -> Iterator[tuple[TextEffect, str]]:
    first = text.lstrip().split("\n", 1)[0][:_SHOWN_CHARACTERS]
    if _DRAFT.match(first) or (place is TextPlace.COMMIT and _SQUASHED.match(first)):
        yield TextEffect.DRAFT, first.strip()


def _unseen(sign: str) -> bool:
    return sign != "\n" and (unicodedata.category(sign) in _UNSEEN or sign in _FILLERS)
