"""What the methods of a client do, on a worker of this process."""

from __future__ import annotations

import datetime as dt
import inspect
import json
import math
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from stream_dp import errors
from stream_dp.client import AsyncClient, Client, Query, Refusal, Rejection
from stream_dp.client.kafka import record_sender
from stream_dp.embedded import ports
from stream_dp.errors import InvalidInput, RequestTimeout, ServerUnavailable, StreamDPError
from stream_dp.messages import (
    FIELDS,
    Answer,
    CountAnswer,
    Definition,
    DimensionTable,
    QueryFields,
    QuotedBundle,
)
from tests.client.conftest import columns
from tests.client.world_client import QuietSession, SessionClient, WorldSession

Words = dict[str, Any]


@pytest.fixture
def people(client: Client, definition: Words) -> str:
    """A data set with one open phase of 1,000 rows."""
    name = client.define(definition).dataset
    assert client.send(name, columns=columns(1000, bonn=0.75)).phase == 1
    return name


# ---------------------------------------------------------------- data sets


def test_a_data_set_is_defined_once_and_never_changed(client: Client, definition: Words) -> None:
    defined = client.define(definition)
    assert client.define({"version": 1, **definition}) == defined
    assert client.catalog() == {defined.dataset: defined}
    with pytest.raises(Rejection, match="exists with another definition") as caught:
        client.define({**definition, "phase": {"min_rows": 7}})
    assert caught.value.reason.code == "dataset_exists"


def test_a_large_delta_is_refused_before_anything_is_sent_or_a_warning_where_it_was_written(
    client: Client, session: WorldSession, definition: Words
) -> None:
    with pytest.raises(
        errors.InvalidDefinition, match=r"privacy\.delta: it is above 1/phase\.min_rows"
    ):
        client.define({**definition, "privacy": {"epsilon": 10.0, "delta": 1.1e-3}})
    assert session.sent == []
    definition["privacy"] = {"epsilon": 10.0, "delta": 1e-3}
    words = r"privacy.delta 0.001 is large for phases of 1,000 rows"
    with pytest.warns(UserWarning, match=words) as told:
        client.define(definition)
    assert [one.filename for one in told] == [__file__]


def test_a_day_is_closed_by_the_next_one_or_by_a_message(client: Client, definition: Words) -> None:
    phase = {"min_rows": 500, "every": "1 day", "timezone": "Europe/Berlin"}
    name = client.define({**definition, "phase": phase}).dataset
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


def test_synthetic_rows_come_with_a_phase_and_a_data_set_that_is_retired_is_gone(
    client: Client, session: WorldSession, definition: Words
) -> None:
    name = client.define({**definition, "synthetic_rows": 200}).dataset
    with pytest.raises(StreamDPError, match="no synthetic rows yet: 200 come"):
        client.synthetic(name)
    client.send(name, columns=columns(1000, bonn=0.75))
    found = client.synthetic(name)
    assert (found.phase, found.window, found.n, found.rows) == (1, (1, 1), 1000, 200)
    assert list(pd.DataFrame(found.values())) == ["city", "age", "smoker"]
    event = client.change_analysts(name, {"bob": {"share": 0.3}}, owner={"share": 0.1})
    assert event.event == "analysts_changed"
    with pytest.raises(Rejection, match="allows nothing to 'ann'"):
        client.ask(name)
    defined = client.definition(name)
    client.retire(name)
    with pytest.raises(StreamDPError, match="retired just now"):
        client.synthetic(name)
    session.records["catalog"].append((name, defined.to_bytes()))
    assert client.catalog() == {}, "even if the definition comes late"


# ---------------------------------------------------------------- other attributes


def changed(definition: Words) -> list[Words]:
    """The same attributes, the first one with a value and a name more, and one attribute more."""
    city, age, smoker = definition["attributes"]
    plan = {"name": "plan", "type": "category", "values": ["basic"], "missing": True}
    return [{**city, "name": "town", "was": ["city"], "values": ["Bonn", "Graz", "Linz"],
             "also": {"Gratz": "Graz"}}, age, smoker, plan]  # fmt: skip


