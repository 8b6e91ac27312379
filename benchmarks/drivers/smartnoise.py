"""SmartNoise SQL on pandas frames.

Without an option every count has Laplace noise, and each phase has an odometer of SmartNoise's own. It gives
the better of basic and advanced composition. With ``--option zcdp`` every count has Gaussian noise, and the
ledger of the driver adds up its zCDP. SmartNoise itself refuses nothing: the driver asks the odometer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from importlib import import_module
from importlib.metadata import version
from itertools import product
from typing import Any

from drivers.protocol import About, Exhausted, Ledger, Peer, Query, Stream, main

snsql: Any = import_module("snsql")
pd: Any = import_module("pandas")
odometers: Any = import_module("snsql.sql.odometer")
privacies: Any = import_module("snsql.sql.privacy")

DELTA = 1e-13
"""Delta of one Gaussian count: it only tells SmartNoise how to come from epsilon to the scale."""


class Readers:
    """A private reader for each window, whose epsilon is the one that just keeps the error."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._readers: dict[range, Any] = {}

    def open_phase(self, phase: int) -> None:
        self._readers.clear()

    def reader(self, window: range, mechanism: Any, epsilon: float, delta: float) -> Any:
        if window not in self._readers:
            privacy = snsql.Privacy(epsilon=epsilon, delta=delta)
            privacy.mechanisms.map[privacies.Stat.count] = mechanism
            rows = self.stream.rows(window)
            frame = pd.DataFrame({_column(name): cells for name, cells in rows.items()})
            self._readers[window] = snsql.from_df(frame, privacy=privacy, metadata=self._metadata())
        return self._readers[window]

    def release(self, reader: Any, query: Query) -> list[float]:
        """The numbers, row-major. Keys without rows do not come back; as they are declared, they count 0."""
        conditions = " AND ".join(
            f"{_column(name)} IN ({', '.join(map(str, cells))})"
            for name, cells in query.where.items()
        )
        where = f" WHERE {conditions}" if conditions else ""
        by = ", ".join(map(_column, query.by))
        if not by:
            rows = reader.execute(f"SELECT COUNT(*) AS n FROM s.t{where}")
            return [float(rows[1][0])]
        rows = reader.execute(f"SELECT {by}, COUNT(*) AS n FROM s.t{where} GROUP BY {by}")
        cells = [range(self.stream.attribute(name).size) for name in query.by]
        counts = dict.fromkeys(product(*cells), 0.0)
        for *key, count in rows[1:]:
            counts[tuple(map(int, key))] = float(count)
        return list(counts.values())

    def _metadata(self) -> dict[str, Any]:
        """A row is the unit, and the keys are public, so that SmartNoise need not censor rare ones."""
        table: dict[str, Any] = {"row_privacy": True, "censor_dims": False, "clamp_counts": False}
        for attribute in self.stream.attributes:
            table[_column(attribute.name)] = {
                "type": "int",
                "lower": 0,
                "upper": attribute.size - 1,
            }
        return {"": {"s": {"t": table}}}


class Laplace(Readers):
    """Laplace noise, and an odometer for each phase."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._odometers: list[Any] = []

    def open_phase(self, phase: int) -> None:
        super().open_phase(phase)
        # All of delta is the tolerance of advanced composition: Laplace noise needs none.
        odometer = odometers.OdometerHeterogeneous(snsql.Privacy(epsilon=1.0, delta=0.0))
        odometer.tol = self.stream.promise.delta
        self._odometers.append(odometer)

    def answer(self, query: Query) -> Sequence[float]:
        window, promise = query.window, self.stream.promise
        epsilon = 1.0 / promise.laplace_scale(self.stream.n_rows(window))
        spent = []
        for phase in window:
            after = deepcopy(self._odometers[phase])
            after.steps.append((epsilon, 0.0))
            if after.spent[0] > promise.epsilon:
                raise Exhausted
            spent.append(after)
        self._odometers[window.start : window.stop] = spent
        reader = self.reader(window, privacies.Mechanism.laplace, epsilon, 0.0)
        return self.release(reader, query)

    def spent(self) -> float:
        return max(float(o.spent[0]) for o in self._odometers) / self.stream.promise.epsilon


class Gaussian(Readers):
    """Gaussian noise, and the ledger of the driver."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._ledger = Ledger(stream.promise.rho)

    def open_phase(self, phase: int) -> None:
        super().open_phase(phase)
        self._ledger.open_phase()

    def answer(self, query: Query) -> Sequence[float]:
        sigma = self.stream.promise.sigma(self.stream.n_rows(query.window))
        self._ledger.charge(query.window, 0.5 / sigma**2)
        epsilon = _epsilon(sigma)
        reader = self.reader(query.window, privacies.Mechanism.gaussian, epsilon, DELTA)
        return self.release(reader, query)

    def spent(self) -> float:
        return self._ledger.spent()


def _column(name: str) -> str:
    """A name that SmartNoise's grammar does not reserve, as it does ``hour``."""
    return f"c_{name}"


def _epsilon(sigma: float) -> float:
    """The epsilon from which SmartNoise comes to ``sigma``: by OpenDP's conversion, which it uses."""
    dp: Any = import_module("opendp.prelude")
    dp.enable_features("contrib")
    noise = dp.m.make_gaussian(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=sigma)
    approximate = dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(noise), delta=DELTA)
    epsilon = float(approximate.map(1)[0])
    assert math.isfinite(epsilon)
    return epsilon


def make(stream: Stream, option: str) -> tuple[About, Peer]:
    versions = {"smartnoise-sql": version("smartnoise-sql")}
    if option == "zcdp":
        about = About("SmartNoise SQL, Gaussian", versions, "zCDP, ledger of the driver")
        return about, Gaussian(stream)
    about = About("SmartNoise SQL, Laplace", versions, "its odometer, one a phase")
    return about, Laplace(stream)


if __name__ == "__main__":
    main(make)
