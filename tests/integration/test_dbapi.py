"""pandas and SQLAlchemy ask a real worker through a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry

from stream_dp import dbapi

pytestmark = pytest.mark.kafka

ORDERS = "SELECT country, COUNT(*) AS n FROM orders WHERE paid GROUP BY country ORDER BY n DESC"


@pytest.fixture(scope="module")
def deployment_with_orders(served_deployment: Any) -> Any:
    """4,000 orders in a phase."""
    with served_deployment.client() as client:
        client.define(
            {
                "dataset": "orders",
                "attributes": [
                    {"name": "country", "type": "category", "values": ["DE", "FR", "SE"]},
                    {"name": "amount", "type": "number", "edges": [0, 20, 50, 100]},
                    {"name": "paid", "type": "boolean"},
                ],
                "privacy": {"epsilon": 10.0, "delta": 1e-9},
                "accuracy": {"error": 0.05, "failure_probability": 1e-7},
                "phase": {"min_rows": 4000},
            }
        )
        cells = [
            {"country": country, "amount": 30, "paid": paid, "count": count}
            for country, paid, count in (("DE", True, 2500), ("FR", True, 1000), ("SE", False, 500))
        ]
        assert client.send("orders", cells=cells).phase == 1
    return served_deployment


@pytest.fixture
def engine(deployment_with_orders: Any) -> Iterator[sa.Engine]:
    registry.register("streamdp", "stream_dp.dbapi.dialect", "StreamDPDialect")
    servers, prefix = deployment_with_orders.bootstrap_servers, deployment_with_orders.prefix
    made = sa.create_engine(f"streamdp://ann@{servers}/?topic_prefix={prefix}", pool_pre_ping=True)
    yield made
    made.dispose()


def check(frame: pd.DataFrame) -> None:
    assert list(frame.columns) == ["country", "n", "n_error_bar", "n_low", "n_high"]
    assert list(frame["country"])[:2] == ["DE", "FR"]
    off = (frame["n"] - pd.Series([2500, 1000])).abs()[:2]
    # Twice the bar is five deviations: a false alarm in a million runs.
    assert (off <= 2 * frame["n_error_bar"][:2]).all()


def test_pandas_reads_a_statement_through_the_driver(deployment_with_orders: Any) -> None:
    servers, prefix = deployment_with_orders.bootstrap_servers, deployment_with_orders.prefix
    with (
        dbapi.connect(servers, analyst="ann", topic_prefix=prefix) as connection,
        pytest.warns(UserWarning, match="DBAPI2"),
    ):
        check(pd.read_sql(ORDERS, connection))  # type: ignore[call-overload]


def test_sqlalchemy_reflects_asks_and_gives_pandas_its_table(engine: sa.Engine) -> None:
    assert "orders" in sa.inspect(engine).get_table_names()
    orders = sa.Table("orders", sa.MetaData(), autoload_with=engine)
    count = sa.func.count().label("n")
    query = (
        sa.select(orders.c.country, count)
        .where(orders.c.paid)
        .group_by(orders.c.country)
        .order_by(count.desc())
    )
    check(pd.read_sql(query, engine))
    with engine.connect() as connection:
        mean = connection.execute(sa.select(sa.func.avg(orders.c.amount).label("m"))).one()
        assert abs(mean.m - 35) <= mean.m_error_bar
        with pytest.raises(sa.exc.ProgrammingError, match="rows are never shown"):
            connection.execute(sa.text("SELECT * FROM orders"))
