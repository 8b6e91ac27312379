"""stream_dp's calibrated profile, the engine alone, on the same stream. ``--option`` gives a base share."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

import numpy as np
from drivers.protocol import About, Attribute, Exhausted, Peer, Query, Stream, main

from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.outcome import Answered, Path, TableAnswered
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.rows import attributes
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.universe import Universe
from stream_dp.lab.trial import Driven


class Engine:
    """One data set, charged as the pipeline does; nothing is stored and nothing travels."""

    def __init__(self, stream: Stream, base_share: float | None) -> None:
        self._stream = stream
        self._universe = Universe(tuple(_attribute(a) for a in stream.attributes))
        promise = stream.promise
        mechanism = Calibrated(
            self._universe,
            Privacy(promise.epsilon, promise.delta),
            Accuracy(promise.error, promise.failure_probability),
            CalibratedSettings(base_share=base_share),
        )
        self._driven = Driven(mechanism, PooledNoise())
        self._data = Blocks(self._universe)

    def open_phase(self, phase: int) -> None:
        columns = self._stream.phases[phase]
        codes = (np.array(columns[a.name]).astype(a.dtype) for a in self._universe.attributes)
        rows = Rows(tuple(codes))
        self._data.append(Block.seal(self._universe, rows))
        self._driven.open_phase(rows.n_rows, self._data)

    def answer(self, query: Query) -> Sequence[float]:
        factors = {}
        for name, cells in query.where.items():
            attribute = self._universe.index(name)
            factors[attribute] = np.zeros(self._universe.shape[attribute], dtype=np.bool_)
            factors[attribute][list(cells)] = True
        by = tuple(self._universe.index(name) for name in query.by)
        asked = LinearQuery(Predicate.conjunction(factors), query.window, by)
        outcome = self._driven.ask(asked, self._data)
        if not isinstance(outcome, Answered | TableAnswered) or outcome.path is Path.UNVERIFIED:
            raise Exhausted
        answers = outcome.cells if isinstance(outcome, TableAnswered) else (outcome,)
        return [answer.count for answer in answers]

    def spent(self) -> float:
        return self._driven.spent_share()

    def paid(self) -> int:
        return self._driven.looks


def _attribute(attribute: Attribute) -> attributes.Attribute:
    if attribute.ordered:
        return Number(attribute.name, tuple(range(1, attribute.size)), integer=True)
    return Category(attribute.name, tuple(map(str, range(attribute.size))), other=False)


def make(stream: Stream, option: str) -> tuple[About, Peer]:
    base_share = float(option) if option else None
    engine = Engine(stream, base_share)
    peer = "stream_dp" if base_share is None else f"stream_dp, base share {base_share:g}"
    versions = {"stream-dp": version("stream-dp")}
    accounting = "zCDP, a lifetime bound for each phase"
    return About(peer, versions, accounting, cache=False, paid=engine.paid), engine


if __name__ == "__main__":
    main(make)
