from __future__ import annotations

import datetime as dt
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from stream_dp.client import Client, Query, Refusal, Rejection
from stream_dp.client import client as client_module
from stream_dp.client.kafka import mailbox
from stream_dp.client.kafka.deployment_topics import create_topics
from stream_dp.client.statements.result_table import BAR
from stream_dp.embedded import ports
from stream_dp.embedded.kafka_server import KafkaServer
from stream_dp.errors import (
    InvalidDefinition,
    InvalidInput,
    InvalidQuery,
    RequestTimeout,
    ServerUnavailable,
    StreamDPError,
)
from stream_dp.messages import (
    FIELDS,
    Answer,
    CountAnswer,
    DimensionTable,
    QueryFields,
    QuotedBundle,
    SeriesAnswer,
    Topics,
)
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.kafka

Words = dict[str, Any]


def columns(n: int, *, bonn: float = 0.5) -> dict[str, list[object]]:
    """Of n rows, a share in Bonn and the rest in Graz; ages 10, 40 and 70 by turns; half smoke."""
    return {
        "city": ["Bonn" if i < bonn * n else "Graz" for i in range(n)],
        "age": [(10, 40, 70)[i % 3] for i in range(n)],
        "smoker": [i % 2 == 0 for i in range(n)],
    }


@pytest.fixture
def people(client: Client, definition: Words) -> str:
    """A data set with one open phase of 1,000 rows."""
    client.define(definition)
    name: str = definition["dataset"]
    assert client.send(name, columns=columns(1000, bonn=0.75)).phase == 1
    return name


def test_a_data_set_is_defined_once_and_never_changed(client: Client, definition: Words) -> None:
    defined = client.define(definition)
    assert client.define({"version": 1, **definition}) == defined
    assert client.catalog()[defined.dataset] == defined
    with pytest.raises(Rejection, match="definitions never change") as caught:
        client.define({**definition, "phase": {"min_rows": 7}})
    assert caught.value.reason.code == "dataset_exists"


def test_a_delta_that_may_give_rows_away_is_refused_before_anything_is_sent(
    client: Client, definition: Words
) -> None:
    privacy = {"epsilon": 10.0, "delta": 1.1e-3}
    with pytest.raises(InvalidDefinition, match=r"privacy\.delta: it is above 1/phase\.min_rows"):
        client.define({**definition, "privacy": privacy}, timeout_s=1.0)
    assert definition["dataset"] not in client.catalog()


def test_the_workers_note_about_a_definition_is_a_warning(
    client: Client, definition: Words
) -> None:
    definition["privacy"] = {"epsilon": 10.0, "delta": 1e-3}
    with pytest.warns(UserWarning, match=r"privacy.delta 0.001 is large for phases of 1,000 rows"):
        client.define(definition)
    assert definition["dataset"] in client.catalog()


def test_every_form_of_a_batch_counts_the_same_rows(client: Client, definition: Words) -> None:
    client.define(definition)
    name, given = definition["dataset"], columns(90)
    frame = pd.DataFrame({"id": range(90), **given})
    rows = [dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True)]
    forms: list[Words] = [
        {"columns": given},
        {"rows": rows},
        {"cells": [{**row, "count": 2} for row in rows[:45]]},
        {"frame": frame},
        {"arrow": pa.Table.from_pandas(frame)},
        {"arrow": pa.RecordBatch.from_pandas(frame)},
    ]
    events = [client.send(name, **form, batch_id=f"form-{i}") for i, form in enumerate(forms)]
    assert [event.rows for event in events] == [90] * 6
    assert events[-1].waiting == 540


def test_a_sender_alone_is_told_how_many_values_cannot_be_read(
    client: Client, definition: Words
) -> None:
    client.define(definition)
    name = definition["dataset"]
    given: Words = {"city": ["Bonn", "Oslo", None], "age": ["(7)", "7", "x"], "smoker": [True] * 3}
    for form in ({"columns": given}, {"frame": pd.DataFrame(given)}, {"arrow": pa.table(given)}):
        assert list(map(str, client.send(name, **form).unread)) == [
            "1 of 2 values of city are not listed",
            "2 of 3 values of age are not numbers",
        ]
    assert all("unread" not in event.model_dump_json() for event in client.batch_events(name))
    assert client.send(name, columns=columns(30)).unread == ()


