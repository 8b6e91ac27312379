"""Data frames and Arrow tables to batches, and answers to data frames."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Final

from stream_dp.client.kafka.exchange import Rejection
from stream_dp.errors import InvalidInput, StreamDPError
from stream_dp.messages import (
    Answer,
    CellsAnswer,
    DifferenceByGroupAnswer,
    DifferenceTable,
    FoundAnswer,
    PrefixBatchAnswer,
    QuantileAnswer,
    QuantileByGroupAnswer,
    RefusedAnswer,
    SeriesAnswer,
    ShareByGroupAnswer,
    SideAnswer,
    SumByGroupAnswer,
    Table,
)

if TYPE_CHECKING:
    import pandas as pd

ARROW: Final = b"application/vnd.apache.arrow.stream"

_SCALARS: Final = (
    "query_id",
    "status",
    "kind",
    "attribute",
    "rank",
    "low",
    "high",
    "value",
    "count",
    "count_bar",
    "n",
    "counted",
    "counted_bar",
    "surplus_at_most",
    "error_bar",
    "error_bar_simultaneous",
    "error_bar_anytime",
    "confidence",
    "total",
    "total_bar",
    "mean",
    "mean_bar",
    "rows",
    "rows_bar",
    "side",
    "no_answer",
    "difficulty",
    "path",
    "note",
)


def frame_columns(frame: pd.DataFrame, names: Sequence[str]) -> dict[str, list[object]]:
    """The named columns of a data frame as JSON values; missing values become null.

    Raises:
        InvalidInput: A column is not there, or there twice.
    """
    _check_columns("frame", [str(name) for name in frame.columns], names)
    chosen = frame.loc[:, list(names)]
    objects = chosen.astype(object).where(chosen.notna(), None)
    return {name: objects[name].tolist() for name in names}


def arrow_stream(data: Any, names: Sequence[str]) -> bytes:
    """The named columns of an Arrow table or record batch as an IPC stream.

    Raises:
        InvalidInput: A column is not there, or there twice; or pyarrow is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise InvalidInput(
            "arrow", "this form needs pyarrow", "pip install 'stream-dp[arrow]'"
        ) from None
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    _check_columns("arrow", table.column_names, names)
    table = table.select(list(names))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def arrow_values(column: Any) -> list[object]:
    """The values of an Arrow array, or of a column of Parquet. No value raises.

    A time beyond the years that Python knows becomes a text that is not a date. An instant is in UTC,
    whatever its time zone is called. Bytes that are not UTF-8 have a mark in place of each. A list, or
    another nested value, is an empty list.
    """
    import pyarrow as pa

    kind, known = column.type, pa.types
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in arrow_values(chunk)]
    if isinstance(kind, pa.BaseExtensionType):
        return arrow_values(column.storage)
    if known.is_dictionary(kind):
        listed = arrow_values(column.dictionary)
        return [None if index is None else listed[index] for index in column.indices.to_pylist()]
    if known.is_nested(kind):
        return [[] if there else None for there in column.is_valid().to_pylist()]
    if known.is_temporal(kind) and not known.is_interval(kind):
        numbers = column.view("int32" if kind.bit_width == 32 else "int64").to_pylist()
        return [None if number is None else _time(kind, number) for number in numbers]
    try:
        values: list[object] = column.to_pylist()
    except UnicodeDecodeError:
        texts = column.cast("large_binary").to_pylist()
        values = [None if text is None else text.decode(errors="replace") for text in texts]
    return values


def arrow_counts(column: Any) -> list[tuple[object, int]]:
    """The different values of an Arrow array, each with the number of its rows."""
    import pyarrow as pa

    try:
        found = column.value_counts()
    except pa.ArrowNotImplementedError:  # of few types
        return [(value, 1) for value in arrow_values(column)]
    return list(zip(arrow_values(found.field(0)), found.field(1).to_pylist(), strict=True))


_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MS_PER_DAY: Final = 24 * 3600 * 1000
_BEYOND: Final = "outside the years 1 to 9999"


