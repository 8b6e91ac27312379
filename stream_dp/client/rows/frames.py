"""Data frames and Arrow tables to batches, and answers to data frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from stream_dp.client.kafka.exchange import Rejection
from stream_dp.display.answer_cells import AnswerCells
from stream_dp.display.figures import Value
from stream_dp.errors import InvalidInput, StreamDPError
from stream_dp.messages import Answer, NoisyAnswer, RefusedAnswer, SeriesAnswer

if TYPE_CHECKING:
    import pandas as pd

ARROW: Final = b"application/vnd.apache.arrow.stream"

_FACTS: Final = (
    *("query_id", "status", "kind", "attribute", "rank", "low", "high", "n"),
    *("counted", "counted_bar", "surplus_at_most", "recorded_since", "clamped_until", "confidence"),
    *("error_bar", "error_bar_simultaneous", "error_bar_anytime"),
    *("no_answer", "difficulty", "path", "note"),
)
"""The fields of answers that are columns next to their figures."""


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

    A table has one row for each cell, and a column for each figure of its cells next to that of its half
    width. A batch has one row for each condition. A series has these rows for each part, next to the time
    that the part covers. Of sums, ``count`` is the number of rows that have a value, and ``rows`` that of all
    rows, if the query counts them.

    Args:
        answer: The answer.
        conditions: The conditions of a batch, as a column next to the values.

    Raises:
        StreamDPError: The answer is a refusal or a single value, or pandas is not installed.
    """
    _need_pandas()
    import pandas as pd

    if not isinstance(answer, NoisyAnswer):
        why = answer.reason.message if isinstance(answer, RefusedAnswer) else "a quote has no table"
        raise StreamDPError(why)
    if not isinstance(answer, SeriesAnswer):
        cells = AnswerCells(answer, conditions)
        if not cells.names:
            raise StreamDPError("this answer holds no table; add GROUP BY")
        return _frame(cells)
    frames = []
    for part in answer.parts:
        if isinstance(part.answer, RefusedAnswer):
            continue
        frame = _frame(AnswerCells(part.answer))
        first, last = part.window
        times = {"since": part.since, "until": part.until, "first_phase": first, "last_phase": last}
        for place, (name, value) in enumerate(times.items()):
            frame.insert(place, name, value)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _frame(cells: AnswerCells) -> pd.DataFrame:
    """The labels of each cell, and its figures with their half widths."""
    import pandas as pd

    frame = pd.DataFrame(cells.labels, columns=list(cells.names), dtype="object")
    records = [_figures(cells, cell) for cell in range(len(cells.labels))]
    for name in records[0] if records else ():
        frame[name] = _column([record[name] for record in records])
    return frame


def _figures(cells: AnswerCells, cell: int) -> dict[str, Value]:
    """The figures of one cell by the names of their columns."""
    found: dict[str, Value] = {}
    for quantity in cells.quantities:
        figure = cells.figure(quantity.name, cell)
        found[quantity.name] = figure.value
        if quantity.name == "lies_in":
            bins = cells.field("lies_in", cell)
            found |= {end: bins and getattr(bins, end) for end in ("low", "high")}
        if quantity.unit not in ("label", "about", "at_most"):
            found[quantity.bar] = figure.bar
    return found


def _column(values: Sequence[Any]) -> Any:
    """A column of numbers, NaN where one is missing; or of texts."""
    import pandas as pd

    if any(isinstance(value, str) for value in values):
        return pd.Series(values, dtype="object")
    if all(isinstance(value, int) for value in values):
        return list(values)
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

    return pd.DataFrame(list(map(_row, replies))).dropna(axis="columns", how="all")


def _row(reply: Answer | Rejection) -> dict[str, object]:
    if isinstance(reply, Rejection):
        return {
            "query_id": reply.rejected.query_id,
            "status": "rejected",
            "reason": reply.reason.message,
        }
    row = {name: getattr(reply, name, None) for name in _FACTS}
    if isinstance(reply, RefusedAnswer):
        return {**row, "reason": reply.reason.message}
    cells = AnswerCells(reply) if isinstance(reply, NoisyAnswer) else None
    return row if cells is None or cells.names else {**row, **_figures(cells, 0)}


def _need_pandas() -> None:
    try:
        import pandas as pd  # noqa: F401
    except ImportError:
        raise StreamDPError("data frames need pandas: pip install pandas") from None
