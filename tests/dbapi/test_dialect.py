"""SQLAlchemy reads the catalog, writes statements, and gives their tables with the error bars."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import registry
from sqlalchemy.engine import make_url
from sqlalchemy.orm import DeclarativeBase, Session

from stream_dp import dbapi
from stream_dp.dbapi.connections import Connection
from stream_dp.dbapi.dialect import StreamDPDialect
from stream_dp.errors import ServerUnavailable
from tests.client.world_client import WorldClient
from tests.pipeline.world import definition

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
WIDE = {
    "attributes": [
        {"name": "Home town", "type": "category", "values": ["Bonn", "Graz"], "missing": True},
        {"name": "height", "type": "number", "edges": [1.5, 1.8]},
    ]
}

DAY = {"name": "at", "type": "date", "by": "day", "from": "2026-06-01", "until": "2026-09-01"}


@pytest.fixture
def engine(client: WorldClient) -> Iterator[sa.Engine]:
    """An engine on ``flights`` and the data set ``people-2026``, of which no phase is open."""
    registry.register("streamdp", "stream_dp.dbapi.dialect", "StreamDPDialect")
    client.define(definition("people-2026", **WIDE))
    made = sa.create_engine("streamdp://", creator=lambda: Connection(client))
    yield made
    made.dispose()


@pytest.fixture
def flights(engine: sa.Engine) -> sa.Table:
    return sa.Table("flights", sa.MetaData(), autoload_with=engine)


def test_the_package_announces_the_dialect() -> None:
    points = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]
    module, _, name = points["sqlalchemy.dialects"]["streamdp"].partition(":")
    assert (module, name) == (StreamDPDialect.__module__, StreamDPDialect.__name__)


# ---------------------------------------------------------------- introspection


def test_data_sets_are_tables_and_attributes_are_columns(
    client: WorldClient, engine: sa.Engine
) -> None:
    found = sa.inspect(engine)
    assert "exact and free" in str(found.get_table_comment("carriers")["text"])
    assert "rows are never shown" in str(found.get_table_comment("flights")["text"])
    comments = {column["name"]: column["comment"] for column in found.get_columns("flights")}
    assert "names of its bins" in str(comments["delay"])
    assert "group by it for a series" in str(comments["month"])
    assert comments["carrier"] is None
    assert found.get_table_names() == ["carriers", "flights", "people-2026"]
    assert found.has_table("flights")
    assert not found.has_table("planes")
    columns = [
        (column["name"], str(column["type"]), column["nullable"])
        for name in found.get_table_names()
        for column in found.get_columns(name)
    ]
    time = [(name, "DATE", False) for name in ("day", "week", "month")]
    time.append(("phase", "INTEGER", False))
    assert columns == [
        ("code", "VARCHAR", False),
        ("region", "VARCHAR", True),
        ("planes", "INTEGER", True),
        ("carrier", "VARCHAR", False),
        ("delay", "INTEGER", False),
        ("cancelled", "BOOLEAN", False),
        *time,
        ("Home town", "VARCHAR", True),
        ("height", "FLOAT", False),
        *time,
    ]
    unit = {"key": "patient", "rows_per_phase": 1, "phases": 12}
    named = [{"name": name, "type": "category", "values": ["a"]} for name in ("day", "ward")]
    privacy = {"epsilon": 1.0, "delta": 1e-9, "unit": unit}
    client.define(definition("visits", attributes=named, privacy=privacy))
    names = [column["name"] for column in sa.inspect(engine).get_columns("visits")]
    assert names == ["day", "ward", "week", "month", "phase", "patient"], "each once"


def test_there_are_no_keys_schemas_or_views(engine: sa.Engine) -> None:
    found = sa.inspect(engine)
    assert found.get_pk_constraint("flights")["constrained_columns"] == []
    assert found.get_foreign_keys("flights") == found.get_indexes("flights") == []
    assert found.get_schema_names() == found.get_view_names() == []
    assert found.get_table_names(schema="main") == []
    for about in (found.get_columns, found.get_table_comment):
        for name, schema in (("planes", None), ("flights", "main")):
            with pytest.raises(exc.NoSuchTableError):
                about(name, schema=schema)
    metadata = sa.MetaData()
    metadata.reflect(engine)
    assert set(metadata.tables) == {"carriers", "flights", "people-2026"}


# ---------------------------------------------------------------- statements


def test_a_select_gives_values_and_their_bars(engine: sa.Engine, flights: sa.Table) -> None:
    count = sa.func.count().label("n")
    query = sa.select(flights.c.carrier, count).group_by(flights.c.carrier)
    with engine.connect() as connection:
        result = connection.execute(query.order_by(count.desc()).limit(2))
        assert list(result.keys()) == [
            *("carrier", "n", "n_error_bar", "n_low", "n_high"),
            *("rank", "rank_low", "rank_high"),
        ]
        first, _ = result.all()
    assert first.carrier == "AA"
    assert abs(first.n - 9_000) <= first.n_error_bar < 1_000


def where_of(engine: sa.Engine, client: WorldClient, table: sa.Table, condition: Any) -> Any:
    """The condition that a worker is asked; where nothing is asked, the rows that satisfy it."""
    client.session.sent.clear()
    with engine.connect() as connection:
        query = sa.select(sa.func.count().label("n")).select_from(table).where(condition)
        try:
            found = connection.execute(query).one().n
        except exc.OperationalError:  # no phase is open
            found = None
    return client.asked[-1]["where"] if client.asked else found


BOTH = {"attribute": "carrier", "in": ["AA", "UA"]}
AA = {"attribute": "carrier", "eq": "AA"}
CANCELLED = {"attribute": "cancelled", "eq": True}
EARLY = {"attribute": "delay", "lt": 10}


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        (lambda c: c.carrier == "AA", AA),
        (lambda c: c.carrier.in_(["AA", "UA"]), BOTH),
        (lambda c: c.carrier.not_in(["AA"]), {"not": AA}),
        (lambda c: c.cancelled, CANCELLED),
        (lambda c: ~c.cancelled, {"not": CANCELLED}),
        (lambda c: c.cancelled == sa.true(), CANCELLED),
        (lambda c: sa.or_(c.delay < 10, sa.and_(c.delay >= 30, c.carrier == "AA")),
         {"any": [EARLY, {"all": [{"attribute": "delay", "ge": 30}, AA]}]}),
        (lambda c: c.carrier.like("A%"), AA),
        (lambda c: c.carrier.in_([]), 0),
        (lambda c: c.carrier.not_in([]), None),
        (lambda c: sa.or_(c.carrier == "AA", c.carrier.in_([])), AA),
        (lambda c: sa.literal(1) == 1, None),
        (lambda c: sa.and_(sa.true(), c.carrier == "AA"), AA),
        (lambda c: sa.false(), 0),
        (lambda c: c.carrier.ilike("a%"), AA),
        (lambda c: c.carrier.contains("A"), BOTH),
        (lambda c: c.carrier.contains("_A", autoescape=True), 0),
        (lambda c: c.carrier.icontains("uA"), {"attribute": "carrier", "eq": "UA"}),
        (lambda c: c.carrier.startswith("A"), AA),
        (lambda c: c.carrier.endswith("A"), BOTH),
        (lambda c: sa.not_(c.carrier.startswith("U")), AA),
    ],
)  # fmt: skip
def test_conditions_are_asked_as_sqlalchemy_means_them(
    engine: sa.Engine, client: WorldClient, flights: sa.Table, condition: Any, asked: Any
) -> None:
    assert where_of(engine, client, flights, condition(flights.c)) == asked


def test_a_datetime_with_a_zone_is_an_instant(engine: sa.Engine, client: WorldClient) -> None:
    client.define(definition("trips-2026", attributes=[{**DAY, "timezone": "Europe/Berlin"}]))
    trips = sa.Table("trips-2026", sa.MetaData(), autoload_with=engine)
    at = datetime(2026, 6, 30, 22, tzinfo=UTC)
    begins = {"attribute": "at", "ge": "2026-07-01T00:00:00"}
    assert where_of(engine, client, trips, trips.c.at >= at) == begins
    zoned = at.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert where_of(engine, client, trips, trips.c.at >= zoned) == begins
    last = datetime.fromisoformat("2026-07-31T23:59:59.999999")
    assert where_of(engine, client, trips, trips.c.at.between(at, last)) == {
        "attribute": "at",
        "between": ["2026-07-01T00:00:00", "2026-07-31T23:59:59"],
    }


def test_averages_subqueries_and_names_that_need_quotes(
    engine: sa.Engine, flights: sa.Table, client: WorldClient
) -> None:
    late = sa.select(flights).where(flights.c.delay >= 30).subquery()
    with engine.connect() as connection:
        mean = connection.execute(sa.select(sa.func.avg(flights.c.delay).label("m"))).one()
        assert mean.m_error_bar > 0
        assert connection.execute(sa.select(sa.func.count()).select_from(late)).one()[0] > 7_000
        people = sa.Table("people-2026", sa.MetaData(), autoload_with=connection)
        query = sa.select(sa.func.count()).where(people.c["Home town"] == "Bonn")
        with pytest.raises(exc.OperationalError, match="no phase"):
            connection.execute(query)
    assert client.asked[-1]["where"] == {"attribute": "Home town", "eq": "Bonn"}


def test_a_public_table_is_selected_from_and_joined_as_any_other(
    engine: sa.Engine, flights: sa.Table
) -> None:
    carriers = sa.Table("carriers", sa.MetaData(), autoload_with=engine)
    region, count = carriers.c.region, sa.func.count().label("n")
    joined = flights.join(carriers, flights.c.carrier == carriers.c.code)
    by_region = sa.select(region, count).select_from(joined).group_by(region)
    with engine.connect() as connection:
        rows = connection.execute(sa.select(carriers).order_by(carriers.c.code)).fetchall()
        assert rows == [("AA", "west", 900), ("UA", "east", None)]
        found = {row.region: row.n for row in connection.execute(by_region)}
        assert found["west"] > found["east"] > 7_000
        many = connection.execute(by_region.where(carriers.c.planes > 500))
        assert [row.region for row in many] == ["west"]
        none = connection.execute(sa.select(count).select_from(joined).where(region.in_([]))).one()
        assert (none.n, none.n_error_bar) == (0, 0.0)


def test_a_statement_is_compiled_once_for_all_values(engine: sa.Engine, flights: sa.Table) -> None:
    with engine.connect() as connection:
        for carrier, least in (("AA", 8_500), ("UA", 7_500), ("other", 3_500)):
            query = sa.select(sa.func.count()).where(flights.c.carrier == carrier)
            assert least < connection.execute(query).one()[0] < least + 1_000


def test_classes_are_mapped_to_data_sets_and_pandas_reads_them(engine: sa.Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Flight(Base):
        __tablename__ = "flights"
        carrier = sa.orm.mapped_column(sa.String, primary_key=True)

    with Session(engine) as session:
        query = sa.select(Flight.carrier, sa.func.count().label("n")).group_by(Flight.carrier)
        assert {row.carrier for row in session.execute(query)} == {"AA", "UA", "other"}
    text = "SELECT carrier, AVG(delay) AS m FROM flights WHERE delay >= :low GROUP BY carrier"
    frame = pd.read_sql(sa.text(text), engine, params={"low": 0})
    assert list(frame.columns) == ["carrier", "m", "m_error_bar", "m_low", "m_high"]
    assert list(frame["carrier"]) == ["AA", "UA", "other"]


# ---------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda t: t.insert().values(carrier="AA"), "stream-dp ingest"),
        (lambda t: t.update().values(carrier="AA"), "never changes"),
        (lambda t: t.delete(), "erased with their data set"),
        (lambda t: sa.schema.CreateTable(t), "stream-dp dataset create"),
    ],
)
def test_nothing_is_written_through_sql(
    engine: sa.Engine, flights: sa.Table, write: Any, words: str
) -> None:
    with engine.connect() as connection, pytest.raises(exc.SQLAlchemyError, match=words):
        connection.execute(write(flights))


def test_errors_keep_their_class_and_a_lost_broker_invalidates_the_connection(
    engine: sa.Engine, client: WorldClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.connect() as connection:
        with pytest.raises(exc.ProgrammingError, match="rows are never shown") as caught:
            connection.execute(sa.text("SELECT * FROM flights"))
        assert isinstance(caught.value.orig, dbapi.ProgrammingError)
        assert not caught.value.connection_invalidated
        lost = mock.Mock(side_effect=ServerUnavailable("the broker was lost"))
        monkeypatch.setattr(client.session, "send", lost)
        with pytest.raises(exc.OperationalError, match="the broker was lost") as gone:
            connection.execute(sa.text("SELECT COUNT(*) FROM flights"))
        assert gone.value.connection_invalidated


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("streamdp://", {}),
        ("streamdp://kafka.example", {"bootstrap_servers": "kafka.example:9092"}),
        ("streamdp://ann@127.0.0.1:23566/?topic_prefix=a.&last_phases=7&at_most=0.01&timeout_s=5",
         {"bootstrap_servers": "127.0.0.1:23566", "analyst": "ann", "topic_prefix": "a.", "last_phases": 7,
          "at_most": 0.01, "timeout_s": 5.0}),
        ("streamdp://:a.b-c_d.e@h", {"bootstrap_servers": "h:9092", "token": "a.b-c_d.e"}),
        ("streamdp://h/flights", "/flights means nothing here"),
        ("streamdp://h/?colour=red", "colour is unknown; use topic_prefix"),
        ("streamdp://h/?last_phases=x", "last_phases=x is not a whole number"),
        ("streamdp://h/?at_most=1&at_most=2", "at_most is there 2 times; give it once"),
    ],
)  # fmt: skip
def test_an_address_says_where_the_brokers_are_and_who_asks(url: str, named: Any) -> None:
    if isinstance(named, str):
        with pytest.raises(exc.ArgumentError, match=named):
            StreamDPDialect().create_connect_args(make_url(url))
        return
    positional, found = StreamDPDialect().create_connect_args(make_url(url))
    assert (list(positional), dict(found)) == ([], named)
    assert "b-c_d" not in f"{make_url(url)!r} {sa.create_engine(url)!r}", "a token is not shown"
