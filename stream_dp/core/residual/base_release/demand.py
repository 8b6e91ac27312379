"""What was asked of a data set lately, as far as it decides what is worth measuring in advance; public.

Of each phase at most ``MOST`` queries are remembered: those whose digests are smallest. Which these are
depends on what was asked, and not on the order. Two phases keep their queries, and ``PHASES`` keep the
digests, which say how often a query came. All of it is durable under a fixed number of names, so it never
grows beyond that.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from stream_dp.core.encoding import Format, fields, identity_from, identity_head
from stream_dp.core.queries.query import LinearQuery, Mask
from stream_dp.core.residual.base_release.expected_queries import (
    group_of,
    is_table,
    price_on_demand,
    too_many_cells,
)
from stream_dp.core.residual.belief.levels import Axes
from stream_dp.core.residual.looks.table_looks import pack_attributes, read_attributes

MOST: Final = 300
"""The most queries of a phase that are remembered."""

PHASES: Final = 64
"""The number of phases, the last ones in which something was asked, of which it is known what came."""

_ASKED: Final = Format("asked query")
_CAME: Final = Format("phase of asked queries")

_HEAD: Final = identity_head("asked", n_more=3)
_MOST_CELLS: Final = 512
_DIGESTS: Final = 2**64
_ALL: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Asked:
    """One query that was asked.

    Attributes:
        digest: Tells it from others, whatever its phases are called. An integer below 2**64.
        phases: The number of phases of its window; None for all there are.
        attributes: What it depends on, ascending.
        cells: The cells that its condition on each of them selects, eight a byte; empty where it has no
            condition of its own, or one on very many cells.
        norms: |x_T|^2 for each T, as if its error were that of the data set. Empty if no table says
            anything of it.
        table: Whether it asks for a table; otherwise for one number.
        price: The rho of asking it about one phase, if the error of the data set needed a variance of 1.
        error: Its error, as a multiple of that of the data set.
    """

    digest: int
    phases: int | None
    attributes: tuple[int, ...]
    cells: tuple[bytes, ...] = field(repr=False)
    norms: tuple[float, ...] = field(repr=False)
    table: bool
    price: float
    error: float

    @classmethod
    def of(cls, query: LinearQuery, n_phases: int, error: float, axes: Axes) -> Asked:
        """A query as it is remembered.

        Args:
            query: The query.
            n_phases: The number of phases that are open.
            error: Its error, as a multiple of that of the data set.
            axes: The attributes of the universe.
        """
        digest, phases = _digest_of(query, n_phases, error)
        easier = error**-2
        if query.total is not None and query.total.kept is not None:
            price = price_on_demand(query, axes)
            cells = (b"",) * len(query.attributes)
            return cls(digest, phases, query.attributes, cells, (), False, price * easier, error)
        group = group_of(query, axes)
        conditions = dict(
            zip(query.predicate.attributes, query.predicate.factors or (), strict=False)
        )
        alone = query.kind == "predicate"
        cells = tuple(
            np.packbits(conditions[a]).tobytes()
            if alone and a in conditions and axes.shape[a] <= _MOST_CELLS
            else b""
            for a in group.attributes
        )
        norms = tuple(norm * easier for norm in group.norms)
        table, price = is_table(query), group.price * easier
        return cls(digest, phases, group.attributes, cells, norms, table, price, error)

    def condition(self, index: int, size: int) -> Mask | None:
        """The condition on the attribute at an index, which has ``size`` cells; None if it is not known."""
        bits = np.frombuffer(self.cells[index], dtype=np.uint8)
        return np.unpackbits(bits, count=size).astype(np.bool_) if len(bits) else None

    def to_bytes(self, phase: int) -> bytes:
        """What is stored of it, as a query of a phase."""
        phases = _ALL if self.phases is None else self.phases
        return _ASKED.pack(
            fields("<IQI?2d", phase, self.digest, phases, self.table, self.price, self.error),
            pack_attributes(self.attributes),
            *(fields(f"<H{len(one)}s", len(one), one) for one in self.cells),
            fields(f"<I{len(self.norms)}d", len(self.norms), *self.norms),
        )

    @classmethod
    def from_bytes(cls, data: bytes, axes: Axes) -> tuple[int, Asked]:
        """Inverse of ``to_bytes``: the phase and the query. Raises CorruptState."""
        reader = _ASKED.read(data)
        phase, digest, phases, table, price, error = reader.fields("<IQI?2d")
        attributes = read_attributes(reader, len(axes.shape))
        cells = []
        for attribute in attributes:
            (n_bytes,) = reader.fields("<H")
            size = axes.shape[attribute]
            reader.require(size == 1 or n_bytes in (0, -(-size // 8)))
            cells.append(reader.take(n_bytes))
        (n_norms,) = reader.fields("<I")
        known = all(axes.shape[a] > 1 for a in attributes)
        reader.require(not known or n_norms in (0, len(axes.layout(attributes).parts)))
        norms = reader.fields(f"<{n_norms}d")
        reader.end()
        found = None if phases == _ALL else phases
        return phase, cls(
            digest, found, attributes, tuple(cells), tuple(norms), table, price, error
        )


class Demand:
    """What was asked lately: a fold over queries whose result does not depend on their order within a phase.

    Args:
        axes: The attributes of the universe.

    Attributes:
        last: The phase in which something was asked last; 0 if nothing ever was.
        before: The phase in which something was asked last before that; 0 for none.
        version: A number that changes whenever anything is learned.
    """

    def __init__(self, axes: Axes) -> None:
        self.last = 0
        self.before = 0
        self.version = 0
        self._axes = axes
        # Of the last two phases, by digest: under which number it is stored, and the query.
        self._queries: dict[int, dict[int, tuple[int, Asked]]] = {}
        self._came: dict[int, list[int]] = {}  # digests, ascending, of each phase
        self._side = 0  # under which of two sets of names the last phase is stored
        self._unsaved: dict[bytes, bytes] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Demand:
        found = copy(self)
        for name in ("_queries", "_came"):
            setattr(found, name, {phase: copy(some) for phase, some in getattr(self, name).items()})
        found._unsaved = copy(self._unsaved)  # noqa: SLF001 - of its own kind
        return found

    def note(self, query: LinearQuery, n_phases: int, error: float) -> None:
        """Takes note of a query.

        Args:
            query: The query.
            n_phases: The number of phases that are open.
            error: Its error, as a multiple of that of the data set.
        """
        if not self._may_be_planned(query):
            return
        if n_phases != self.last:
            self._begin(n_phases)
        came, queries = self._came[n_phases], self._queries[n_phases]
        digest, _ = _digest_of(query, n_phases, error)
        number = len(came)
        if digest in queries or (number == MOST and digest > came[-1]):
            return  # most queries of a busy phase end here
        if number == MOST:
            number, _ = queries.pop(came.pop())
        asked = Asked.of(query, n_phases, error, self._axes)
        insort(came, digest)
        queries[digest] = number, asked
        self._unsaved[b"asked" + fields("<BH", self._side, number)] = asked.to_bytes(n_phases)
        self.version += 1

    def came_before(self, query: LinearQuery, n_phases: int, error: float) -> bool:
        """Whether a query came in an earlier phase, as far as that is known. Takes what ``note`` takes."""
        if not self._may_be_planned(query):
            return False
        digest, _ = _digest_of(query, n_phases, error)
        return self.rarity(digest, n_phases - 1, PHASES)[1] > 0

    def _may_be_planned(self, query: LinearQuery) -> bool:
        """Whether something that is measured in advance may answer a query."""
        shape = self._axes.shape
        if any(shape[a] == 1 for a in query.attributes):
            return False  # new rows do not have it
        return bool(query.attributes) and not (query.fresh or too_many_cells(query, shape))

    def _begin(self, phase: int) -> None:
        """Begins a phase: of the two before it the older one keeps its digests alone."""
        if self.last:
            data = came_to_bytes(self.last, self._came[self.last])
            self._unsaved[b"came" + fields("B", self.last % PHASES)] = data
        self.before, self.last, self._side = self.last, phase, 1 - self._side
        self._came[phase], self._queries[phase] = [], {}
        self._forget()

    def _forget(self) -> None:
        for phase in self._queries.keys() - {self.before, self.last}:
            del self._queries[phase]
        for phase in [p for p in self._came if p <= self.last - PHASES]:
            del self._came[phase]

    def plan_for(self, axes: Axes) -> None:
        """Forgets what was asked of attributes that new rows do not have."""
        self._axes = axes
        for queries in self._queries.values():
            for digest in [d for d, (_, asked) in queries.items() if not self._has_all(asked)]:
                del queries[digest]
        if self.last:
            self._came[self.last] = sorted(self._queries[self.last])
        self.version += 1

    def _has_all(self, asked: Asked) -> bool:
        return all(self._axes.shape[a] > 1 for a in asked.attributes)

    # ------------------------------------------------------------ what is known

    @property
    def busiest(self) -> int:
        """The last phase in which anything was asked, or the one before that if far more was asked there."""
        quiet = self.total(self.before) > 2.0 * self.total(self.last)
        return self.before if quiet else self.last

    def queries(self, phase: int) -> list[Asked]:
        """The queries that are remembered of one of the last two phases, by their digests."""
        some = self._queries.get(phase, {})
        return [some[digest][1] for digest in sorted(some)]

    def total(self, phase: int) -> float:
        """About how many different queries a phase had. It is exact below ``MOST``."""
        came = self._came.get(phase, [])
        if len(came) < MOST:
            return float(len(came))
        return (MOST - 1) * _DIGESTS / max(1, came[-1])

    def rarity(self, digest: int, upto: int, back: int) -> tuple[float, int]:
        """How seldom a query with this digest came in the last ``back`` phases up to ``upto``.

        Returns:
            The number of these phases for each one in which it came, as far as that is known; and in how
            many it came.
        """
        came = known = 0
        for phase in range(max(1, upto - min(back, PHASES) + 1), upto + 1):
            digests = self._came.get(phase, [])
            if len(digests) < MOST or digest <= digests[-1]:
                known += 1
                at = bisect_left(digests, digest)
                came += at < len(digests) and digests[at] == digest
        return known / max(1, came), came

    # ------------------------------------------------------------ restarts

    def remembered(self) -> dict[bytes, bytes]:
        """What was learned since the last call, by the names under which it is stored."""
        unsaved, self._unsaved = self._unsaved, {}
        return unsaved

    def recall(self, remembered: Mapping[bytes, bytes]) -> None:
        """Takes back what was stored; leaves out what ``is_name`` says is not of the demand."""
        sides: dict[int, int] = {}
        for name, data in remembered.items():
            if not is_name(name):
                continue
            if name.startswith(b"came"):
                phase, came = came_from_bytes(data)
                self._came[phase] = came
                continue
            phase, asked = Asked.from_bytes(data, self._axes)
            if not self._has_all(asked):
                continue  # new rows do not have what it is about
            number, sides[phase] = int.from_bytes(name[6:], "little"), name[5]
            self._queries.setdefault(phase, {})[asked.digest] = number, asked
        if not self._queries:
            return
        # What is stored of older phases is what later ones have not replaced.
        *older, self.last = sorted(self._queries)
        self.before, self._side = older[-1] if older else 0, sides[self.last]
        self._came[self.last] = sorted(self._queries[self.last])
        self._forget()
        self.version += 1


def _digest_of(query: LinearQuery, n_phases: int, error: float) -> tuple[int, int | None]:
    """The ``digest`` and the ``phases`` of a query; takes what ``Asked.of`` takes."""
    every = n_phases > 1 and query.window == range(n_phases)
    phases = None if every else len(query.window)
    name = identity_from(_HEAD, query.key, phases or 0, error)
    return int.from_bytes(name[:8], "little"), phases


def came_to_bytes(phase: int, digests: Sequence[int]) -> bytes:
    """What is stored of a phase that is over: the digests of what was asked."""
    return _CAME.pack(fields(f"<II{len(digests)}Q", phase, len(digests), *digests))


def came_from_bytes(data: bytes) -> tuple[int, list[int]]:
    """Inverse of ``came_to_bytes``. Raises CorruptState."""
    reader = _CAME.read(data)
    phase, n = reader.fields("<II")
    digests = list(reader.fields(f"<{n}Q"))
    reader.end()
    return phase, digests


def is_name(name: bytes) -> bool:
    """Whether something is stored under a name of the demand. Those of answers are longer."""
    return name.startswith((b"came", b"asked")) and len(name) in (5, 8)
