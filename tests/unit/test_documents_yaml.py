"""Edits of YAML files: what a reviewer sees in the diff is the edit and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gitlab_sync.documents import (
    DocumentFault,
    DocumentProblem,
    ensure_item,
    merge_patch,
    open_document,
    remove_item,
)

ACCESS = """\
# Who may read orders
members: # keep sorted
  bob:
    role: 'reader' # since spring

# Ours alone
on: yes   # text, not a boolean
zones:
- a
# about b
- b
limits: {cpu: 1, tags: [x, y]}
notes: # nothing yet
long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb ccccccccccccc
odd: True
none: ~
"""


def edited(text: str, change: Callable[[Any], Any], path: str = "access.yaml") -> str:
    """The text after one edit."""
    document = open_document(path, text.encode())
    return document.render(change(document.value)).decode()


def patched(text: str, patch: Any) -> str:
    """The text after one merge patch."""
    return edited(text, lambda value: merge_patch(value, patch))


def fault_of(text: str, change: Callable[[Any], Any]) -> DocumentFault:
    """The fault for which an edit is refused."""
    with pytest.raises(DocumentProblem) as refused:
        edited(text, change)
    return refused.value.fault


def patch_fault(text: str, patch: Any) -> DocumentFault:
    """The fault for which a merge patch is refused."""
    return fault_of(text, lambda value: merge_patch(value, patch))


def test_a_new_member_lands_before_the_next_sections_comment() -> None:
    """The comment of the section that follows stays with its section."""
    expected = ACCESS.replace("\n\n# Ours", "\n  alice:\n    role: reader\n\n# Ours")
    assert patched(ACCESS, {"members": {"alice": {"role": "reader"}}}) == expected


def test_a_changed_word_keeps_its_quotes_and_its_comment() -> None:
    """Only the word between the quotes differs."""
    expected = ACCESS.replace("'reader' #", "'it''s new' #")
    assert patched(ACCESS, {"members": {"bob": {"role": "it's new"}}}) == expected


def test_a_removed_key_takes_only_its_own_line() -> None:
    """The comments above and below a removed key stay."""
    assert patched(ACCESS, {"on": None}) == ACCESS.replace("on: yes   # text, not a boolean\n", "")


def test_the_last_member_leaves_empty_braces_and_the_keys_comment() -> None:
    """A mapping that has lost its last key is still a mapping, not null."""
    expected = ACCESS.replace("members: # keep sorted\n  bob:\n    role: 'reader' # since spring\n", "")
    expected = expected.replace("orders\n", "orders\nmembers: {} # keep sorted\n")
    assert patched(ACCESS, {"members": {"bob": None}}) == expected


def test_brackets_change_between_their_commas() -> None:
    """Flow style stays flow style."""
    expected = ACCESS.replace("{cpu: 1, tags: [x, y]}", "{cpu: 2, tags: [x, y, z], new: {deep: [1]}}")
    patch = {"limits": {"cpu": 2, "tags": ["x", "y", "z"], "new": {"deep": [1]}}}
    assert patched(ACCESS, patch) == expected


def test_an_empty_value_is_filled_below_its_comment() -> None:
    """`key: # comment` becomes a block and keeps the comment on the key's line."""
    expected = ACCESS.replace("notes: # nothing yet\n", "notes: # nothing yet\n  a:\n  - 1\n")
    assert patched(ACCESS, {"notes": {"a": [1]}}) == expected


def test_list_items_come_and_go_as_lines_of_their_own() -> None:
    """The comment between two items is nobody's to remove."""
    expected = ACCESS.replace("- a\n# about b\n- b\n", "# about b\n- b\n- c\n")
    assert (
        edited(ACCESS, lambda value: ensure_item(remove_item(value, "/zones", "a"), "/zones", "c"))
        == expected
    )


def test_what_yaml_readers_disagree_about_is_written_in_quotes() -> None:
    """`no`, `12:30`, dates and numbers sent as text stay text for every reader."""
    words = [
        "no",
        "y",
        "12:30",
        "2024-01-01",
        "1e3",
        "0x1f",
        "null",
        "",
        " x",
        "#",
        "- a",
        "a: b",
        "*a",
        "<<",
    ]
    written = patched("", {"words": words})
    lines = written.splitlines()[1:]
    assert all(line.strip().startswith('- "') for line in lines)
    assert open_document("a.yaml", written.encode()).value == {"words": words}


def test_plain_words_are_written_plain() -> None:
    """A file that people read is not buried in quotes."""
    assert (
        patched("", {"who": "alice smith", "where": "db-orders/eu"})
        == "who: alice smith\nwhere: db-orders/eu\n"
    )


def test_text_of_several_lines_becomes_a_block() -> None:
    """A new text with line ends is a literal block, so that its lines can be reviewed."""
    assert patched("a: 1\n", {"text": "one\ntwo\n"}) == "a: 1\ntext: |\n  one\n  two\n"


@pytest.mark.parametrize("text", ["a: 1", "a: 1\n", "a: 1\r\n", "\ufeffa: 1\n", "a: 1\r\nb: 2"])
def test_line_ends_mark_and_final_newline_stay_as_found(text: str) -> None:
    """A new line looks like its neighbours, and a missing final newline stays missing."""
    newline = "\r\n" if "\r\n" in text else "\n"
    ending = newline if text.endswith("\n") else ""
    expected = text.rstrip("\r\n") + newline + "c: 3" + ending
    assert patched(text, {"c": 3}) == expected


