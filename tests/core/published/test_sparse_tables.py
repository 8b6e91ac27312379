"""Tables of very many cells: how many surely have rows, and what values have in common."""

from __future__ import annotations

import pytest

from stream_dp.core.outcome import Answered, Path, TableAnswered
from stream_dp.core.published.sparse_table import common_prefix, surely_some

N = 1_000


def table(
    counts: list[float], *, wider: float | None, at_once: float | None = None
) -> TableAnswered:
    """A table whose cells each have a bar of 10 rows."""
    cells = tuple(Answered(count, N, 10 / N, at_once, 0.99, Path.MEASURED) for count in counts)
    return TableAnswered(cells, (len(counts),), Path.MEASURED, wider=wider)


def test_a_cell_surely_has_rows_if_the_bar_that_holds_for_all_is_above_0() -> None:
    assert surely_some(table([9.0, 11.0, 21.0, -50.0], wider=2.0)) == 1
    assert surely_some(table([9.0, 11.0, 21.0], wider=None, at_once=0.015)) == 1
    assert surely_some(table([9.0, 11.0, 21.0], wider=None)) is None, "each bar holds alone"


@pytest.mark.parametrize(
    ("labels", "counts", "expected"),
    [
        (["A00", "A01", "B00", "B01"], [1.0, 2.0, 9.0, 1.0], "B"),
        (["ICD-A0", "ICD-A1", "ICD-B0", "ICD-B1"], [9.0, 2.0, 1.0, 1.0], "ICD-A"),
        (["red", "green", "blue", "black"], [9.0, 1.0, 1.0, 1.0], None),
        (["%a", "%b", "c1", "c2"], [9.0, 9.0, 1.0, 1.0], "c"),
        (["same"], [1.0], None),
        ([], [], None),
    ],
)
def test_values_of_most_rows_have_their_first_letters_in_common(
    labels: list[str], counts: list[float], expected: str | None
) -> None:
    assert common_prefix(labels, counts) == expected
