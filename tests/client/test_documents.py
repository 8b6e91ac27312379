from __future__ import annotations

import datetime as dt
import json
import math
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from stream_dp.client import Rejection, answer_frame, answers_frame
from stream_dp.client.kafka import topic_documents
from stream_dp.client.kafka.deployment_topics import worker_group
from stream_dp.client.rows import frames
from stream_dp.core.rows.attributes import Boolean, Category, Number
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidInput, StreamDPError
from stream_dp.messages import Answer, Batched, FoundCell, Reason, Rejected, read_answer
from stream_dp.settings import WorkerSettings
from tests.answers import noisy_answer

UNIVERSE = Universe(
    (
        Category("city", ("Bonn", "Graz"), missing=True),
        Number("age", (18.0, 65.0), missing=True),
        Boolean("smoker", missing=True),
    )
)
FRAME = pd.DataFrame(
    {
        "id": [1, 2, 3, 4],
        "city": pd.Categorical(["Bonn", None, "Graz", "Oslo"]),
        "age": [17.5, math.nan, math.inf, -math.inf],
        "smoker": pd.array([True, False, None, True], dtype="boolean"),
    }
)
CODES = [[0, 3, 1, 2], [0, 3, 2, 0], [1, 0, 2, 1]]


def through_json(columns: object) -> list[list[int]]:
    """Codes of what the worker reads from the message."""
    found = json.loads(
        topic_documents.to_json({"columns": columns}), parse_constant=lambda _: 1 / 0
    )
    return [codes.tolist() for codes in UNIVERSE.encode_columns(found["columns"]).codes]


def test_a_data_frame_arrives_as_it_is_with_its_missing_values() -> None:
    assert through_json(frames.frame_columns(FRAME, UNIVERSE.names)) == CODES


def test_what_json_does_not_know_becomes_what_the_worker_reads_the_same_way() -> None:
    columns = {
        "city": [np.str_("Graz"), pd.NA, None, float("nan")],
        "age": [np.int64(20), Decimal("64.99"), np.float32("inf"), pd.NaT],
        "smoker": [np.bool_(True), np.bool_(False), None, 1],
    }
    assert through_json(columns) == [[1, 3, 3, 3], [1, 1, 2, 3], [1, 0, 2, 1]]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"rows": [{"age": math.nan, "x": [math.inf, (np.float64("nan"),)]}]},
         {"rows": [{"age": None, "x": ["inf", [None]]}]}),
        ({"day": dt.date(2013, 1, 2), "raw": b"AA\xff"}, {"day": "2013-01-02", "raw": "AA\ufffd"}),
        ({"city": "\udc80"}, {"city": "\udc80"}),  # half a surrogate pair stops no batch
    ],
)  # fmt: skip
def test_what_json_cannot_say_is_written_as_it_can(given: Any, sent: object) -> None:
    assert json.loads(topic_documents.to_json(given)) == sent


@pytest.mark.parametrize("form", ["frame", "arrow"])
def test_a_column_that_is_missing_or_there_twice_is_named(form: str) -> None:
    data: Any = FRAME.rename(columns={"smoker": "city"})
    arrays = [pa.array(FRAME[name]) for name in FRAME]
    send: Any = frames.frame_columns
    if form == "arrow":
        data, send = pa.table(arrays, names=list(data.columns)), frames.arrow_stream
    assert send(data, ["age"])
    with pytest.raises(InvalidInput, match=r"no column height \(found: id, city, age, city\)"):
        send(data, ["age", "height"])
    with pytest.raises(InvalidInput, match="column city appears twice; rename one of them"):
        send(data, ["city", "age"])


@pytest.mark.parametrize("prefix", ["stream-dp.", "a.b_", "x", "..."])
def test_the_client_looks_for_the_group_that_workers_join(prefix: str) -> None:
    assert worker_group(prefix) == WorkerSettings(topic_prefix=prefix).group_id


def test_without_pandas_a_table_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(StreamDPError, match="pip install pandas"):
        frames.answer_frame(answer("q", kind="predicate", value=0.25, count=5))


def answer(query_id: str, **fields: object) -> Answer:
    return noisy_answer(20, query_id=query_id, **fields)


