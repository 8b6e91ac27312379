"""How wide the cells of a batch are, so that a batch surely fits into a record.

The number of rows in a batch is public, so public facts alone decide it: the sender's wish, and the bound
that the definition puts on the width of a row. A cell may be wider than any value that the definition can
distinguish. Such a cell is shortened in a way that does not change how the worker counts it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from stream_dp.core.rows.person_slots import LONGEST_KEY
from stream_dp.messages import TOPICS, AttributeSpec, Definition

_HEAD_BYTES: Final = 16_384  # names of columns, ids and the rest of a message
_WIDTHS: Final = {
    "number": 26,  # any float's shortest text, with a sign and quotes
    "boolean": 7,
    "found": 386,  # 64 bytes, of which each may take six, and quotes
    "date": 40,  # the longest text that is a date, with quotes
}


def rows_a_batch(definition: Definition, wanted: int) -> int:
    """Returns how many rows go into one record: the wanted number, or fewer so that they surely fit."""
    row = sum(_width(attribute) + 1 for attribute in definition.attributes)
    row += (LONGEST_KEY + 1) * len(definition.row_keys)
    return max(1, min(wanted, (TOPICS["batches"].max_value_bytes - _HEAD_BYTES) // row))


def fitted(attribute: AttributeSpec, column: list[Any]) -> list[Any]:
    """Shortens cells to the width that their attribute allows. The worker counts them as before."""
    width = _width(attribute)

    def fit(value: Any) -> Any:
        if isinstance(value, float):
            return None if value != value else value
        # No character takes more than six bytes.
        if value is None or (isinstance(value, str) and 6 * len(value) + 2 <= width):
            return value
        return value if _json_bytes(value) <= width else _shortened(attribute.type, value)

    if set(map(type, column)) <= {str, type(None)}:
        table = {value: fit(value) for value in set(column)}
        return [table[value] for value in column]
    return list(map(fit, column))


def _width(attribute: AttributeSpec) -> int:
    """Returns the most bytes that a cell can take in JSON, from the definition alone."""
    if attribute.type == "category":
        least = _WIDTHS["found" if attribute.find else "number"]
        return max(least, *map(_json_bytes, ("", *attribute.values)))
    return _WIDTHS[attribute.type]


def _json_bytes(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace"))


def _shortened(kind: str, value: str | int) -> float | str | None:
    """Returns a short cell that the worker counts as it would a long text or a long whole number."""
    if kind == "category":
        return ""  # a text that is too long to be listed; an empty one is never listed either
    if kind == "boolean":
        return None
    text = str(value).strip() if kind == "date" else ""
    if text and len(text) + 2 <= _WIDTHS["date"]:
        return text  # without the blanks around it
    try:
        return float(value)
    except OverflowError:
        return "inf" if int(value) > 0 else "-inf"
    except ValueError:
        return None
