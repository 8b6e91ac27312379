"""No peer, but what a user builds in an hour: a fresh Gaussian count for each new query, and a zCDP ledger.

It shows what a library adds to the accounting that the drivers lend it, and is the toy that tests run. Its
noise is floating-point and seeded: fit for a benchmark, not for private rows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

from drivers.protocol import About, Ledger, Peer, Query, Stream, main


class Plain:
    """Counts in pure Python, with rounded normal noise."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._ledger = Ledger(stream.promise.rho)
        self._random = random.Random(1)

    def open_phase(self, phase: int) -> None:
        self._ledger.open_phase()

    def answer(self, query: Query) -> Sequence[float]:
        sigma = self._stream.promise.sigma(self._stream.n_rows(query.window))
        self._ledger.charge(query.window, 1.0 / (2.0 * sigma * sigma))
        return [count + round(self._random.gauss(0.0, sigma)) for count in self._counts(query)]

    def spent(self) -> float:
        return self._ledger.spent()

    def _counts(self, query: Query) -> list[int]:
        cells = [range(self._stream.attribute(name).size) for name in query.by]
        counts = dict.fromkeys(product(*cells), 0)
        conditions = {name: frozenset(chosen) for name, chosen in query.where.items()}
        for phase in query.window:
            columns = self._stream.phases[phase]
            for row in range(self._stream.sizes[phase]):
                if all(columns[name][row] in chosen for name, chosen in conditions.items()):
                    counts[tuple(columns[name][row] for name in query.by)] += 1
        return list(counts.values())


def make(stream: Stream, _: str) -> tuple[About, Peer]:
    about = About("plain Gaussian noise", {}, "zCDP, ledger of the driver")
    return about, Plain(stream)


if __name__ == "__main__":
    main(make)