def test_a_batch_sent_again_under_its_id_counts_once(client: Client, definition: Words) -> None:
    client.define(definition)
    name = definition["dataset"]
    first = client.send(name, columns=columns(90), batch_id="b")
    assert client.send(name, columns=columns(30), batch_id="b") == first
    assert client.send(name, columns=columns(30), batch_id="c").waiting == 120


def test_a_producer_counts_its_batches_and_finds_its_place_again(
    client: Client, definition: Words
) -> None:
    client.define(definition)
    name, arrow = definition["dataset"], pa.table(columns(90))
    assert client.next_sequence(name, "till-7") is None
    first = client.send(name, columns=columns(90), producer="till-7", sequence=4)
    second = client.send(name, arrow=arrow, producer="till-7", sequence=5)
    assert [event.event for event in (first, second)] == ["batch_accepted"] * 2
    assert (first.batch, second.batch_id, second.waiting) == ("till-7 4", None, 180)
    client.send(name, columns=columns(30), producer="till-8", sequence=70)
    client.send(name, columns=columns(30), batch_id="till-7")
    assert client.next_sequence(name, "till-7") == 6
    again = client.send(name, columns=columns(30), producer="till-7", sequence=5)
    assert (again.event, again.waiting, again.next_sequence) == ("batch_known", 240, 6)
    with pytest.raises(Rejection, match="6 is the next number of producer till-7") as refused:
        client.send(name, columns=columns(30), producer="till-7", sequence=9)
    assert refused.value.rejected.next_sequence == 6
    with pytest.raises(Rejection, match="there is no column") as broken:
        client.send(name, columns={"smoker": [True]}, producer="till-7", sequence=6)
    assert broken.value.reason.code == "invalid_batch"
    assert client.next_sequence(name, "till-7") == 6
    assert len(client.batch_events(name)) == 6


@pytest.mark.parametrize(
    "names",
    [
        {"producer": "till-7"},
        {"sequence": 0},
        {"batch_id": "b", "producer": "till-7", "sequence": 0},
        {"batch_id": "b", "sequence": 0},
    ],
)
def test_a_batch_has_one_name(client: Client, names: Words) -> None:
    with pytest.raises(InvalidInput, match="pass batch_id, or producer and sequence"):
        client.send("people", rows=[], **names)


def test_exactly_one_form_is_given(client: Client) -> None:
    with pytest.raises(InvalidInput, match="none of rows, columns, cells, frame and arrow given"):
        client.send("people")
    with pytest.raises(InvalidInput, match="rows and cells of rows"):
        client.send("people", rows=[], cells=[])


def test_a_refused_batch_says_why_and_takes_no_row(client: Client, definition: Words) -> None:
    client.define(definition)
    name = definition["dataset"]
    with pytest.raises(Rejection, match="there is no column age"):
        client.send(name, columns={"city": ["Bonn"], "smoker": [True]})
    assert client.send(name, columns=columns(1)).waiting == 1


def test_synthetic_rows_come_with_a_phase_and_go_with_the_data_set(
    client: Client, definition: Words
) -> None:
    client.define({**definition, "synthetic_rows": 200})
    name = definition["dataset"]
    with pytest.raises(StreamDPError, match="no synthetic rows yet: 200 come"):
        client.synthetic(name)
    client.send(name, columns=columns(1000, bonn=0.75))
    client.ask(name)  # answered after the rows were sent
    found = client.synthetic(name)
    assert (found.phase, found.window, found.n, found.rows) == (1, (1, 1), 1000, 200)
    frame = pd.DataFrame(found.values())
    assert list(frame.columns) == ["city", "age", "smoker"]
    assert (frame["city"] == "Bonn").mean() == pytest.approx(0.75, abs=found.error)
    assert found.error is not None
    assert found.error < 0.2
    client.retire(name)
    with pytest.raises(StreamDPError, match="retired just now"):
        client.synthetic(name)


def test_a_definition_that_comes_late_does_not_bring_a_retired_data_set_back(
    client: Client, served_deployment: Any, people: str
) -> None:
    definition = client.catalog()[people]
    client.retire(people)
    served_deployment.produce("catalog", definition.to_bytes(), key=people)
    assert people not in client.catalog()


