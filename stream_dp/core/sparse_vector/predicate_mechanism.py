"""The shared base of ``gated`` and the baselines: predicate queries alone, a line a block, one count a look.

They remember nothing except their releases. A ``Composition`` adds up what looks cost.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy, deepcopy
from fractions import Fraction
from typing import Self

from stream_dp.core.budget.accountant import Charge, Lines
from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.mechanism import (
    ROWS_ERASED,
    LinearMechanism,
    Look,
    Quote,
    Rehearsal,
    Release,
)
from stream_dp.core.outcome import Answered, Outcome, Path, RefusalCode, Refused
from stream_dp.core.queries.query import AnyQuery, LinearQuery, Predicate
from stream_dp.core.rows.universe import Universe
from stream_dp.core.sparse_vector.composition import Composition
from stream_dp.core.sparse_vector.gates import CountLook, CountRelease


class KnownCounts:
    """Published counts, each under its predicate and window; found from either side.

    The number of rows is public, so the count of a predicate says that of its complement. What was
    published for the predicate itself comes first.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[Predicate, range], int] = {}

    def add(self, release: CountRelease) -> None:
        """Remembers a count; a later one of the same predicate and window replaces it."""
        self._counts[release.predicate, release.window] = release.noisy_count

    def copied(self) -> KnownCounts:
        """The same counts, to be added to."""
        copy = KnownCounts()
        copy._counts = dict(self._counts)
        return copy

    def get(self, predicate: Predicate, window: range, n_rows: int) -> int | None:
        """The published count of a predicate in a window of ``n_rows`` rows; None where nothing says it."""
        known = self._counts.get((predicate, window))
        if known is not None or not self._counts:
            return known
        outside = self._counts.get((predicate.complement, window))
        return None if outside is None else n_rows - outside


class PredicateMechanism(LinearMechanism):
    """One data set under one of them: holds published values only.

    Args:
        accuracy: ``error`` and ``failure_probability`` of every verified answer.
        composition: The rule by which losses add up, and with it the promise to a row.
    """

    def __init__(self, universe: Universe, accuracy: Accuracy, composition: Composition) -> None:
        self._universe = universe
        self._accuracy = accuracy
        self._composition = composition
        self._lines = Lines()
        self._sizes: list[int] = []
        self._bare = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(phase={len(self._sizes)})"

    def spent(self, block: int) -> float:
        """The epsilon of a block's line so far, at the promised delta."""
        return self._composition.epsilon(self._lines.spent(block))

    # ------------------------------------------------------------ phases and charges

    def open_phase(self, n_rows: int) -> Sequence[Look]:
        self._sizes.append(n_rows)
        self._lines.open()
        return ()

    def charged(self, look_charges: tuple[Charge, ...]) -> None:
        self._lines.charge(look_charges)

    # ------------------------------------------------------------ queries

    def unsupported(self, kind: str) -> Refused:
        if kind != "table":
            return super().unsupported(kind)
        return Refused(
            RefusalCode.UNSUPPORTED_KIND,
            "this profile answers predicate queries only; ask each cell as one",
        )

    def _answer(self, query: LinearQuery) -> Outcome | Look:
        step = self._wrong(query) or self._step(query)
        if not isinstance(step, Outcome) and any(block < self._bare for block in step.reads):
            return ROWS_ERASED
        return step

    @abstractmethod
    def _step(self, query: LinearQuery) -> Outcome | Look:
        """Answers a predicate query about open phases, as ``answer`` does. It changes nothing."""

    def _wrong(self, query: LinearQuery) -> Refused | None:
        """Returns why the query is not one for this mechanism. None if it is."""
        if not self._sizes:
            return Refused(RefusalCode.NO_PHASE, "no phase is open yet; ask again under a new id")
        if query.window.stop > len(self._sizes):
            return Refused(
                RefusalCode.INVALID_QUERY, "the window reaches beyond the phases that are open"
            )
        return None

    def _rows(self, window: range) -> int:
        return sum(self._sizes[block] for block in window)

    def _charges(self, blocks: Iterable[int], loss: Fraction) -> tuple[Charge, ...]:
        return tuple(self._composition.charge(block, loss) for block in blocks)

    def _count(self, query: LinearQuery) -> CountLook:
        """A count as accurate as promised, on its own."""
        n_rows = self._rows(query.window)
        scale = self._composition.scale(self._accuracy, n_rows)
        charges = self._charges(query.window, self._composition.of_count(scale))
        return CountLook(query, n_rows, self._composition.kind, scale, charges)

    def _answered(self, count: float, n_rows: int, path: Path) -> Answered:
        promised = path is not Path.UNVERIFIED
        return Answered(
            estimate=count,
            n=n_rows,
            error_bar=self._accuracy.error if promised else None,
            error_bar_simultaneous=None,
            confidence=1.0 - self._accuracy.failure_probability,
            path=path,
        )

    def _conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome:
        assert isinstance(look, CountLook), "a look of another mechanism"
        assert isinstance(release, CountRelease), "a release of another mechanism"
        if release.measured:
            return self._answered(release.noisy_count, look.n_rows, Path.MEASURED)
        assert look.gate is not None, "what was not measured was tested"
        return self._answered(look.gate.predicted, look.n_rows, Path.GATED)

    # ------------------------------------------------------------ bundles

    def rehearse(self, *, sparing: bool) -> Rehearsal:
        return _Rehearsal(self._fork(), sparing=sparing)

    def _fork(self) -> Self:
        """A copy of what ``charged`` and ``_imagine`` change."""
        fork = copy(self)
        fork._lines = deepcopy(self._lines)  # noqa: SLF001 - of its own kind
        return fork

    def imagine(self, look: CountLook, *, stands: bool) -> None:
        """Charges a look, and takes it as if it had published what is predicted already.

        Args:
            look: The look that is not taken.
            stands: Whether its prediction passes the gate, if it has one.
        """
        self.charged(look.charges)
        self._imagine(look, stands=stands)

    def _imagine(self, look: CountLook, *, stands: bool) -> None:
        """Records of a look what decides the price of the next one."""

    # ------------------------------------------------------------ restarts

    def rows_gone(self, n_blocks: int) -> None:
        self._bare = n_blocks

    def release_from_bytes(self, data: bytes) -> Release:
        return CountRelease.from_bytes(self._universe, data)


class _Rehearsal(Rehearsal):
    """Queries asked one after another of a copy.

    Args:
        mechanism: The copy.
        sparing: Whether all predictions pass their gates, or none does.
    """

    def __init__(self, mechanism: PredicateMechanism, *, sparing: bool) -> None:
        self._mechanism = mechanism
        self._sparing = sparing

    def quote(self, query: AnyQuery) -> Quote:
        step = self._mechanism.answer(query)
        if not isinstance(step, Outcome):
            assert isinstance(step, CountLook), "these mechanisms have no other look"
            self._mechanism.imagine(step, stands=self._sparing)
        return Quote.of(step)
