"""The edges that the invariants' SQL lists are those of `states`, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum

import pytest

import sql
from gitlab_sync.janitor import KEEP_NOTIFICATIONS_S
from gitlab_sync.states import (
    BINDING_EDGES,
    OPERATION_EDGES,
    Action,
    BindingStatus,
    OperationStatus,
    binding_after,
    binding_in_progress,
)


@pytest.mark.parametrize(
    ("name", "edges"),
    [("invariant_audit_is_a_chain", OPERATION_EDGES), ("invariant_history_is_a_chain", BINDING_EDGES)],
)
def test_a_chain_is_made_of_exactly_the_legal_edges(
    name: str, edges: Iterable[tuple[IntEnum, IntEnum]]
) -> None:
    """An edge added in the code and not here would be called damage; one removed would be waved through."""
    listed = re.search(r"NOT IN\s+\(\((.+)\)\)", sql.statement(name).text, re.DOTALL)
    assert listed is not None
    found = [(int(a), int(b)) for a, b in re.findall(r"(\d), (\d)", f"({listed[1]})")]
    assert len(found) == len(set(found))
    assert set(found) == {(before.value, after.value) for before, after in edges}


@pytest.mark.parametrize("operation", OperationStatus, ids=lambda status: status.name)
@pytest.mark.parametrize("action", Action, ids=lambda action: action.name)
def test_a_relation_is_expected_where_the_code_brings_it(action: Action, operation: OperationStatus) -> None:
    """The CASE in the SQL and `binding_after` tell the same for each action and status."""
    text = sql.statement("invariant_binding_follows_operation").text
    expected = binding_after(action, operation) or binding_in_progress(action)
    assert BindingStatus(_case(text, action, operation)) is expected


def _case(text: str, action: Action, operation: OperationStatus) -> int:
    """Evaluate `CASE o.status WHEN n THEN … ELSE … END`, whose branches may be `CASE o.action … END`."""
    begin = text.index("CASE o.status")
    branches: dict[str, str] = dict(re.findall(r"WHEN (\d) THEN (CASE o\.action .*? END|\d)\n", text[begin:]))
    last = re.search(r"ELSE (CASE o\.action .*? END) END", text[begin:])
    assert last is not None
    branch: str = branches.get(str(operation.value), str(last[1]))
    if branch.isdigit():
        return int(branch)
    inner: dict[str, str] = dict(re.findall(r"WHEN (\d) THEN (\d)", branch))
    otherwise = re.search(r"ELSE (\d)", branch)
    assert otherwise is not None
    return int(inner.get(str(action.value), otherwise[1]))


@pytest.mark.parametrize("name", ["invariant_settled_is_told", "invariant_operation_is_told"])
def test_a_notification_is_looked_for_only_while_it_is_kept(name: str) -> None:
    """The janitor may take a delivered notification away: older moves must not be called untold."""
    hours = re.search(r"INTERVAL (\d+) HOUR", sql.statement(name).text)
    assert hours is not None
    assert int(hours[1]) * 3600 < KEEP_NOTIFICATIONS_S