def test_nothing_waits_once_the_rows_of_a_data_set_are_written_off(
    client: Client, served_deployment: Any
) -> None:
    accepted = {"version": 1, "dataset": "closed", "event": "batch_accepted", "waiting": 7}
    served_deployment.produce("events", accepted, key="closed")
    assert client.waiting()["closed"] == 7
    written_off = {"version": 1, "dataset": "closed", "event": "written_off", "batches": 1}
    served_deployment.produce("events", written_off, key="closed")
    assert client.waiting()["closed"] == 0


def test_records_of_another_program_on_the_public_topics_are_left_out(
    client: Client, served_deployment: Any, people: str
) -> None:
    waiting, rows = client.waiting(), len(client.ledger(people))
    for role in ("catalog", "ledger", "events", "answers"):
        for forged in (b"not JSON", b"[1]", b"3", b"\xff", b'{"version": 1}'):
            served_deployment.produce(role, forged, key=people)
    served_deployment.produce("catalog", b"not JSON", key="nobody")
    assert people in client.catalog()
    assert "nobody" not in client.catalog()
    assert len(client.ledger(people)) == rows
    assert client.waiting() == waiting
    assert client.stopped() == {}
    assert client.difficulties()[0][people] >= 0


def test_a_data_frame_goes_round(client: Client, definition: Words) -> None:
    client.define(definition)
    name = definition["dataset"]
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "city": rng.choice(
                np.array(["Bonn", "Graz", "Oslo", None]), 4000, p=[0.5, 0.3, 0.1, 0.1]
            ),
            "age": np.where(rng.random(4000) < 0.2, math.nan, rng.integers(0, 90, 4000)),
            "smoker": rng.random(4000) < 0.25,
        }
    )
    assert client.send(name, frame=frame).phase == 1
    table = client.table(name, "SELECT city, COUNT(*) GROUP BY city")
    assert list(table.columns) == ["city", "value", "error_bar", "count", "count_bar"]
    assert list(table["city"]) == ["Bonn", "Graz", "other", "missing"]
    exact = [(frame["city"] == c).mean() for c in ("Bonn", "Graz", "Oslo")]
    exact.append(frame["city"].isna().mean())
    assert table["error_bar"].dtype == np.float64
    # A bar is 2.6 times the noise, so that this alarm is false in fewer than one of 10^9 runs.
    assert np.all(np.abs(table["value"] - exact) <= 2.5 * table["error_bar"])


def test_many_threads_get_each_their_own_answer(client: Client, people: str) -> None:
    cities = ["Bonn", "Graz"] * 20

    def ask(number: int) -> Any:
        return client.ask(people, f"city = '{cities[number]}'", query_id=f"q{number}")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(40)))
    assert [answer.query_id for answer in answers] == [f"q{number}" for number in range(40)]
    values = {answer.value for city, answer in zip(cities, answers, strict=True) if city == "Bonn"}
    others = {answer.value for city, answer in zip(cities, answers, strict=True) if city == "Graz"}
    assert all(abs((value or 0) - 0.75) < 0.1 for value in values)
    assert all(abs((value or 0) - 0.25) < 0.1 for value in others)


def test_threads_that_ask_under_one_id_both_get_the_one_answer(client: Client, people: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(client.ask, people, "smoker", query_id="same") for _ in range(2)]
    assert len({future.result().to_bytes() for future in asked}) == 1


