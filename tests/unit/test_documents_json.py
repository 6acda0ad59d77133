"""Edits of JSON files keep indent, order, spacing, escapes and the spelling of numbers."""

from __future__ import annotations

from typing import Any

import pytest

from gitlab_sync.documents import DocumentFault, DocumentProblem, ensure_item, merge_patch, open_document

QUOTAS = """\
{
    "limits": {
        "cpu": 1.50,
        "big": 1e400,
        "exact": 12345678901234567890
    },
    "teams": ["a","b"],
    "empty": {},
    "last": true
}
"""


def patched(text: str, patch: Any) -> str:
    """The text after one merge patch."""
    document = open_document("quotas.json", text.encode())
    return document.render(merge_patch(document.value, patch)).decode()


def test_only_the_changed_value_changes() -> None:
    """Spelling such as 1.50 stays, also where the same number is sent again."""
    assert patched(QUOTAS, {"last": False, "limits": {"cpu": 1.5}}) == QUOTAS.replace("true", "false")


def test_new_keys_follow_the_files_indent() -> None:
    """Four blanks beget four blanks, and the comma goes behind the old last line."""
    expected = QUOTAS.replace(
        '"last": true\n', '"last": true,\n    "new": {\n        "x": [\n            1\n        ]\n    }\n'
    )
    assert patched(QUOTAS, {"new": {"x": [1]}}) == expected


def test_a_list_on_one_line_stays_on_one_line() -> None:
    """The spacing between the items is the list's own."""
    document = open_document("quotas.json", QUOTAS.encode())
    written = document.render(ensure_item(document.value, "/teams", "c")).decode()
    assert written == QUOTAS.replace('["a","b"]', '["a","b","c"]')


def test_keys_are_removed_with_their_comma() -> None:
    """First, middle and last key go without a trace."""
    text = '{"a": 1, "b": 2, "c": 3}'
    assert patched(text, {"a": None}) == '{"b": 2, "c": 3}'
    assert patched(text, {"b": None}) == '{"a": 1, "c": 3}'
    assert patched(text, {"c": None}) == '{"a": 1, "b": 2}'
    assert patched(text, {"a": None, "b": None, "c": None, "d": 4}) == '{"d": 4}'


def test_a_compact_file_stays_compact() -> None:
    """No blank is added where there are none."""
    assert patched('{"a":1}', {"b": {"c": [1, 2]}}) == '{"a":1,"b":{"c":[1,2]}}'


def test_an_escaping_file_stays_in_ascii() -> None:
    """A file that writes escapes gets escapes; another one gets the letters."""
    assert patched('{"a": "\\u00e9"}', {"b": "ü"}) == '{"a": "\\u00e9", "b": "\\u00fc"}'
    assert patched('{"a": "é"}', {"b": "ü"}) == '{"a": "é", "b": "ü"}'


def test_a_new_file_is_indented_and_ends_its_last_line() -> None:
    """Nothing becomes a readable file."""
    assert patched("", {"a": {"b": 1}}) == '{\n  "a": {\n    "b": 1\n  }\n}\n'


def test_windows_line_ends_and_byte_order_mark_stay() -> None:
    """What an editor on another system wrote is not rewritten."""
    text = '\ufeff{\r\n  "a": 1\r\n}\r\n'
    assert patched(text, {"b": [2]}) == '\ufeff{\r\n  "a": 1,\r\n  "b": [\r\n    2\r\n  ]\r\n}\r\n'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": 1, "a": 2}', DocumentFault.DUPLICATE_KEY),
        ("{'a': 1}", DocumentFault.UNREADABLE),
        ('{"a": 1,}', DocumentFault.UNREADABLE),
        ('{"a": NaN}', DocumentFault.UNREADABLE),
        ('{"a": "\\ud800"}', DocumentFault.UNREADABLE),
        ('{"a": "x\ny"}', DocumentFault.UNREADABLE),
        ('{"a": 1} {}', DocumentFault.UNREADABLE),
        ('{"a" 1}', DocumentFault.UNREADABLE),
        ("[" * 100_000, DocumentFault.TOO_DEEP),
        ("[" + "1," * 50_000 + "1]", DocumentFault.TOO_LARGE),
    ],
)
def test_a_file_that_is_not_clean_json_says_why(text: str, fault: DocumentFault) -> None:
    """Nothing is guessed and nothing is deep enough to hurt."""
    with pytest.raises(DocumentProblem) as refused:
        open_document("a.json", text.encode())
    assert refused.value.fault is fault