def _time(kind: Any, number: int) -> object:
    """What a number of a type of Arrow says: a date, a moment, a time of day or a duration."""
    import pyarrow as pa

    since = datetime(1970, 1, 1, tzinfo=UTC if getattr(kind, "tz", None) else None)
    try:
        if pa.types.is_date(kind):
            days = number if kind.bit_width == 32 else number // _MS_PER_DAY
            return since.date() + timedelta(days=days)
        passed = timedelta(microseconds=number * 10**6 // _PER_SECOND[kind.unit])
        if pa.types.is_duration(kind):
            return passed
        return since + passed if pa.types.is_timestamp(kind) else (since + passed).time()
    except OverflowError:
        return _BEYOND


def _check_columns(field_path: str, found: Sequence[str], names: Sequence[str]) -> None:
    if absent := [name for name in names if name not in found]:
        raise InvalidInput(
            field_path,
            f"there is no column {', '.join(absent)} (found: {', '.join(found)})",
            "rename the columns as the definition has them",
        )
    if twice := [name for name in names if found.count(name) > 1]:
        raise InvalidInput(field_path, f"column {twice[0]} appears twice", "rename one of them")


def answer_frame(answer: Answer, conditions: Sequence[object] = ()) -> pd.DataFrame:
    """Returns an answer of many values as a data frame.

    A table has one row for each cell, and a table of sums their totals and means too. A batch has one row for
    each condition. A series has these rows for each part, next to the time that the part covers. Of sums,
    ``count`` is the number of rows that have a value, and ``rows`` that of all rows, if the query counts
    them.

    Args:
        answer: The answer.
        conditions: The conditions of a batch, as a column next to the values.

    Raises:
        StreamDPError: The answer is a refusal or a single value, or pandas is not installed.
    """
    _need_pandas()
    return _frame(answer, conditions)


@singledispatch
def _frame(answer: Answer, conditions: Sequence[object]) -> pd.DataFrame:
    """The data frame of an answer; kinds with many values have a function each."""
    del conditions
    raise StreamDPError(
        answer.reason.message
        if isinstance(answer, RefusedAnswer)
        else "this answer holds no table; add GROUP BY"
    )


@_frame.register(PrefixBatchAnswer)
def _of_batch(answer: PrefixBatchAnswer, conditions: Sequence[object]) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame({"condition": conditions} if conditions else {})
    frame["value"] = answer.batch.values
    frame["count"] = answer.batch.counts
    if answer.error_bar_simultaneous is not None:
        frame["error_bar_simultaneous"] = answer.error_bar_simultaneous
    return frame


@_frame.register(CellsAnswer)
def _of_cells(answer: CellsAnswer, conditions: Sequence[object]) -> pd.DataFrame:
    del conditions
    return _table_frame(answer.table)


@_frame.register(SumByGroupAnswer)
def _of_sums(answer: SumByGroupAnswer, conditions: Sequence[object]) -> pd.DataFrame:
    del conditions
    frame, table = _table_frame(answer.table), answer.table
    columns = {
        "total": table.totals,
        "total_bar": table.total_bars,
        "mean": table.means,
        "mean_bar": table.mean_bars,
        "rows": table.rows,
        "rows_bar": table.rows_bars,
    }
    for name, values in columns.items():
        if values is not None:
            frame[name] = _floats(values)
    return frame


@_frame.register(ShareByGroupAnswer)
def _of_shares(answer: ShareByGroupAnswer, conditions: Sequence[object]) -> pd.DataFrame:
    del conditions
    frame, table = _table_frame(answer.table), answer.table
    columns = {
        "share": table.shares,
        "share_bar": table.share_bars,
        "both": table.both,
        "both_bar": table.both_bars,
    }
    for name, values in columns.items():
        frame[name] = _floats(values)
    return frame


@_frame.register(QuantileByGroupAnswer)
def _of_quantiles(answer: QuantileByGroupAnswer, conditions: Sequence[object]) -> pd.DataFrame:
    del conditions
    import pandas as pd

    table = answer.table
    cells = list(itertools.product(*table.labels))
    frame = pd.DataFrame(cells, columns=list(table.attributes), dtype="object")
    for name, bins in (("found", table.found), ("lies_in", table.lies_in)):
        frame[name] = pd.Series([one and one.label for one in bins], dtype="object")
    frame["low"] = _floats([None if one is None else one.low for one in table.lies_in])
    frame["high"] = _floats([None if one is None else one.high for one in table.lies_in])
    frame["error_bar"] = _floats(table.error_bars)
    frame["count"] = table.counts
    return frame


@_frame.register(SeriesAnswer)
def _of_series(answer: SeriesAnswer, conditions: Sequence[object]) -> pd.DataFrame:
    """A row for each part, or for each cell of each part. Parts that were refused have no row."""
    import pandas as pd

    frames = []
    for part in answer.parts:
        if isinstance(part.answer, RefusedAnswer):
            continue
        if hasattr(part.answer, "table"):
            frame = _frame(part.answer, conditions)
        else:
            said = {name: [getattr(part.answer, name, None)] for name in _PARTS}
            if isinstance(part.answer, QuantileAnswer):
                bins = part.answer.found, part.answer.lies_in
                said |= {
                    n: [b and b.label] for n, b in zip(("found", "lies_in"), bins, strict=True)
                }
            frame = pd.DataFrame({name: v for name, v in said.items() if v != [None]})
        for place, name in enumerate(("since", "until")):
            frame.insert(place, name, getattr(part, name))
        frame.insert(2, "first_phase", part.window[0])
        frame.insert(3, "last_phase", part.window[1])
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


_PARTS: Final = (
    *("value", "count", "error_bar", "count_bar", "total", "total_bar", "mean", "mean_bar"),
    *("share", "share_bar", "both", "both_bar", "rows", "rows_bar"),
)


@_frame.register(DifferenceByGroupAnswer)
def _of_differences(answer: DifferenceByGroupAnswer, conditions: Sequence[object]) -> pd.DataFrame:
    del conditions
    return _table_frame(answer.table)


def _table_frame(table: Table | DifferenceTable) -> pd.DataFrame:
    """The labels of each cell, and its share and count."""
    import pandas as pd

    cells = list(itertools.product(*table.labels))
    frame = pd.DataFrame(cells, columns=list(table.attributes), dtype="object")
    frame["value"] = table.values
    frame["count"] = table.counts
    frame["error_bar"] = _floats(table.error_bars)
    if table.count_bars is not None:
        frame["count_bar"] = _floats(table.count_bars)
    return frame


def _floats(values: Sequence[float | None]) -> Any:
    """A column of numbers, NaN where one is missing."""
    import pandas as pd

    return pd.array(values, dtype="Float64").to_numpy(dtype="float64", na_value=math.nan)


def answers_frame(replies: Sequence[Answer | Rejection]) -> pd.DataFrame:
    """Returns a data frame with one row for each reply of ``ask_many``, without empty columns.

    Raises:
        StreamDPError: pandas is not installed.

    Example:
        >>> from stream_dp.client import answers_frame
        >>> from stream_dp.messages import read_answer
        >>> answer = read_answer({
        ...     "version": 1, "dataset": "people", "query_id": "q-1", "analyst": "ann",
        ...     "status": "answered", "kind": "predicate", "n": 200, "value": 0.25, "count": 50,
        ...     "error_bar": 0.01, "error_bar_simultaneous": 0.02, "confidence": 0.99,
        ...     "difficulty": "easy", "path": "certified", "privacy_loss": {"share": 0.0, "blocks": 0},
        ...     "budget": {"spent": 0.0, "left": 1.0}, "phase": 1, "window": [1, 1],
        ... })
        >>> answers_frame([answer])["value"].tolist()
        [0.25]
    """
    _need_pandas()
    import pandas as pd

    frame = pd.DataFrame(
        [_row(reply) for reply in replies], columns=[*_SCALARS, "found", "lies_in", "reason"]
    )
    return frame.dropna(axis="columns", how="all")


def _row(reply: Answer | Rejection) -> dict[str, object]:
    if isinstance(reply, Rejection):
        return {
            "query_id": reply.rejected.query_id,
            "status": "rejected",
            "reason": reply.reason.message,
        }
    row = {name: getattr(reply, name, None) for name in _SCALARS}
    if isinstance(reply, RefusedAnswer):
        row["reason"] = reply.reason.message
    elif isinstance(reply, FoundAnswer | SideAnswer) and reply.found is not None:
        row["found"] = reply.found.label
        if isinstance(reply, QuantileAnswer) and reply.lies_in is not None:
            row["lies_in"] = reply.lies_in.label
    return row


def _need_pandas() -> None:
    try:
        import pandas as pd  # noqa: F401
    except ImportError:
        raise StreamDPError("data frames need pandas: pip install pandas") from None