def test_a_rejection_reaches_who_caused_it_and_nobody_else(client: Client, people: str) -> None:
    client.ask(people, "smoker", query_id="mine")
    outcomes: dict[str, object] = {}

    def note(name: str, ask: Callable[[], object]) -> None:
        try:
            outcomes[name] = ask()
        except Rejection as error:
            outcomes[name] = error.reason.code

    tree = {"attribute": "smoker", "eq": True}
    calls: dict[str, Callable[[], object]] = {
        "good": lambda: client.ask(people, "age >= 18").status,
        "reused": lambda: client.ask(people, "age >= 65", query_id="mine"),
        "nowhere": lambda: client.ask("no-such-data-set", tree),
        "batch": lambda: client.send("no-such-data-set", columns=columns(1)),
        "again": lambda: client.ask(people, "smoker", query_id="mine").status,
    }
    threads = [threading.Thread(target=note, args=call) for call in calls.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The answer under this id is sent once more, and may come before the rejection.
    reused = outcomes.pop("reused")
    assert reused == "id_reused" or isinstance(reused, Answer)
    assert outcomes == {
        "good": "answered",
        "nowhere": "unknown_dataset",
        "batch": "unknown_dataset",
        "again": "answered",
    }


def test_many_queries_share_records_and_come_back_in_order(client: Client, people: str) -> None:
    client.ask(people, "age >= 65", query_id="taken")
    asked = [Query("age >= 18", query_id=f"m{i}") for i in range(205)]
    asked[150] = Query("age >= 18", query_id="taken")
    told: list[int] = []
    replies = client.ask_many(people, asked, on_answer=lambda index, _: told.append(index))
    assert isinstance(replies[150], Rejection)
    answers = [reply for reply in replies if isinstance(reply, Answer)]
    assert [answer.query_id for answer in answers] == [q.query_id for q in asked if q != asked[150]]
    assert told == [index for index in range(205) if index != 150]


def test_two_queries_of_one_call_have_two_ids(client: Client, people: str) -> None:
    with pytest.raises(InvalidInput, match="q appears twice"):
        client.ask_many(people, [Query(query_id="q"), Query("smoker", query_id="q")])


def test_large_queries_are_spread_over_records_that_are_served(client: Client, people: str) -> None:
    long = {"any": [{"attribute": "city", "in": ["Bonn"] * 900} for _ in range(10)]}
    replies = client.ask_many(people, [Query(long) for _ in range(9)])
    assert {reply.status for reply in replies if isinstance(reply, Answer)} == {"answered"}


def test_a_wrong_query_is_never_sent(client: Client, people: str) -> None:
    with pytest.raises(InvalidQuery, match="line 1, column 1: there is no attribute agee"):
        client.ask(people, "agee >= 18")
    with pytest.raises(InvalidInput, match=rf"did you mean {people}\?"):
        client.ask(people[:-1], "age >= 18")


def test_every_kind_has_a_constructor_whose_message_is_whole(client: Client, people: str) -> None:
    by_kind = {
        "sum": Query.sum("age", "smoker", group_by=["city"]),
        "share": Query.share("smoker", "age < 65", group_by=["city"], error={"value": 0.01}),
        "difference": Query.difference("smoker", {"previous_phases": 2}, last_phases=1),
        "threshold": Query.threshold("age", "age < 65"),
        "quantile": Query.quantile("age", 0.9, last_phases=1),
        "correlation": Query.correlation("age", "height"),
        "median": Query.median("age", query_id="mine"),
        "mode": Query.mode("city"),
        "prefix_batch": Query.prefix_batch("age", ["age < 18", {"attribute": "age", "lt": 65}]),
        "correlated_vector": Query.correlated_vector("smoker"),
        "between": Query.between("smoker", 0.1, 0.3),
        "interior_point": Query.interior_point("age", "age < 65"),
        "adaptive_threshold": Query.adaptive_threshold("age", "age < 65"),
    }
    assert by_kind.keys() == FIELDS.keys() - {"predicate", "table"}
    for kind, query in by_kind.items():
        fields = QueryFields.read(client.as_message(people, query))
        assert fields.kind == kind
        assert all(getattr(fields, name) not in (None, ()) for name in FIELDS[kind].needs)
    assert QueryFields.read(client.as_message(people, by_kind["median"])).query_id == "mine"
    batch = client.as_message(people, by_kind["prefix_batch"])
    assert batch["wheres"] == [{"attribute": "age", "lt": 18}, {"attribute": "age", "lt": 65}]
    found = client.as_message(people, Query("age < 18", kind="threshold"))
    assert found["attribute"] == "age"


def test_a_query_that_says_two_things_is_never_sent(client: Client, people: str) -> None:
    with pytest.raises(InvalidInput, match="already asks for quantile"):
        client.ask(people, Query("SELECT QUANTILE(age, 0.5)", kind="mode"))
    with pytest.raises(InvalidInput, match="it is already a Query"):
        client.ask(people, Query.mode("city"), last_phases=2)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="is not a condition"):
        client.ask(people, Query.prefix_batch("age", ["SELECT COUNT(*) GROUP BY age"]))
    with pytest.raises(InvalidInput, match=r"share_of: .* is not a condition"):
        client.ask(people, Query.share("SELECT COUNT(*)"))
    with pytest.raises(InvalidInput, match="those of the whole query"):
        client.ask(people, Query.share("smoker WITHIN 5%"))
    with pytest.raises(InvalidInput, match="already asks for sum"):
        client.ask(people, Query.share("smoker", "SELECT AVG(age)"))