def test_other_attributes_count_from_the_next_phase_on(
    client: Client, session: WorldSession, definition: Words, people: str
) -> None:
    with pytest.raises(Rejection, match="there is no age any more"):
        client.change_schema(people, [{"name": "city", "type": "boolean"}])
    with pytest.raises(errors.InvalidDefinition, match=r"town: values: it is empty"):
        client.change_schema(people, [{"name": "town", "type": "category"}])
    event = client.change_schema(people, changed(definition))
    assert (event.event, event.schema_version, event.phase) == ("schema_changed", 2, 2)
    assert client.definition(people) == client.catalog()[people]
    assert [one.first_phase for one in client.definition(people).schema_versions] == [1, 2]
    session.sent.clear()
    assert client.change_schema(people, changed(definition)) == event, "nothing changes"
    assert session.sent == []
    assert client.define(definition) == client.definition(people), "the same data set as before"
    assert client.definition(people).schema_version == 2


def test_answers_say_what_older_rows_do_not_tell(
    client: Client, definition: Words, people: str
) -> None:
    client.change_schema(people, changed(definition))
    given = {**columns(1000), "plan": ["basic"] * 1000}
    given["city"] = ["Linz", "Gratz"] * 500
    sent = client.send(people, frame=pd.DataFrame(given))
    assert (sent.phase, sent.unread) == (2, ())
    answer = client.ask(people, Query("city = 'Linz'"))
    assert isinstance(answer, CountAnswer)
    assert answer.recorded_since == 2
    assert answer.unrecorded_at_most is not None
    assert abs(answer.count - 500) < 250
    table = client.sql(f'SELECT town, COUNT(*) AS n FROM "{people}" GROUP BY town')
    assert [column.name for column in table.columns][-1] == "n_unrecorded_at_most"
    more = dict(zip(table.column("town"), table.column("n_unrecorded_at_most"), strict=True))
    assert (more["Bonn"], more["Linz"] == answer.unrecorded_at_most) == (0, True)
    frame = table.to_pandas()
    assert list(frame["n_unrecorded_at_most"]) == table.column("n_unrecorded_at_most")
    by_phase = client.sql(
        f"SELECT phase, COUNT(*) AS n FROM \"{people}\" WHERE town = 'Linz' GROUP BY phase"
    )
    assert by_phase.column("n_unrecorded_at_most") == [answer.unrecorded_at_most, 0]
    twice = client.ask(people, Query("town = 'Gratz'"))
    assert isinstance(twice, CountAnswer)
    assert abs(twice.count - 750) < 250
    old = client.send(people, columns=columns(1000))
    assert old.phase == 3, "columns may have the names of any version"


def test_a_client_learns_of_other_attributes_from_the_event(
    session: WorldSession, definition: Words, people: str
) -> None:
    analyst = SessionClient(session)
    analyst.ask(people, Query("city = 'Bonn'"))
    change = {"version": 1, "dataset": people, "change": "schema", "schema_version": 2}
    session.send(
        "in.datasets",
        people,
        json.dumps({**change, "attributes": changed(definition)}).encode(),
        (),
    )
    assert analyst.definition(people).schema_version == 2
    assert analyst.sql(f"SELECT COUNT(*) FROM \"{people}\" WHERE town = 'Linz'").answers


def test_a_client_knows_values_that_were_found_meanwhile(client: Client, definition: Words) -> None:
    attributes = [
        {"name": "page", "type": "category", "find": {"windows": [1], "share": 0.3}},
        {"name": "bot", "type": "boolean"},
    ]
    defined = client.define({**definition, "dataset": "visits", "attributes": attributes})
    assert client.definition("visits") == defined
    for page in ("/home", "/spring"):
        client.send("visits", columns={"page": [page] * 1000, "bot": [False] * 1000})
        answer = client.ask("visits", Query(f"page = '{page}'"))
        assert isinstance(answer, CountAnswer)
        assert abs(answer.count - 1000) < 250


# ---------------------------------------------------------------- batches


def test_every_form_of_a_batch_counts_the_same_rows(client: Client, definition: Words) -> None:
    name, given = client.define(definition).dataset, columns(90)
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
    assert events[-1].waiting == client.waiting()[name] == 540


