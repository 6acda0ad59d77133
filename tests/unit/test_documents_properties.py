"""Whatever the file and the edit: the right content, every untouched line, and a second reader that agrees.

Deterministic: the examples derive from the tests themselves.
"""

from __future__ import annotations

import io
import json
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gitlab_sync.documents import DocumentProblem, merge_patch, open_document, same_value

_AWKWARD: Final = [
    *["-", "?", ":", "#", "!", "&", "*", "|", ">", "%", "@", "`", "<<", "=", "---", "..."],
    *["[x]", "{", "}", ",", "'", '"'],
    *["no", "yes", "on", "y", "null", "~", "1", "1.5", "0777", "1_0", "0x1f", "12:30", "2024-01-01", ".inf"],
    *("", " ", "a: b", "- a", "a #b", " lead", "trail ", "two\nlines", "end\n", "\n", "\t"),
]
_TEXTS: Final = st.one_of(
    st.sampled_from(_AWKWARD),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12),
)
_KEYS: Final = st.one_of(st.sampled_from(["alice", "bob", "x", "no", "1", "", "<<", "a b", "é"]), _TEXTS)
_SCALARS: Final = st.one_of(
    _TEXTS,
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
)
_VALUES: Final = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=10,
)
_OBJECTS: Final = st.dictionaries(_KEYS, _VALUES, max_size=4)
_PLAIN_KEYS: Final = st.sampled_from(["alice", "bob", "carol", "dora", "eve"])
_TREES: Final = st.recursive(
    st.sampled_from(["reader", "writer", "x y"]) | st.integers(0, 9),
    lambda inner: (
        st.dictionaries(_PLAIN_KEYS, inner, min_size=1, max_size=3) | st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)
_RUNS: Final = settings(derandomize=True, max_examples=25)


def commented(tree: dict[str, Any]) -> str:
    """A block-style file as people write them: a comment above every line."""
    out = io.StringIO()
    writer = YAML()
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.dump(tree, out)
    return "".join(f"# line {number}\n{line}\n" for number, line in enumerate(out.getvalue().splitlines()))


def is_subsequence(few: list[str], many: list[str]) -> bool:
    """True if `few` are all in `many`, in their order."""
    rest = iter(many)
    return all(line in rest for line in few)


@given(_OBJECTS, _OBJECTS)
@_RUNS
def test_a_written_yaml_file_says_what_was_wanted_to_every_reader(base: Any, patch: Any) -> None:
    """Any object becomes a file, and any patch of that file is read by another parser as we meant it."""
    content = open_document("a.yaml", None).render(base)
    document = open_document("a.yaml", content)
    assert same_value(document.value, base)
    wanted = merge_patch(base, patch)
    written = document.render(wanted)
    assert same_value(YAML(typ="safe", pure=True).load(written.decode()), wanted)


@given(_OBJECTS, _OBJECTS, st.sampled_from([None, 1, 2, "\t"]))
@_RUNS
def test_a_written_json_file_says_what_was_wanted_to_every_reader(base: Any, patch: Any, indent: Any) -> None:
    """The same for JSON in any indent, read back by the standard library."""
    content = json.dumps(base, indent=indent, ensure_ascii=bool(indent)).encode()
    wanted = merge_patch(base, patch)
    written = open_document("a.json", content).render(wanted)
    assert same_value(json.loads(written), wanted)


@given(st.dictionaries(_PLAIN_KEYS, _TREES, min_size=1, max_size=4), st.data())
@_RUNS
def test_an_addition_leaves_every_old_line_in_place(tree: dict[str, Any], data: st.DataObject) -> None:
    """A key added anywhere adds lines and touches none."""
    text = commented(tree)
    path, target = [], tree
    while nested := [key for key, one in target.items() if isinstance(one, dict)]:
        if data.draw(st.booleans()):
            break
        path.append(data.draw(st.sampled_from(nested)))
        target = target[path[-1]]
    patch: Any = {"zoe": data.draw(_TREES)}
    for key in reversed(path):
        patch = {key: patch}
    document = open_document("a.yaml", text.encode())
    written = document.render(merge_patch(document.value, patch)).decode()
    assert is_subsequence(text.splitlines(), written.splitlines())


@given(st.dictionaries(_PLAIN_KEYS, _TREES, min_size=2, max_size=4), st.data())
@_RUNS
def test_a_removal_adds_nothing_and_keeps_comments_of_others(
    tree: dict[str, Any], data: st.DataObject
) -> None:
    """A removed key takes lines away, never a comment outside of it, and leaves the others byte for byte."""
    text = commented(tree)
    key = data.draw(st.sampled_from(sorted(tree)))
    document = open_document("a.yaml", text.encode())
    written = document.render(merge_patch(document.value, {key: None})).decode()
    assert is_subsequence(written.splitlines(), text.splitlines())
    own_lines = len(commented({key: tree[key]}).splitlines())
    assert (
        len(written.splitlines()) == len(text.splitlines()) - own_lines + 1
    )  # the comment above the key stays


@given(st.text(st.sampled_from("ab:-[]{}#&*!|>'\"?,%~ \n\t1"), max_size=40), _OBJECTS)
@settings(derandomize=True, max_examples=80)
def test_no_text_at_all_makes_the_editor_crash_or_lie(text: str, patch: Any) -> None:
    """Garbage is edited rightly or refused with a reason; there is no third way."""
    try:
        document = open_document("a.yaml", text.encode())
        wanted = merge_patch(document.value, patch)
        written = document.render(wanted)
    except DocumentProblem:
        return
    assert same_value(open_document("a.yaml", written).value, wanted)


@given(st.text(st.sampled_from('{}[]:,"\\ \n\t1.e-truefalsn'), max_size=30))
@settings(derandomize=True, max_examples=100)
def test_our_json_reader_takes_exactly_what_the_standard_library_takes(text: str) -> None:
    """But for duplicate keys, which we refuse, and emptiness, which is an empty file here."""
    try:
        expected = json.loads(text)
    except ValueError:
        expected = DocumentProblem
    try:
        found = open_document("a.json", text.encode()).value if text.strip() else DocumentProblem
    except DocumentProblem as problem:
        found = expected if problem.fault == "duplicate_key" else DocumentProblem
    assert found == expected