def test_sums_come_as_a_data_frame_too(client: Client, people: str) -> None:
    frame = client.table(people, "SELECT city, AVG(age) GROUP BY city")
    assert list(frame.columns)[-4:] == ["total", "total_bar", "mean", "mean_bar"]
    assert frame.loc[frame["city"] == "Bonn", "count"].item() == pytest.approx(750, abs=100)


def test_shares_come_as_a_data_frame_too(client: Client, people: str) -> None:
    share = "AVG(CASE WHEN smoker THEN 1 ELSE 0 END)"
    frame = client.table(people, f"SELECT city, {share} GROUP BY city")
    assert list(frame.columns)[-4:] == ["share", "share_bar", "both", "both_bar"]
    one: Any = client.ask(people, f"SELECT {share} WHERE city = 'Bonn' WITHIN 0.2")
    same: Any = client.ask(people, Query.share("smoker", "city = 'Bonn'", error={"value": 0.2}))
    assert one.share_bar <= 0.2
    assert (same.share, same.path) == (one.share, "certified")


def test_one_statement_counts_all_rows_and_averages_those_that_have_a_value(
    client: Client, definition: Words
) -> None:
    """Half of the rows have no age: before, their number was what COUNT(*) got for an answer."""
    client.define(definition)
    name = definition["dataset"]
    cells = [{"city": "Bonn", "age": 40, "count": 3000}, {"city": "Graz", "count": 3000}]
    assert client.send(name, cells=cells).phase == 1
    both: Any = client.ask(name, "SELECT COUNT(*), COUNT(age), AVG(age)")
    assert (both.rows, both.rows_bar, both.n) == (6000, 0.0, 6000)
    assert both.count == pytest.approx(3000, abs=600)
    assert both.mean == pytest.approx(41.0, abs=15)
    some: Any = client.ask(name, "SELECT COUNT(*), AVG(age) WHERE city = 'Graz'")
    assert some.rows == pytest.approx(3000, abs=some.rows_bar)
    assert some.count == pytest.approx(0, abs=600)
    asked = Query.sum("age", "city = 'Graz'", count_rows=True)
    again: Any = client.ask(name, asked)
    assert again.rows == some.rows
    frame = client.table(name, "SELECT city, COUNT(*), AVG(age) GROUP BY city")
    assert list(frame.columns)[-3:] == ["mean_bar", "rows", "rows_bar"]
    graz = frame[frame["city"] == "Graz"]
    assert graz["rows"].item() == pytest.approx(3000, abs=graz["rows_bar"].item())
    assert graz["count"].item() == pytest.approx(0, abs=600)
    counted: Any = client.ask(name, "SELECT COUNT(age)")
    assert counted.count == pytest.approx(3000, abs=600)


def test_a_whole_statement_is_a_table_of_one_or_several_queries(
    client: Client, people: str
) -> None:
    one = f'SELECT city, COUNT(*) AS n FROM "{people.upper()}" GROUP BY 1 ORDER BY n DESC LIMIT 2;'
    found = client.sql(one, query_id=f"one-{people}")
    assert found.dataset == people
    assert found.column("city") == ["Bonn", "Graz"]
    assert abs(found.column("n")[0] - 750) <= found.column(f"n{BAR}")[0]  # type: ignore[operator]
    assert client.sql(one, query_id=f"one-{people}").rows == found.rows, "its id repeats its answer"
    several = "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE smoker) / COUNT(*) AS part"
    price = client.quote_sql(several, dataset=people)
    assert isinstance(price, QuotedBundle)
    assert len(price.queries) == 2
    table = client.sql(several, dataset=people, last_phases=1, at_most=0.9)
    ((n, n_bar, part, part_bar),) = table.rows
    assert (n, n_bar) == (1000, 0.0)
    assert abs(part - 0.5) <= part_bar  # type: ignore[operator]
    assert table.cost <= 0.9
    assert client.quote_sql(f'SELECT DISTINCT city FROM "{people}"') is None
    with pytest.raises(InvalidInput, match="names no data set"):
        client.sql(several)
    with pytest.raises(InvalidInput, match="the SQL says it too"):
        client.sql(f"{several} COSTING AT MOST 2%", dataset=people, at_most=0.1)
    with pytest.raises(Refusal, match="at_most"):
        client.sql("FRESH SELECT city, COUNT(*) GROUP BY 1", dataset=people, at_most=1e-9)


