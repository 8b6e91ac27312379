"""OpenDP's Context API on Polars frames, under zCDP.

It is used in two ways. Without an option there is one context for each window, and the ledger of the driver
adds up what each query costs every phase. With ``--option phases`` there is one context for each phase, as
published: its own filter refuses, and a query about several phases adds up a noisy count from each.

``Context.query(rho=...)`` searches the scale in some 600 steps, which takes seconds. The scale is known
here, so the context gets a measurement that was made with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from importlib.metadata import version
from itertools import product
from operator import or_
from typing import Any

from drivers.protocol import About, Exhausted, Ledger, Peer, Query, Stream, main

dp: Any = import_module("opendp.prelude")
pl: Any = import_module("polars")


class _Contexts:
    """What both ways share."""

    def __init__(self, stream: Stream) -> None:
        dp.enable_features("contrib")
        self.stream = stream
        self.rho = _largest_rho(stream.promise.epsilon, stream.promise.delta)

    def context(self, window: range) -> tuple[Any, Any]:
        """A context with the whole budget, and its rows."""
        frame = pl.LazyFrame(
            {
                name: pl.Series(cells, dtype=pl.Int32)
                for name, cells in self.stream.rows(window).items()
            }
        )
        made = dp.Context.compositor(
            data=frame,
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(rho=self.rho),
        )
        return made, frame

    def measurement(self, context: Any, frame: Any, query: Query, sigma: float) -> Any:
        """The query with noise of a scale."""
        for name, cells in query.where.items():
            column = pl.col(name)
            frame = frame.filter(reduce(or_, (column == cell for cell in cells)))
        count = dp.len(scale=sigma, signed=True)
        if query.by:
            names = list(query.by)
            plan = self._keys(query).join(
                frame.group_by(names).agg(count), on=names, how="left", nulls_equal=True
            )
        else:
            plan = frame.select(count)
        accountant = context.accountant
        return dp.m.make_private_lazyframe(
            accountant.input_domain,
            accountant.input_metric,
            dp.zero_concentrated_divergence(),
            plan,
        )

    def release(self, context: Any, measurement: Any, query: Query) -> list[float]:
        """The numbers, row-major; the context charges itself."""
        released = context(measurement).collect()
        if query.by:
            released = released.sort(list(query.by))
        return [float(value) for value in released["len"]]

    def _keys(self, query: Query) -> Any:
        """The declared keys of GROUP BY."""
        cells = [range(self.stream.attribute(name).size) for name in query.by]
        columns = zip(query.by, zip(*product(*cells), strict=True), strict=True)
        return pl.LazyFrame({name: pl.Series(keys, dtype=pl.Int32) for name, keys in columns})


class ByWindow(_Contexts):
    """One context for each window, and the ledger of the driver."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._ledger = Ledger(self.rho)
        self._contexts: dict[range, tuple[Any, Any]] = {}

    def open_phase(self, phase: int) -> None:
        self._ledger.open_phase()
        self._contexts.clear()

    def answer(self, query: Query) -> Sequence[float]:
        window = query.window
        if window not in self._contexts:
            self._contexts[window] = self.context(window)
        context, frame = self._contexts[window]
        sigma = self.stream.promise.sigma(self.stream.n_rows(window))
        measurement = self.measurement(context, frame, query, sigma)
        self._ledger.charge(window, measurement.map(1))
        return self.release(context, measurement, query)

    def spent(self) -> float:
        return self._ledger.spent()


class ByPhase(_Contexts):
    """One context for each phase, which refuses by itself."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._contexts: list[tuple[Any, Any]] = []

    def open_phase(self, phase: int) -> None:
        self._contexts.append(self.context(range(phase, phase + 1)))

    def answer(self, query: Query) -> Sequence[float]:
        window = query.window
        sigma = self.stream.promise.sigma(self.stream.n_rows(window)) / math.sqrt(len(window))
        asked = []
        for phase in window:
            context, frame = self._contexts[phase]
            measurement = self.measurement(context, frame, query, sigma)
            # A query that passes the budget ends a context for good, so it is asked beforehand.
            if measurement.map(1) > context.remaining_privacy_loss():
                raise Exhausted
            asked.append((context, measurement))
        parts = [self.release(context, measurement, query) for context, measurement in asked]
        return [sum(numbers) for numbers in zip(*parts, strict=True)]

    def spent(self) -> float:
        return 1.0 - float(min(c.remaining_privacy_loss() for c, _ in self._contexts)) / self.rho


def _largest_rho(epsilon: float, delta: float) -> float:
    """The largest rho that implies (epsilon, delta), by OpenDP's own conversion."""

    def implies(rho: float) -> bool:
        space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
        noise = dp.m.make_gaussian(*space, scale=math.sqrt(0.5 / rho))
        approximate = dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(noise), delta=delta)
        return bool(approximate.map(1)[0] <= epsilon)

    return float(dp.binary_search(implies, bounds=(1e-6, 10.0)))


def make(stream: Stream, option: str) -> tuple[About, Peer]:
    versions = {"opendp": version("opendp"), "polars": version("polars")}
    if option == "phases":
        about = About("OpenDP, a context a phase", versions, "zCDP, filter of each context")
        return about, ByPhase(stream)
    about = About("OpenDP, a context a window", versions, "zCDP, ledger of the driver")
    return about, ByWindow(stream)


if __name__ == "__main__":
    main(make)
