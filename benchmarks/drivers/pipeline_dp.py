"""PipelineDP on its local backend; every query is a pipeline over the rows of its window.

Without an option every count has Laplace noise, and the epsilons of a phase add up, as in PipelineDP's
``NaiveBudgetAccountant``. With ``--option zcdp`` every count has Gaussian noise, and the ledger of the driver
adds up the zCDP of its scale. PipelineDP's ``PLDBudgetAccountant`` needs all queries of a pipeline
beforehand, which a stream of queries does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import product
from typing import Any

from drivers.protocol import About, Ledger, Peer, Query, Stream, main

pdp: Any = import_module("pipeline_dp")
computations: Any = import_module("pipeline_dp.dp_computations")

DELTA = 1e-13
"""Delta of one Gaussian count: it only tells PipelineDP how to come from epsilon to the scale."""

_STEPS = 60


class Pipelines:
    """One pipeline for each query that is not cached."""

    def __init__(self, stream: Stream, *, gaussian: bool) -> None:
        self._stream = stream
        self._gaussian = gaussian
        self._ledger = Ledger(stream.promise.rho if gaussian else stream.promise.epsilon)
        self._rows: dict[range, list[tuple[int, ...]]] = {}
        self._position = {a.name: i for i, a in enumerate(stream.attributes, start=1)}

    def open_phase(self, phase: int) -> None:
        self._ledger.open_phase()
        self._rows.clear()

    def answer(self, query: Query) -> Sequence[float]:
        promise, n_rows = self._stream.promise, self._stream.n_rows(query.window)
        if self._gaussian:
            sigma = promise.sigma(n_rows)
            self._ledger.charge(query.window, 0.5 / sigma**2)
            accountant = pdp.NaiveBudgetAccountant(_epsilon(sigma), DELTA)
        else:
            epsilon = 1.0 / promise.laplace_scale(n_rows)
            self._ledger.charge(query.window, epsilon)
            accountant = pdp.NaiveBudgetAccountant(epsilon, 0.0)
        return self._run(accountant, query)

    def spent(self) -> float:
        return self._ledger.spent()

    def _run(self, accountant: Any, query: Query) -> list[float]:
        """The numbers, row-major; the keys of GROUP BY are public partitions."""
        conditions = [(self._position[name], set(cells)) for name, cells in query.where.items()]
        by = [self._position[name] for name in query.by]

        def partition(row: tuple[int, ...]) -> tuple[int, ...] | None:
            """The key of a row that counts; None is no public key, so such rows are dropped."""
            if all(row[position] in cells for position, cells in conditions):
                return tuple(row[position] for position in by)
            return None

        keys = list(product(*(range(self._stream.attribute(name).size) for name in query.by)))
        parameters = pdp.AggregateParams(
            metrics=[pdp.Metrics.COUNT],
            noise_kind=pdp.NoiseKind.GAUSSIAN if self._gaussian else pdp.NoiseKind.LAPLACE,
            max_partitions_contributed=1,
            max_contributions_per_partition=1,
        )
        extractors = pdp.DataExtractors(
            privacy_id_extractor=lambda row: row[0],
            partition_extractor=partition,
            value_extractor=lambda _: 0,
        )
        engine = pdp.DPEngine(accountant, pdp.LocalBackend())
        rows = self._window(query.window)
        counts = engine.aggregate(rows, parameters, extractors, public_partitions=keys)
        accountant.compute_budgets()
        found = {key: metrics.count for key, metrics in counts}
        return [found[key] for key in keys]

    def _window(self, window: range) -> list[tuple[int, ...]]:
        """The rows of the window, each after an id of its own."""
        if window not in self._rows:
            columns = self._stream.rows(window).values()
            self._rows[window] = [
                (number, *row) for number, row in enumerate(zip(*columns, strict=True))
            ]
        return self._rows[window]


def _epsilon(sigma: float) -> float:
    """The least epsilon for which PipelineDP's noise is at most ``sigma``, by bisection."""
    low, high = 1e-9, 100.0
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        if computations.compute_sigma(middle, DELTA, 1.0) <= sigma:
            high = middle
        else:
            low = middle
    return float(high)


def make(stream: Stream, option: str) -> tuple[About, Peer]:
    versions = {"pipeline-dp": version("pipeline-dp")}
    if option == "zcdp":
        about = About("PipelineDP, Gaussian", versions, "zCDP, ledger of the driver")
        return about, Pipelines(stream, gaussian=True)
    about = About("PipelineDP, Laplace", versions, "epsilons add up, ledger of the driver")
    return about, Pipelines(stream, gaussian=False)


if __name__ == "__main__":
    main(make)