def test_a_public_table_is_joined_until_it_is_deleted(client: Client, people: str) -> None:
    name = f"cities-{people}"
    document = {
        "dimension": name, "key": "town", "columns": ["town", "country"],
        "types": ["text", "text"], "rows": [["Bonn", "DE"], ["Graz", "AT"], ["Linz", "AT"]],
    }  # fmt: skip
    client.put_dimension(DimensionTable.read(document))
    assert client.dimension(name).lines()["Linz"] == {"country": "AT"}
    asked = (
        f'SELECT c.country, COUNT(*) AS n FROM "{people}" p JOIN "{name}" c ON p.city = c.town '
        "GROUP BY 1 ORDER BY 1 DESC"
    )
    found = client.sql(asked)
    assert found.column("country") == ["DE", "AT"]
    for count, bar, true in zip(
        found.column("n"), found.column(f"n{BAR}"), (750, 250), strict=True
    ):
        assert abs(count - true) <= bar  # type: ignore[operator]
    client.delete_dimension(name)
    assert name not in client.dimensions()
    with pytest.raises(InvalidQuery, match="is not a public table"):
        client.sql(asked)
    with pytest.raises(InvalidInput, match="there is no public table"):
        client.delete_dimension(name)
    wide = {**document, "rows": [[f"c{i}", "x" * 250] for i in range(5000)]}
    with pytest.raises(InvalidInput, match="bytes are more than"):
        client.put_dimension(DimensionTable.read(wide))


def test_a_fresh_answer_is_asked_for_in_sql_or_in_python(client: Client, people: str) -> None:
    one: Any = client.ask(people, "FRESH city = 'Bonn'")
    other: Any = client.ask(people, Query("city = 'Bonn'", fresh=True))
    for answer in (one, other):
        assert answer.path == "measured"
        assert answer.privacy_loss.share > 0
        assert answer.error_bar_anytime is None
    plain: Any = client.ask(people, "city = 'Bonn'")
    assert plain.error_bar <= plain.error_bar_anytime


def test_a_quote_spends_nothing(client: Client, people: str) -> None:
    quoted = client.quote(people, "smoker AND age >= 65 AND city = 'Bonn'")
    assert quoted.status == "quoted"
    again = client.quote(people, "smoker AND age >= 65 AND city = 'Bonn'")
    assert again.budget == quoted.budget


def test_several_queries_are_quoted_together_and_asked_within_that_price(
    client: Client, people: str
) -> None:
    tiles: list[Any] = [
        "smoker AND age >= 65 AND city = 'Bonn'",
        {"attribute": "smoker", "eq": True},
        Query("smoker", ("city",), last_phases=1),
    ]
    quoted: Any = client.quote_together(people, tiles)
    assert (quoted.status, len(quoted.queries), quoted.phase) == ("quoted", 3, 1)
    assert client.quote_together(people, tiles).budget == quoted.budget
    queries = [tile if isinstance(tile, Query) else Query(tile) for tile in tiles]
    high = max(quoted.together.high, 1e-12)
    for answer in client.ask_many(people, queries, at_most=high):
        assert not isinstance(answer, Rejection)
        assert answer.status == "answered"
    with pytest.raises(InvalidInput, match="500 queries at the most, not 501"):
        client.quote_together(people, ["smoker"] * 501)
    with pytest.raises(InvalidInput, match="twice"):
        client.quote_together(people, [Query("smoker", query_id="q")] * 2)
    (refused,) = client.ask_many(people, [Query("smoker")], at_most=2.0)
    assert isinstance(refused, Rejection)


