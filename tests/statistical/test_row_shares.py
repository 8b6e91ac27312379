"""Shares of all rows: each person stands for as many rows as they have (docs/proofs, Theorem 40)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.person_records import folded_rows
from stream_dp.core.rows.person_slots import Persons
from stream_dp.core.rows.universe import Universe

SHOP: Final = Universe(
    (
        Category("page", ("home", "cart"), other=False),
        Number("visits", (2.0,), measure=Measure(1.0, 0.0, 50.0), integer=True, fold="count"),
    )
)
SECRETS: Final = 2_000
DEVIATIONS: Final = 5.0
"""A false alarm has a probability below 1e-6."""


def carts(secret: int, persons: list[str], pages: list[str], *, weighted: bool) -> float:
    """The visits to carts as records of one secret have them, or the records of carts."""
    whose = Persons("customer", secret.to_bytes(32), "batch")
    columns: dict[str, list[Any]] = {
        "customer": persons,
        "page": pages,
        "visits": [None] * len(pages),
    }
    encoded = SHOP.encode_columns(columns, whose)
    assert encoded.whose is not None
    found = folded_rows(SHOP, Rows(encoded.codes, None, encoded.measures, encoded.whose))
    marks = encoded.whose.counted(1) & (found.codes[0] == 1)
    weights: Any = found.measures[1] if weighted else np.ones(len(pages))
    return float(weights[marks].sum())


@pytest.mark.parametrize("weighted", [True, False], ids=["sums of visits", "records"])
def test_sums_of_visits_are_those_of_all_rows_on_average(weighted: bool) -> None:
    """A copy that counts each record once is found: here who comes often goes to carts more often."""
    n_visits = [1 + 7 * (who % 4 == 0) for who in range(60)]
    persons = [f"C-{who}" for who, n in enumerate(n_visits) for _ in range(n)]
    pages = [
        "cart" if at < n // 2 + 1 - (n == 1) * (who % 2) else "home"
        for who, n in enumerate(n_visits)
        for at in range(n)
    ]
    truth = pages.count("cart") * (1.0 if weighted else 60 / len(pages))
    found = np.array([carts(one, persons, pages, weighted=weighted) for one in range(SECRETS)])
    deviation = found.std() / np.sqrt(SECRETS)
    assert (abs(found.mean() - truth) < DEVIATIONS * deviation) == weighted
    assert abs(1.1 * found.mean() - truth) > DEVIATIONS * deviation, "a tenth more is noticed"