def test_a_batch_is_a_frame_with_a_row_for_each_condition() -> None:
    batch = Batched(values=(0.25, 0.5), counts=(5, 10))
    said = answer("q", kind="prefix_batch", batch=batch, error_bar_simultaneous=0.1)
    conditions = ["age < 18", {"attribute": "age", "lt": 65}]
    assert answer_frame(said, conditions).to_dict("list") == {
        "condition": conditions,
        "value": [0.25, 0.5],
        "error_bar": [0.1, 0.1],
        "count": [5, 10],
        "count_bar": [2.0, 2.0],
    }


def test_answers_of_many_kinds_go_side_by_side_with_refusals_and_rejections() -> None:
    reason = Reason(code="cuts_bin", message="ask >= 30")
    refused = read_answer(
        {"dataset": "d", "query_id": "d", "analyst": "a", "status": "refused", "reason": reason}
    )
    count = {"value": 0.25, "count": 5}
    sums = {"total": 125.5, "total_bar": 9.0, "mean": 25.1, "rows": 7, "rows_bar": 2.0}
    replies: list[Any] = [
        answer("a", kind="predicate", **count, error_bar=0.1),
        answer("b", kind="median", attribute="age", found=FoundCell(label="18 to 64")),
        answer("c", kind="sum", **count, **sums),
        refused,
        Rejection(Rejected(topic="q", partition=0, offset=1, query_id="e", reason=reason)),
    ]
    frame: Any = answers_frame(replies).set_index("query_id")
    assert list(frame["status"]) == ["answered"] * 3 + ["refused", "rejected"]
    assert list(frame.loc["a", ["value", "count", "error_bar"]]) == [0.25, 5, 0.1]
    assert list(frame.loc["b", ["kind", "attribute", "found"]]) == ["median", "age", "18 to 64"]
    assert list(frame.loc["c", ["total", "total_bar", "mean"]]) == [125.5, 9.0, 25.1]
    assert list(frame.loc["c", ["count", "rows", "rows_bar"]]) == [5, 7, 2.0]
    assert list(frame.loc[["d", "e"], "reason"]) == ["ask >= 30"] * 2
    assert "side" not in frame.columns  # nobody has one


def test_answers_about_rows_that_count_have_columns_for_them_and_others_have_none() -> None:
    counted = {"counted": 40, "counted_bar": 6.5, "surplus_at_most": 0.75}
    count = {"kind": "predicate", "value": 0.25, "count": 10}
    one = answer("a", **count, error_bar=0.1, count_bar=4.0, **counted)
    columns = ["count", "count_bar", "counted", "counted_bar", "surplus_at_most"]
    frame: Any = answers_frame([one])
    assert frame[columns].to_numpy().tolist() == [[10, 4.0, 40, 6.5, 0.75]]
    assert set(columns) & set(answers_frame([answer("b", **count)])) == {"count"}


@pytest.mark.parametrize(
    ("name", "columns", "n_rows"),
    [
        ("table", "carrier value error_bar count count_bar", 3),
        ("sum_by_group", "cancelled total total_bar mean mean_bar value error_bar count count_bar", 2),
        ("share_by_group", "carrier share share_bar value error_bar count count_bar both both_bar", 2),
        ("quantile_by_group", "carrier count found error_bar lies_in low high", 2),
        ("difference_by_group", "carrier value error_bar count count_bar", 2),
        ("series", "since until first_phase last_phase value error_bar count count_bar", 2),
        ("series-table", "since until first_phase last_phase cancelled value error_bar count count_bar", 4),
    ],
)  # fmt: skip
def test_each_figure_of_a_table_is_a_column_next_to_that_of_its_bar(
    name: str, columns: str, n_rows: int
) -> None:
    golden = Path(__file__).parents[1] / f"golden/answers/{name}.json"
    frame: Any = answer_frame(read_answer(golden.read_bytes()))
    assert list(frame.columns) == columns.split()
    assert len(frame) == n_rows
    if name == "difference_by_group":
        assert math.isnan(frame["error_bar"][1])
    if name.startswith("series"):
        assert frame["since"].iloc[0].startswith("2026-11-0")