def test_batch_events_tell_what_became_of_batches(client: Client, people: str) -> None:
    before = int(time.time() * 1000)
    client.send(people, columns=columns(5), batch_id="late")
    assert [event.batch_id for event in client.batch_events(people, since_ms=before)] == ["late"]
    assert len(client.batch_events(people)) == 2
    assert client.waiting()[people] == 5


def test_a_data_set_is_stopped_until_another_event_follows(
    client: Client, make_deployment: Any
) -> None:
    deployment = make_deployment()
    reason = {"code": "stopped", "message": "the journal was cut"}
    for name in ("people", "shops"):
        stopped = {"version": 1, "dataset": name, "event": "stopped", "reason": reason}
        deployment.produce("events", stopped, key=name)
    repaired = {"version": 1, "dataset": "shops", "event": "repaired"}
    deployment.produce("events", repaired, key="shops")
    with deployment.client() as reading:
        assert reading.stopped() == {"people": "the journal was cut"}


def test_followers_see_what_happens_until_the_client_closes(
    kafka_server: str, served_prefix: str, client: Client, people: str
) -> None:
    watcher = Client(kafka_server, topic_prefix=served_prefix)
    watcher.open()
    seen: SimpleQueue[str] = SimpleQueue()

    def watch() -> None:
        for reply in watcher.follow(people):
            seen.put(type(reply).__name__)

    thread = threading.Thread(target=watch)
    thread.start()
    until(lambda: watcher._mailbox is not None and watcher._mailbox._followers)
    client.ask(people, "smoker")
    client.send(people, columns=columns(1))
    assert [seen.get(timeout=PATIENCE_S), seen.get(timeout=PATIENCE_S)] == [
        "PredicateAnswer",
        "Event",
    ]
    watcher.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert seen.empty()


# ---------------------------------------------------------------- nobody replies


def test_without_a_worker_the_timeout_says_so_and_what_to_do(
    kafka_server: str, silent_prefix: str
) -> None:
    told: list[str] = []
    with Client(kafka_server, topic_prefix=silent_prefix, on_delay=told.append) as client:
        with pytest.raises(RequestTimeout) as caught:
            client.ask("people", {"all": []}, query_id="q", timeout_s=9.5)
        assert client.worker_problem() == told[0]
    assert f"nobody has joined the group {silent_prefix[:-1]}-worker" in told[0]
    assert f"no reply to query q within 9.5 s: {told[0]}" in str(caught.value)
    assert "safe to send it again under the same id" in str(caught.value)
    assert len(told) == 1


def test_a_request_without_a_reply_is_sent_again_under_the_same_id(deployment: Any) -> None:
    with deployment.client() as client, pytest.raises(RequestTimeout):
        client.ask("people", {"all": []}, query_id="q", timeout_s=1.5)
    values = [record.value for record in deployment.read("queries")]
    assert len(values) == 3
    assert len(set(values)) == 1


def test_a_worker_that_starts_late_still_answers_and_one_that_ended_is_missed(
    deployment: Any, definition: Words
) -> None:
    with deployment.client() as client, ThreadPoolExecutor(1) as pool:
        defined = pool.submit(client.define, definition, timeout_s=PATIENCE_S)
        worker = deployment.worker().wait_ready()
        assert defined.result().dataset == definition["dataset"]
        assert client.worker_problem() is None
        worker.stop()
        worker.until(client.worker_problem)  # the broker takes a while to forget a member


def test_closing_wakes_up_who_waits(kafka_server: str, silent_prefix: str) -> None:
    client = Client(kafka_server, topic_prefix=silent_prefix)
    client.open()
    with ThreadPoolExecutor(3) as pool:
        longer = 2 * PATIENCE_S
        asked = [pool.submit(client.ask, "people", {"all": []}, timeout_s=longer) for _ in range(3)]
        time.sleep(0.5)
        client.close()
        for future in asked:
            with pytest.raises(StreamDPError, match="closed"):
                future.result(PATIENCE_S)
    with pytest.raises(StreamDPError, match="closed"):
        client.ask("people", {"all": []})


def test_without_a_broker_the_error_says_where_it_looked() -> None:
    port = ports.choose("nobody", None)
    where = f"127.0.0.1:{port}"
    with pytest.raises(ServerUnavailable, match=rf"answers at {where} \(Connection refused\)"):
        Client(where)
    with pytest.raises(ServerUnavailable, match="'localhost' is not host:port"):
        Client("localhost")


