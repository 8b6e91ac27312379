"""Tools get from the catalogs what they get from a real Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_dp.gateway.catalogs.catalog_database import CatalogDatabase
from stream_dp.gateway.catalogs.catalog_rows import table_oids
from tests.gateway.recorded_statements import SETTINGS, VIEW, Recorded, recorded

RECORDED = recorded()
SHOWN_AS_TEXT = ("regclass", "regproc", "regtype")  # oids there, names here
OIDS = {f"{schema}.{name}": oid for (schema, name), oid in table_oids(VIEW).items()}


@pytest.fixture(scope="module")
def catalogs() -> Iterator[CatalogDatabase]:
    database = CatalogDatabase(VIEW)
    yield database
    database.close()


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: one.tool.split(":")[0])
def test_a_statement_of_a_tool_is_answered_as_postgres_answers_it(
    catalogs: CatalogDatabase, one: Recorded
) -> None:
    sent = one.sent(OIDS.__getitem__)
    columns, rows = catalogs.answer(sent, SETTINGS)
    assert columns == catalogs.describe(sent, SETTINGS)
    assert columns == tuple(
        (name, "text" if kind in SHOWN_AS_TEXT else kind) for name, kind in one.columns
    )
    if one.fewer is None:
        assert len(rows) == one.rows
    else:
        assert len(rows) < one.rows


def test_most_statements_give_as_many_rows_as_postgres() -> None:
    assert len(RECORDED) >= 180
    assert sum(one.fewer is None for one in RECORDED) >= 0.85 * len(RECORDED)
