"""The keys under which counts were measured, and how many tables there are: a fold over releases.

They say where else something is known about a query, and whether anything more is known than before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from stream_dp.core.queries.query import LinearQuery

Seen: TypeAlias = tuple[int, int]
"""What can have changed the evidence about a query, as two numbers that only grow."""


class MeasuredKeys:
    """The keys of one data set.

    Args:
        n_attributes: The number of attributes.
        total_known: Whether all rows count, so that their number is public.
    """

    def __init__(self, n_attributes: int, *, total_known: bool) -> None:
        self._total_known = total_known
        self._tables = [0] * n_attributes  # with each attribute
        self._n_tables = 0
        self._counts = Counter[bytes]()
        # The keys of counts by the attributes that they may depend on. Those that are known to be of products
        # of several factors are dropped: see ``complement_of``.
        self._counted: dict[tuple[int, ...], set[bytes]] = {}

    def add_attributes(self, n_attributes: int) -> None:
        """Goes on with more attributes."""
        self._tables += [0] * (n_attributes - len(self._tables))

    def add_table(self, attributes: tuple[int, ...]) -> None:
        """Notes that a table over these attributes was measured."""
        self._n_tables += 1
        for attribute in attributes:
            self._tables[attribute] += 1

    def add_count(self, key: bytes, depends: Iterable[tuple[int, ...]]) -> None:
        """Notes that a count was measured under a key, and on which sets of attributes it may depend."""
        self._counts[key] += 1
        for attributes in depends:
            self._counted.setdefault(attributes, set()).add(key)

    def complement_of(self, query: LinearQuery) -> bytes | None:
        """The key of the same query about the other rows, where counts may be known under it."""
        if not self._total_known:
            return None  # no count of the others says anything of these
        counted = self._counted.get(query.attributes)
        if counted is None:
            return None
        if len(query.predicate.factors or ()) > 1:
            # What such a product leaves out is not a product again, so only other counts can be about it.
            counted.discard(query.key)
            if not counted:
                return None
        return query.complement_key

    def seen(self, query: LinearQuery) -> Seen:
        """Returns how many tables, once for each attribute in common, and how many counts bear on a query."""
        tables = [self._tables[a] for a in query.attributes]
        # Where the number of rows that count is private, each table says something of it.
        n_tables = sum(tables) if self._total_known else self._n_tables
        complement = self.complement_of(query)
        n_outside = 0 if complement is None else self._counts[complement]
        return n_tables, self._counts[query.key] + n_outside