@pytest.mark.slow
def test_when_the_broker_dies_whoever_asks_reads_or_listens_is_told_and_closing_ends(
    own_kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "_LOOK_S", 0.5)
    monkeypatch.setattr(mailbox, "_AWAY_S", 8.0)  # longer than who asks waits to send again
    where = own_kafka.bootstrap_servers
    create_topics(where, Topics(), partitions=1)
    told: SimpleQueue[str] = SimpleQueue()
    with ThreadPoolExecutor(3) as pool, Client(where, on_delay=told.put) as client:

        def read_on() -> None:
            while True:
                client.catalog()

        asked = pool.submit(client.ask, "people", {"all": []}, timeout_s=12)
        reading = pool.submit(read_on)
        listening = pool.submit(lambda: next(client.follow()))
        assert "no worker runs" in told.get(timeout=PATIENCE_S)
        os.kill(own_kafka.pid, signal.SIGKILL)
        assert told.get(timeout=PATIENCE_S).startswith(f"no Kafka broker answers at {where}")
        # On a busy machine nobody may have time to send it again, or it is on its way as the broker dies.
        told_so = f"no Kafka broker answers at {where}|the broker at {where} took no record"
        with pytest.raises((ServerUnavailable, RequestTimeout), match=told_so):
            asked.result(PATIENCE_S)
        with pytest.raises(ServerUnavailable, match=f"answers at {where}"):
            reading.result(PATIENCE_S)
        with pytest.raises(ServerUnavailable, match=f"lost: no Kafka broker answers at {where}"):
            listening.result(PATIENCE_S)
        assert (client.worker_problem() or "").startswith(f"no Kafka broker answers at {where}")


def test_without_topics_the_error_says_how_to_make_them(
    kafka_server: str, topic_prefix: str
) -> None:
    with Client(kafka_server, topic_prefix=topic_prefix) as client:
        for reach in (client.open, client.catalog, lambda: client.ask("people", "smoker")):
            with pytest.raises(ServerUnavailable) as caught:
                reach()
            assert str(caught.value).endswith(f"topics create --topic-prefix {topic_prefix}")


def test_an_interrupt_while_a_client_connects_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = threading.Event()

    def deaf(**_: object) -> None:
        try:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            finish.wait(10)
        except KeyboardInterrupt:  # as kafka-python does where it meets one in a task of its own
            finish.wait(0.1)

    monkeypatch.setattr(client_module, "check_reachable", lambda _: None)
    monkeypatch.setattr(client_module, "KafkaProducer", deaf)
    try:
        with pytest.raises(KeyboardInterrupt):
            Client("127.0.0.1:1")
    finally:
        finish.set()


def test_a_day_is_closed_by_the_next_one_or_by_a_message(client: Client, definition: Words) -> None:
    phase = {"min_rows": 500, "every": "1 day", "timezone": "Europe/Berlin"}
    client.define({**definition, "phase": phase})
    name = definition["dataset"]
    client.send(name, columns=columns(500), at="2026-11-01")
    client.send(name, columns=columns(500, bonn=0.75), at=dt.date(2026, 11, 2))
    with pytest.raises(InvalidInput, match="at: it is neither a date"):
        client.send(name, columns=columns(500), at="tomorrow")
    closed = client.close_phase(name)
    assert (closed.phase, closed.since, closed.until) == (2, "2026-11-02", "2026-11-03")
    with pytest.raises(Rejection, match="fewer rows wait"):
        client.close_phase(name)
    answer = client.ask(name, Query("day >= DATE '2026-11-02'"))
    assert isinstance(answer, CountAnswer)
    assert (answer.n, answer.since, answer.until) == (500, "2026-11-02", "2026-11-03")
    asked = Query("SELECT city, COUNT(*) GROUP BY city", series="day")
    frame = client.table(name, asked)
    assert frame["since"].unique().tolist() == ["2026-11-01", "2026-11-02"]
    series = client.ask(name, Query("city = 'Bonn'", series="phase", window={"last": "1 day"}))
    assert isinstance(series, SeriesAnswer)
    assert [part.window for part in series.parts] == [(2, 2)]