def test_the_files_own_indent_is_followed() -> None:
    """Four blanks and indented dashes beget four blanks and indented dashes."""
    text = "a:\n    b:\n      - 1\n"
    expected = "a:\n    b:\n      - 1\n    c:\n        d:\n          - 2\n"
    assert patched(text, {"a": {"c": {"d": [2]}}}) == expected


def test_a_change_below_an_alias_is_refused() -> None:
    """What is edited in one place would change in another."""
    text = "base: &base\n  role: reader\nbob: *base\nann:\n  <<: *base\n  x: 1\n"
    for name in ("bob", "base", "ann"):
        assert patch_fault(text, {name: {"role": "writer"}}) is DocumentFault.OUT_OF_REACH


def test_an_alias_may_be_replaced_but_its_anchor_may_not_go() -> None:
    """Replacing one use is local; removing the anchor would break the others."""
    text = "base: &base {role: reader}\nbob: *base\n"
    assert patched(text, {"bob": "gone"}) == "base: &base {role: reader}\nbob: gone\n"
    assert patch_fault(text, {"base": None}) is DocumentFault.WOULD_REFORMAT


def test_tags_stay_inert_and_are_not_entered() -> None:
    """A tag of somebody's program means nothing here, and nothing is written below it."""
    text = "secret: !vault\n  key: x\nother: !!python/object:os.system {}\nplain: 1\n"
    assert patched(text, {"plain": 2}) == text.replace("plain: 1", "plain: 2")
    assert (
        fault_of(text, lambda value: merge_patch(value, {"secret": {"key": "y"}}))
        is DocumentFault.OUT_OF_REACH
    )


def test_numbers_of_doubtful_meaning_are_kept_as_they_stand() -> None:
    """`0777` is octal for some and decimal for others: no value sent as JSON equals it."""
    text = "mode: 0777\nbig: 1_000\n"
    assert patched(text, {"x": 1}) == text + "x: 1\n"
    assert patched(text, {"mode": 777}) == text.replace("0777", "777")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: 1\na: 2\n", DocumentFault.DUPLICATE_KEY),
        ("a: 1\n---\nb: 2\n", DocumentFault.UNSUPPORTED),
        ("%YAML 1.1\n---\na: 1\n", DocumentFault.UNSUPPORTED),
        ("a: [1\n", DocumentFault.UNREADABLE),
        ("a: *nowhere\n", DocumentFault.UNREADABLE),
        ("a: \x01\n", DocumentFault.UNREADABLE),
        ("[" * 1000, DocumentFault.TOO_DEEP),
        ("{a: " * 2000, DocumentFault.TOO_DEEP),
        ("- " * 500 + "a", DocumentFault.TOO_DEEP),
        ("#" * 1_048_577, DocumentFault.TOO_LARGE),
    ],
)
def test_a_file_that_cannot_be_edited_says_why(text: str, fault: DocumentFault) -> None:
    """Broken, ambiguous and oversized files are refused by name, and fast."""
    with pytest.raises(DocumentProblem) as refused:
        open_document("a.yaml", text.encode())
    assert refused.value.fault is fault


def test_a_file_of_too_many_values_is_refused_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count stops the parser; the rest of the file costs nothing."""
    monkeypatch.setattr("gitlab_sync.documents.yaml_reader.MAX_NODES", 3)
    assert open_document("a.yaml", b"- a\n- b\n").value == ["a", "b"]
    with pytest.raises(DocumentProblem, match="more than 3 values"):
        open_document("a.yaml", b"- a\n- b\n- c\n")


def test_a_tag_of_a_megabyte_does_not_keep_a_thread_busy_for_half_a_minute() -> None:
    """Its scanner is quadratic: what is longer than any tag is refused before it is scanned."""
    for text in ("!" + "a" * 1_000_000 + " 1\n", "a: !<" + "%41" * 300_000 + "> 1\n"):
        with pytest.raises(DocumentProblem, match="longer than any tag") as refused:
            open_document("a.yaml", text.encode())
        assert refused.value.fault is DocumentFault.UNSUPPORTED
    assert patched('a: "!' + "x" * 900 + '"\n', {"b": 1}).endswith("b: 1\n")


def test_a_file_that_is_not_utf_8_is_refused() -> None:
    """Bytes are never guessed at."""
    with pytest.raises(DocumentProblem, match="not UTF-8 at byte 3"):
        open_document("a.yaml", b"a: \xff\n")


def test_an_alias_bomb_costs_nothing() -> None:
    """Aliases are not followed, so that nine levels of nine aliases stay eighty-one nodes."""
    lines = ["a0: &a0 [x, x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    text = "\n".join(lines) + "\n"
    assert patched(text, {"b": 1}) == text + "b: 1\n"


def test_an_entry_beside_a_dash_moves_its_neighbour_up_or_is_refused() -> None:
    """`- name: x` keeps its dash when the name goes; a comment in the way is not thrown away for it."""
    text = "people:\n- name: x\n  role: y\n"
    assert edited(text, lambda _: {"people": [{"role": "y"}]}) == "people:\n- role: y\n"
    commented = text.replace("  role", "  # why\n  role")
    assert fault_of(commented, lambda _: {"people": [{"role": "y"}]}) is DocumentFault.WOULD_REFORMAT