def test_a_sender_alone_is_told_how_many_values_cannot_be_read(
    client: Client, definition: Words
) -> None:
    name = client.define(definition).dataset
    given: Words = {"city": ["Bonn", "Oslo", None], "age": ["(7)", "7", "x"], "smoker": [True] * 3}
    words = ["1 of 2 values of city are not listed", "2 of 3 values of age are not numbers"]
    for form in ({"columns": given}, {"frame": pd.DataFrame(given)}, {"arrow": pa.table(given)}):
        assert list(map(str, client.send(name, **form).unread)) == words
    assert all("unread" not in event.model_dump_json() for event in client.batch_events(name))


def test_a_batch_counts_once_and_a_producer_finds_its_place_again(
    client: Client, definition: Words
) -> None:
    name, arrow = client.define(definition).dataset, pa.table(columns(90))
    assert client.next_sequence(name, "till-7") is None
    first = client.send(name, columns=columns(90), batch_id="b")
    assert client.send(name, columns=columns(30), batch_id="b") == first
    client.send(name, columns=columns(90), producer="till-7", sequence=4)
    second = client.send(name, arrow=arrow, producer="till-7", sequence=5)
    assert (second.event, second.batch, second.batch_id) == ("batch_accepted", "till-7 5", None)
    assert second.waiting == 270
    client.send(name, columns=columns(30), producer="till-8", sequence=70)
    client.send(name, columns=columns(30), batch_id="till-7")
    assert client.next_sequence(name, "till-7") == 6
    again = client.send(name, columns=columns(30), producer="till-7", sequence=5)
    assert (again.event, again.waiting, again.next_sequence) == ("batch_known", 330, 6)
    with pytest.raises(Rejection, match="6 is the next number of producer till-7") as refused:
        client.send(name, columns=columns(30), producer="till-7", sequence=9)
    assert refused.value.rejected.next_sequence == 6
    with pytest.raises(Rejection, match="there is no column") as broken:
        client.send(name, columns={"smoker": [True]}, producer="till-7", sequence=6)
    assert broken.value.reason.code == "invalid_batch"
    assert broken.value.rejected.topic == "in.batches"
    assert client.next_sequence(name, "till-7") == 6
    assert len(client.batch_events(name)) == 8


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rows": [], "producer": "till-7"}, "pass batch_id, or producer and sequence"),
        ({"rows": [], "sequence": 0}, "pass batch_id, or producer and sequence"),
        ({"rows": [], "batch_id": "b", "producer": "p", "sequence": 0}, "no name, or two"),
        ({"rows": [], "batch_id": "b", "sequence": 0}, "it has no name, or two"),
        ({}, "none of rows, columns, cells, frame and arrow given; pass exactly one"),
        ({"rows": [], "cells": []}, "rows and cells of rows"),
        ({"cells": [{"city": "x" * 9_000_000, "count": 1}]}, "send fewer rows a batch"),
    ],
)
def test_a_batch_has_one_form_one_name_and_one_record(
    client: Client, given: Words, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        client.send("people", **given)


@pytest.mark.parametrize("form", ["frame", "arrow"])
def test_where_persons_are_protected_the_columns_of_keys_go_along(
    silent: QuietSession, definition: Words, form: str
) -> None:
    definition["privacy"] |= {"unit": {"key": "id", "rows_per_phase": 1, "phases": 12}}
    definition["erasure"] = {"within": "24 hours", "row": "visit"}
    read = Definition.read({"version": 1, **definition})
    silent.definitions[read.dataset] = read
    frame = pd.DataFrame({"x": 1, "visit": [7, 8], "id": ["a", "b"], **columns(2)})
    given = {"frame": frame, "arrow": pa.Table.from_pandas(frame)}
    with pytest.raises(RequestTimeout):
        SessionClient(silent).send(read.dataset, **{form: given[form]}, timeout_s=0.01)
    _, _, value, headers = silent.sent[0]
    assert value is not None
    if form == "frame":
        sent = json.loads(value)["columns"]
    else:
        assert headers["content-type"] == b"application/vnd.apache.arrow.stream"
        sent = pa.ipc.open_stream(value).read_all().to_pydict()
    assert list(sent) == ["city", "age", "smoker", "id", "visit"]
    assert (sent["id"], sent["visit"]) == (["a", "b"], [7, 8])


# ---------------------------------------------------------------- queries


def test_a_data_frame_goes_round(client: Client, definition: Words) -> None:
    name = client.define(definition).dataset
    rng = np.random.default_rng(7)
    cities = np.array(["Bonn", "Graz", "Oslo", None])
    ages = np.where(rng.random(4000) < 0.2, math.nan, rng.integers(0, 90, 4000))
    lived = rng.choice(cities, 4000, p=[0.5, 0.3, 0.1, 0.1])
    frame = pd.DataFrame({"city": lived, "age": ages, "smoker": rng.random(4000) < 0.25})
    assert client.send(name, frame=frame).phase == 1
    table = client.table(name, "SELECT city, COUNT(*) GROUP BY city")
    assert list(table.columns) == ["city", "value", "error_bar", "count", "count_bar"]
    assert list(table["city"]) == ["Bonn", "Graz", "other", "missing"]
    exact = [(frame["city"] == city).mean() for city in cities[:3]]
    exact.append(frame["city"].isna().mean())
    assert np.all(np.abs(table["value"] - exact) <= table["error_bar"].to_numpy(np.float64))


def test_many_queries_share_records_and_come_back_in_order(
    client: Client, session: WorldSession, people: str
) -> None:
    client.ask(people, "age >= 65", query_id="taken")
    before = len(session.sent)
    asked = [Query("age >= 18", query_id=f"m{i}") for i in range(205)]
    asked[150] = Query("age >= 18", query_id="taken")
    told: list[int] = []
    replies = client.ask_many(people, asked, on_answer=lambda index, _: told.append(index))
    assert isinstance(replies[150], Rejection)
    answers = [reply for reply in replies if isinstance(reply, Answer)]
    assert [answer.query_id for answer in answers] == [q.query_id for q in asked if q != asked[150]]
    assert told == [index for index in range(205) if index != 150]
    assert len(session.sent) - before == 3, "a hundred in a record"


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


def test_what_is_wrong_or_contradicts_itself_is_never_sent(
    client: Client, session: WorldSession, people: str
) -> None:
    session.sent.clear()
    wrong: list[tuple[Any, str]] = [
        ("agee >= 18", "line 1, column 1: there is no attribute agee"),
        (Query("SELECT QUANTILE(age, 0.5)", kind="mode"), "already asks for quantile"),
        (Query.prefix_batch("age", ["SELECT COUNT(*) GROUP BY age"]), "is not a condition"),
        (Query.share("SELECT COUNT(*)"), r"share_of: .* is not a condition"),
        (Query.share("smoker WITHIN 5%"), "those of the whole query"),
        (Query.share("smoker", "SELECT AVG(age)"), "already asks for sum"),
    ]
    for asked, words in wrong:
        with pytest.raises(InvalidInput, match=words):
            client.ask(people, asked)
    with pytest.raises(InvalidInput, match="it is already a Query"):
        client.ask(people, Query.mode("city"), last_phases=2)
    with pytest.raises(InvalidInput, match=rf"did you mean {people}\?"):
        client.ask(people[:-1], "age >= 18")
    for ask in (client.ask_many, client.quote_together):
        with pytest.raises(InvalidInput, match="q appears twice"):
            ask(people, [Query(query_id="q"), Query("smoker", query_id="q")])
    with pytest.raises(InvalidInput, match="500 queries at the most, not 501"):
        client.quote_together(people, ["smoker"] * 501)
    assert session.sent == []


def test_a_quote_spends_nothing_and_several_queries_are_asked_within_theirs(
    client: Client, people: str
) -> None:
    tiles: list[Any] = [
        "smoker AND age >= 65 AND city = 'Bonn'",
        {"attribute": "smoker", "eq": True},
        Query("smoker", ("city",), last_phases=1),
    ]
    single: Any = client.quote(people, tiles[0])
    assert single.status == "quoted"
    quoted: Any = client.quote_together(people, tiles)
    assert (quoted.status, len(quoted.queries), quoted.phase) == ("quoted", 3, 1)
    assert client.quote_together(people, tiles).budget == quoted.budget == single.budget
    queries = [tile if isinstance(tile, Query) else Query(tile) for tile in tiles]
    high = max(quoted.together.high, 1e-12)
    for answer in client.ask_many(people, queries, at_most=high):
        assert not isinstance(answer, Rejection)
        assert answer.status == "answered"
    (refused,) = client.ask_many(people, [Query("smoker")], at_most=2.0)
    assert isinstance(refused, Rejection)


def test_a_query_stands_until_it_ends(client: Client, people: str) -> None:
    stands = client.stand(people, "smoker", query_id="late", last_phases=1, alert={"above": 0.2})
    assert client.standing(people) == [stands] == client.standing()
    assert client.standing("others") == []
    answer = client.answer(people, "late@1")
    assert answer is not None
    assert answer == client.ask(people, "smoker", last_phases=1, query_id="late@1")
    with pytest.raises(Rejection, match="another standing query of this analyst has this id"):
        client.stand(people, "age < 18", query_id="late")
    client.end_standing(people, "late")
    assert client.standing(people) == []
    assert client.answer(people, "late@2") is None


# ---------------------------------------------------------------- statements


def test_a_statement_is_one_or_several_queries_with_one_price(client: Client, people: str) -> None:
    one = f'SELECT city, COUNT(*) AS n FROM "{people.upper()}" GROUP BY 1 ORDER BY n DESC LIMIT 2;'
    found = client.sql(one, query_id="one")
    assert found.column("city") == ["Bonn", "Graz"]
    assert client.sql(one, query_id="one").rows == found.rows, "its id repeats its answer"
    several = "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE smoker) / COUNT(*) AS part"
    price = client.quote_sql(several, dataset=people)
    assert isinstance(price, QuotedBundle)
    assert len(price.queries) == 2
    table = client.sql(several, dataset=people, last_phases=1, at_most=0.9)
    assert table.rows[0][:2] == (1000, 0.0)
    assert table.cost <= 0.9
    assert client.quote_sql(f'SELECT DISTINCT city FROM "{people}"') is None
    unclear: list[tuple[str, Words, str]] = [
        ("SELECT COUNT(*) AS n", {}, "names no data set"),
        (
            "SELECT COUNT(*) AS n COSTING AT MOST 2%",
            {"dataset": people, "at_most": 0.1},
            "says it too",
        ),
    ]
    for wrong, more, words in unclear:
        with pytest.raises(InvalidInput, match=words):
            client.sql(wrong, **more)
    others = client.define({**client.definition(people).model_dump(), "dataset": "other"})
    read = [client.statement("SELECT COUNT(*)", dataset=name) for name in (people, others.dataset)]
    with pytest.raises(InvalidInput, match=f"are about other and {people}"):
        client.ask_statements(read)
    with pytest.raises(Refusal, match="at_most"):
        client.sql("FRESH SELECT city, COUNT(*) GROUP BY 1", dataset=people, at_most=1e-9)


def test_a_public_table_can_be_joined_until_it_is_deleted(client: Client, people: str) -> None:
    rows = [["Bonn", "DE"], ["Graz", "AT"], ["Linz", "AT"]]
    head = {"dimension": "cities", "key": "town", "columns": ["town", "country"]}
    document = {**head, "types": ["text", "text"], "rows": rows}
    client.put_dimension(DimensionTable.read(document))
    assert client.dimension("cities").lines()["Linz"] == {"country": "AT"}
    tables = f'"{people}" p JOIN cities c ON p.city = c.town'
    joined = f"SELECT c.country, COUNT(*) FROM {tables} GROUP BY 1"
    assert {*client.sql(joined).column("country")} == {"AT", "DE"}
    assert client.sql("SELECT town FROM cities WHERE country = 'DE'").rows == [("Bonn",)]
    client.delete_dimension("cities")
    assert client.dimensions() == {}
    with pytest.raises(errors.InvalidQuery, match="is not a public table"):
        client.sql(joined)
    with pytest.raises(InvalidInput, match="there is no public table"):
        client.delete_dimension("cities")
    wide = {**document, "rows": [[f"c{i}", "x" * 250] for i in range(5000)]}
    with pytest.raises(InvalidInput, match="bytes are more than"):
        client.put_dimension(DimensionTable.read(wide))


# ---------------------------------------------------------------- what the topics tell


def test_events_tell_what_waits_and_what_is_stopped(silent: QuietSession) -> None:
    client = SessionClient(silent)

    def say(dataset: str, event: str, **more: Any) -> None:
        value = json.dumps({"version": 1, "dataset": dataset, "event": event, **more}).encode()
        silent.records.setdefault("events", []).append((dataset, value))

    for name in ("people", "shops"):
        say(name, "batch_accepted", waiting=7)
        say(name, "stopped", reason={"code": "stopped", "message": "the journal was cut"})
    assert client.waiting() == {"people": 7, "shops": 7}
    say("shops", "repaired")
    assert client.stopped() == {"people": "the journal was cut"}
    say("shops", "written_off", batches=1)
    assert client.waiting() == {"people": 7, "shops": 0}


def test_records_of_another_program_on_the_public_topics_are_left_out(
    client: Client, session: WorldSession, people: str
) -> None:
    client.ask(people, "smoker")
    easy, hard = client.difficulties()
    assert (easy + hard)[people] == 1
    before = client.waiting(), client.ledger(people), client.difficulties()
    for role in ("catalog", "ledger", "events", "answers", "standing", "dimensions"):
        for forged in (b"not JSON", b"[1]", b"3", b"\xff", b'{"version": 1}'):
            session.records.setdefault(role, []).append((people, forged))
    session.records["catalog"].append(("nobody", b"not JSON"))
    assert client.catalog().keys() == {people}
    assert (client.waiting(), client.ledger(people), client.difficulties()) == before
    assert client.stopped() == client.dimensions() == {}
    assert client.standing() == []


# ---------------------------------------------------------------- nobody replies


def test_a_request_without_a_reply_is_sent_again_in_the_same_bytes(silent: QuietSession) -> None:
    words = "no reply to query q within 0.1 s: no worker runs. It is safe to send it again under"
    with pytest.raises(RequestTimeout, match=words):
        SessionClient(silent).ask("people", {"all": []}, query_id="q", timeout_s=0.1)
    assert len(silent.sent) == 3
    assert len({value for _, _, value, _ in silent.sent}) == 1
    assert silent.mailbox._waiters == {}


def test_closing_wakes_up_who_waits(silent: QuietSession) -> None:
    client = SessionClient(silent)
    with ThreadPoolExecutor(2) as pool:
        asked: list[Future[Any]] = [
            pool.submit(client.ask, "people", {"all": []}, timeout_s=99),
            pool.submit(client.ask_many, "people", [Query({"all": []})], timeout_s=99),
        ]
        time.sleep(0.1)
        client.close()
        for future in asked:
            with pytest.raises(StreamDPError, match="closed before the reply came"):
                future.result(60)
    with pytest.raises(StreamDPError, match="this client is closed"):
        client.ask("people", {"all": []})


def test_without_a_broker_the_error_says_where_it_looked() -> None:
    where = f"127.0.0.1:{ports.choose('nobody', None)}"
    with pytest.raises(ServerUnavailable, match=rf"answers at {where} \(Connection refused\)"):
        Client(where)
    with pytest.raises(ServerUnavailable, match="'localhost' is not host:port"):
        Client("localhost")


def test_an_interrupt_while_a_client_connects_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = threading.Event()

    def deaf(**_: object) -> None:
        try:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            finish.wait(10)
        except KeyboardInterrupt:  # as kafka-python does where it meets one in a task of its own
            finish.wait(0.1)

    monkeypatch.setattr(record_sender, "check_reachable", lambda _: None)
    monkeypatch.setattr(record_sender, "KafkaProducer", deaf)
    try:
        with pytest.raises(KeyboardInterrupt):
            Client("127.0.0.1:1")
    finally:
        finish.set()


def test_each_method_says_what_it_does_and_both_clients_have_it(client: Client) -> None:
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_"):
            assert method.__doc__, name
            assert hasattr(AsyncClient, name) or name == "subscribe"
    assert list(inspect.signature(client.retire).parameters) == ["dataset", "timeout_s"]
