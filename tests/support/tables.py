"""Looks into the tables past the store: what a test counts must not be counted by what it tests."""

from __future__ import annotations

from typing import Any

import pymysql


def column(connection: pymysql.Connection[Any], query: str, *values: object) -> list[Any]:
    """The first column of what `query` finds."""
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return [row[0] for row in cursor.fetchall()]


def count(connection: pymysql.Connection[Any], table: str, where: str = "TRUE", *values: object) -> int:
    """How many rows of `table` there are."""
    return int(column(connection, f"SELECT COUNT(*) FROM `{table}` WHERE {where}", *values)[0])


def rows(connection: pymysql.Connection[Any], table: str) -> list[tuple[Any, ...]]:
    """Every row of `table`, whole, in the order of its first column."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM `{table}` ORDER BY 1, 2")
        return list(cursor.fetchall())
