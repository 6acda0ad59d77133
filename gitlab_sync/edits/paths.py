"""Paths that requests name: in normal form or refused, never repaired; and the files that nobody may touch.

Names are compared folded (Unicode NFKC, letter case, characters that file systems ignore, the tail that
Windows drops), so that a control file is recognised in every disguise under which some checkout would write
it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

MAX_PATH_BYTES: Final = 4096
MAX_COMPONENT_BYTES: Final = 255
MAX_DEPTH: Final = 32

# Files that make something run, decide who must approve, or steer Git itself. A partition can add to these,
# not lift them. `.gitignore` is not here: it changes nothing for files that are committed.
BUILT_IN_PROTECTED: Final = (
    "**/.gitlab-ci.yml",
    "**/.gitlab-ci.yaml",
    "**/*.gitlab-ci.yml",
    "**/*.gitlab-ci.yaml",
    ".gitlab",
    ".gitlab/**",
    ".gitlab-ci",
    ".gitlab-ci/**",
    "**/CODEOWNERS",
    "**/.gitattributes",
    "**/.gitmodules",
    "**/.lfsconfig",
)

_GIT_NAMES: Final = frozenset({".git", "git~1"})
# The short names that Windows gives to files whose long names are protected.
_SHORT_NAMES: Final = re.compile(
    r"(?:git|gitlab|gitatt|gitmod|codeow|lfscon|gi[0-9a-f]{4}|co[0-9a-f]{4}|lf[0-9a-f]{4})~[0-9]+"
)
# On Windows these are devices in every folder and with every ending: what is written there is not in a file.
_DEVICES: Final = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9])[ ]*(?:[.:].*)?")
_STREAM: Final = re.compile(r":[^:]*:\$.*")
_DRIVE: Final = re.compile(r"[A-Za-z]:")
# Ignored by some file systems or invisible; all other control and format characters go by category.
_INVISIBLE: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    chr(code) for code in range(0xFE00, 0xFE10)
}
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def path_problem(path: str) -> str | None:
    """What is wrong with the form of a path and how to mend it; None: it is in normal form."""
    if not path:
        return "is empty; name a file"
    if hidden := next((sign for sign in path if is_hidden(sign)), None):
        return f"holds the control or invisible character U+{ord(hidden):04X}; leave it out"
    if len(path.encode()) > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes; shorten it"
    if path.count("/") >= MAX_DEPTH:
        return f"has more than {MAX_DEPTH} parts; use fewer folders"
    if path.startswith("/") or _DRIVE.match(path):
        return "is absolute; name the file from the root of the repository, like access/db.yaml"
    if "\\" in path:
        return "holds a backslash; separate folders by /"
    if unicodedata.normalize("NFC", path) != path:
        return "is not in Unicode normal form C; send it composed (NFC)"
    return next((problem for one in path.split("/") if (problem := _component_problem(one))), None)


def protection_problem(path: str, *, allowed: Sequence[str], protected: Sequence[str]) -> str | None:
    """Why a well-formed path may not be edited in a partition; None: it may.

    `allowed` is compared as it is written, protected names also in other letter case and other Unicode forms.
    """
    folded = folded_path(path)
    # A folder of such a name would keep the file out, and git calls a tree with one unsound.
    names = (folded, *folded_parents(path))
    built_in = (one for one in BUILT_IN_PROTECTED if any(map(_glob(folded_path(one)).fullmatch, names)))
    own = (one for one in protected if _glob(folded_path(one)).fullmatch(folded))
    if pattern := next(chain(built_in, own), None):
        return f"is protected ({pattern}); such files are changed by hand, in a merge request of their own"
    if not any(_glob(pattern).fullmatch(path) for pattern in allowed):
        return f"is outside of what this partition may change ({', '.join(allowed)})"
    return None


def folded_path(path: str) -> str:
    """The form in which two names count as one."""
    return "/".join(_folded(component) for component in path.split("/"))


def folded_parents(path: str) -> Iterator[str]:
    """The folded names of the folders that hold a path, outermost first."""
    folded = folded_path(path)
    position = folded.find("/")
    while position >= 0:
        yield folded[:position]
        position = folded.find("/", position + 1)


def is_hidden(sign: str) -> bool:
    """True for a character that does not show: control, format (bidi, zero width), unassigned, filler."""
    if sign.isascii():
        return not sign.isprintable()
    return unicodedata.category(sign) in _HIDDEN_CATEGORIES or sign in _INVISIBLE


def _component_problem(component: str) -> str | None:
    if component in ("", ".", ".."):
        return f"has the part {component!r}; write it without empty parts, '.' and '..'"
    if len(component.encode()) > MAX_COMPONENT_BYTES:
        return f"has a part longer than {MAX_COMPONENT_BYTES} bytes; shorten it"
    folded = _folded(component)
    if folded in _GIT_NAMES or _SHORT_NAMES.fullmatch(folded):
        return "leads into Git's own files; choose another name"
    if _DEVICES.fullmatch(folded):
        return "has the name of a device on Windows, where no checkout could hold it; choose another name"
    if component != component.strip() or component.endswith("."):
        return "has a part with a blank at an end, or a dot at its end; leave that out"
    return None


@lru_cache(maxsize=4096)
def _folded(component: str) -> str:
    plain = unicodedata.normalize("NFKC", component)
    plain = "".join(sign for sign in plain if not is_hidden(sign)).upper().casefold()
    # NTFS: "name::$data" is the file itself, and dots and blanks at the end do not count.
    name = _STREAM.sub("", plain).rstrip(". ")
    stem = name.partition(":")[0].rstrip(". ")
    return stem if stem in _GIT_NAMES else name or plain


@lru_cache(maxsize=1024)
def _glob(pattern: str) -> re.Pattern[str]:
    """`**` stands for any folders, `*` and `?` stay inside one name; everything else is itself."""
    parts = re.split(r"(\*\*/|/\*\*$|\*\*|\*|\?)", pattern)
    meanings = {"**/": "(?:.*/)?", "/**": "/.+", "**": ".*", "*": "[^/]*", "?": "[^/]", "": ""}
    return re.compile("".join(meanings.get(part) or re.escape(part) for part in parts), re.DOTALL)
