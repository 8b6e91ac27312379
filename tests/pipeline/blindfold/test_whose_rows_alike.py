"""Two runs that differ in whose rows these are look the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from stream_dp.core.residual.looks.counted_rows import RowsLook
from stream_dp.core.residual.looks.table_looks import TablesLook
from stream_dp.pipeline.datasets.phases import Phases
from stream_dp.pipeline.watch.metrics import Metrics
from tests.pipeline.blindfold.compensating_noise import Compensating
from tests.pipeline.blindfold.lives import LIVES
from tests.pipeline.blindfold.two_rows import CANARY, THESE

N_OF_PERSONS: Final = 21_000
WHOSE: Final[dict[str, Callable[[int], object]]] = {
    "one person's": lambda _: 7,
    "nobody's": lambda _: None,
    "everybody's": lambda n: f"{CANARY}-{n}",
    "without ids that are keys": lambda n: [CANARY, n],
}


def lived_by_persons(whose: Callable[[int], object]) -> tuple[list[Callable[[Any], None]], ...]:
    """Two phases, whose rows are the same but for whose they are, and a worker that takes over between."""
    unit = {"key": "user_id", "rows_per_phase": 2, "phases": 3}

    def define(world: Any) -> None:
        world.define(
            "flights",
            privacy={"epsilon": 1.0, "delta": 1e-9, "unit": unit},
            mechanism={"base_share": 0.001},
        )

    def fill(phase: int) -> Callable[[Any], None]:
        def filled(world: Any) -> None:
            like = [("AA", 5, False), ("UA", 45, True), ("ZZ", -3, False)]
            rows = [like[n % 3] for n in range(N_OF_PERSONS)]
            columns: dict[str, list[Any]] = {
                name: list(column)
                for name, column in zip(THESE, zip(*rows, strict=True), strict=True)
            }
            keys = [whose(n) for n in range(N_OF_PERSONS)]
            world.batch("flights", f"all-{phase}", columns=columns | {"user_id": keys})
            world.batch("flights", f"keyless-{phase}", columns=columns)
            world.batch("flights", f"cells-{phase}", cells=[THESE | {"count": 3}])
            some = [THESE | {"user_id": keys[n]} for n in range(20)]
            world.batch("flights", f"waits-{phase}", rows=some)
            world.batch("flights", f"bad-{phase}", rows=[*some, {CANARY: 1}])

        return filled

    def ask(turn: str) -> Callable[[Any], None]:
        return lambda world: LIVES["calibrated, values are kept"].ask(world, "flights", turn)

    return [define, fill(0), ask("first")], [ask("restarted"), fill(1), ask("second")]


@pytest.fixture
def owned(lived: Callable[..., Any]) -> Callable[..., Any]:
    """``await owned(whose)``: what is seen of the rows of 7,000 persons, and of the same rows of others."""

    async def live(world: Any, _: Compensating, owners: Callable[[int], object]) -> None:
        for rounds in lived_by_persons(owners):
            await world.run(rounds=rounds)

    return lambda whose: lived(live, lambda n: n % 7_000, whose)


@pytest.mark.parametrize("name", WHOSE)
async def test_two_runs_that_differ_in_whose_rows_these_are_look_the_same(
    owned: Callable[..., Any], name: str
) -> None:
    runs = await owned(WHOSE[name])
    assert runs.complaints == []
    for world in runs.worlds:
        assert len(world.events("phase_opened")) == 2
        assert len(world.events("batch_refused")) == 6
    assert {RowsLook, TablesLook} <= runs.noise[1].told_apart
    assert runs.unlike == set()


def _an_event_says_how_many_rows_count(patch: pytest.MonkeyPatch) -> None:
    announce = Phases._announce

    def counting(self: Phases, n_rows: int, erased: int, late: int) -> None:
        counted = int(self._rows.blocks.data.marginal((), range(1))[0])
        announce(self, counted, erased, late)

    patch.setattr(Phases, "_announce", counting)


def _a_metric_counts_persons(patch: pytest.MonkeyPatch) -> None:
    exposition = Metrics.exposition

    def counting(self: Metrics) -> bytes:
        datasets = self.worker.datasets.values() if self.worker is not None else ()
        waiting = [rows for dataset in datasets for rows in dataset.rows.waiting._pending.values()]
        persons = {bytes(one) for rows in waiting if rows.whose for one in rows.whose.digests}
        return exposition(self) + b"persons %d\n" % len(persons)

    patch.setattr(Metrics, "exposition", counting)


@pytest.mark.parametrize(
    ("where", "mutate"),
    [("released", _an_event_says_how_many_rows_count), ("metrics", _a_metric_counts_persons)],
)
async def test_a_copy_that_shows_whose_rows_these_are_is_told_apart(
    owned: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    mutate: Callable[[pytest.MonkeyPatch], None],
) -> None:
    mutate(monkeypatch)
    runs = await owned(lambda n: n // 2)
    assert where in runs.unlike
