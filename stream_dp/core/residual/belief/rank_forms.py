"""The linear forms of a quantile: by how much the rows up to each bin pass the rank."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np

from stream_dp.core.published.quantile import weights
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.belief.linear_forms import Floats, TableForm

_MOST_NUMBERS: Final = 2**20
"""The most numbers that the forms of a query have together: about a second's work."""

RankForms: TypeAlias = tuple[tuple[TableForm, Floats], ...]
"""A form for each of ``rank_places``, and at the end one for the number of rows.

Next to each is what the cells of ``query.table`` count for in it, shape (answers, cells of each). A cell that
no row can be in counts for nothing.
"""


def rank_places(query: LinearQuery, shape: tuple[int, ...]) -> range:
    """Returns the places of the bins at whose upper ends rows are counted, all but the last one if it can be.

    With very many bins only some do, and the bins between two of them count as one. This follows from sizes.
    """
    rank = query.rank
    assert rank is not None, "a quantile is asked"
    n_entries = math.prod(shape[a] + 1 for a in query.attributes)
    most = max(1, _MOST_NUMBERS // n_entries)
    step = -(-len(rank.bins) // most)
    return range(step - 1, len(rank.bins) - 1, step)


@lru_cache(maxsize=2)  # the steps of one answer ask for them again
def rank_forms(query: LinearQuery, shape: tuple[int, ...]) -> RankForms:
    """Returns the forms of a query for a quantile.

    Args:
        query: A query for a quantile.
        shape: Sizes of all attributes of the universe.
    """
    rank, predicate, groups = query.rank, query.predicate, query.group_by
    assert rank is not None, "a quantile is asked"
    n_cells, n_answers = shape[rank.attribute], math.prod(shape[a] for a in groups)
    every = np.zeros(n_cells)
    every[list(rank.bins)] = 1.0
    places = rank_places(query, shape)
    passed = [weights(n_cells, rank.bins, place, rank.share) for place in places]
    live = TableForm(predicate, query.table.group_by, shape).live
    known = 1.0 if live is None else live.reshape(-1, n_cells).astype(np.float64)
    forms = []
    for each in (*passed, every):
        along = (rank.attribute,), each
        form = TableForm(predicate, groups, shape, along, among=query.attributes)
        forms.append((form, np.broadcast_to(each, (n_answers, n_cells)) * known))
    return tuple(forms)
