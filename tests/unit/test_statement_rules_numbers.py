"""The numbers in the schema's CHECKs and in the generated slot are those of the enums, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import pytest

import sql
from gitlab_sync.states import (
    ACTIVE_BATCH,
    TERMINAL_BATCH,
    Action,
    BatchStatus,
    BindingStatus,
    OperationStatus,
)

MEANINGS: Final = (
    ("ck_batch_status", "status", BatchStatus),
    ("ck_batch_settled", "status", TERMINAL_BATCH),
    ("ck_operation_status", "status", OperationStatus),
    ("ck_operation_action", "action", Action),
    ("ck_operation_merging", "status", (OperationStatus.MERGING, OperationStatus.MERGED)),
    ("ck_binding_status", "status", BindingStatus),
    ("ck_binding_active", "status", (BindingStatus.ACTIVE, BindingStatus.AMENDING, BindingStatus.REMOVING)),
)


def constraint(name: str) -> str:
    """The text of a CHECK in the picture of the schema (which equals the migrations, by another test)."""
    found = re.search(rf"CONSTRAINT {name} CHECK \((.+)\),?$", sql.schema_text(), re.MULTILINE)
    assert found is not None, name
    return found[1]


def numbers(text: str, column: str) -> set[int]:
    """The numbers that a column is compared with by IN."""
    found = re.search(rf"\b{column} (?:NOT )?IN \(([\d, ]+)\)", text)
    assert found is not None, text
    return {int(number) for number in found[1].split(",")}


@pytest.mark.parametrize(("name", "column", "members"), MEANINGS)
def test_a_check_lists_exactly_the_members_that_are_meant(
    name: str, column: str, members: Iterable[IntEnum]
) -> None:
    """A status added to the enum and not to the schema would be refused by the first row that has it."""
    assert numbers(constraint(name), column) == {member.value for member in members}


def test_a_blocked_batch_needs_a_reason() -> None:
    """The CHECK speaks of BLOCKED by its number."""
    assert constraint("ck_batch_blocked") == f"status <> {BatchStatus.BLOCKED} OR reason_code IS NOT NULL"


def test_the_slot_is_held_by_exactly_the_active_statuses() -> None:
    """The generated column decides who may be active: one number missing, and two batches run at once."""
    generated = re.search(r"active_slot .+ AS \((.+)\) STORED", sql.schema_text())
    assert generated is not None
    assert numbers(generated[1], "status") == {status.value for status in ACTIVE_BATCH}


def test_every_check_on_a_status_is_in_this_table() -> None:
    """A new CHECK with numbers in it must say here what they mean."""
    checks = re.findall(r"CONSTRAINT (ck_\w+) CHECK \(.*\b(?:status|action)\b.*\)", sql.schema_text())
    assert set(checks) == {name for name, _, _ in MEANINGS} | {"ck_batch_blocked"}
