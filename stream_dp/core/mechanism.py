"""The one interface behind which every mechanism answers.

A mechanism is public knowledge: a fold over what was published, without a reference to the data. When it
needs the data it describes a *look* (a noisy measurement): what will be asked, how noisy, and what that
costs. The pipeline makes the charge durable, only then takes the look, and gives the release back to be
folded in:

    step = mechanism.answer(query)
    while not isinstance(step, Outcome):              # it is a Look; nearly always one is enough
        await commit(charge of step)                  # charge before looking
        release = step.take(noise, data)              # the only place that sees the data
        mechanism.absorb(release)                     # post-processing from here on
        step = mechanism.conclude(query, step, release)

Folding the same definition, phases, looks and releases in the same order gives the same state, so a restart
replays them. A look whose charge was committed but whose release was lost in a crash is told to ``lost``.

Callers need to know nothing else about a mechanism. Everything that only some of them have, such as secrets
or kinds of queries, has a default here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import Charge, summed
from stream_dp.core.budget.share_bounds import Payers, Room
from stream_dp.core.changed_rows import ChangedRows
from stream_dp.core.encoding import pack_window
from stream_dp.core.outcome import Outcome, Recorded, RefusalCode, Refused, widest_bar
from stream_dp.core.queries.query import AnyQuery, LinearQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.attribute_versions import Schema
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.synthetic.basis import Basis

if TYPE_CHECKING:
    from stream_dp.core.residual.base_release.expected_queries import PlannedTile
    from stream_dp.core.residual.keys.found_values import FoundValues
    from stream_dp.core.running.running_periods import RunningPeriods, RunningSettings


class Release(Protocol):
    """The output of a look. It holds integers only, and is published from the moment it is committed."""

    def to_bytes(self) -> bytes:
        """Bytes that ``Mechanism.release_from_bytes`` reads back, first byte a version."""
        ...


class LookSort(Enum):
    """Why a look keeps its promise where rows react to what was published (docs/proofs, Theorem 35)."""

    COUNTS = "whole numbers about rows that have come, with discrete Gaussian noise of its own"
    PURE = "its loss has no delta, and it may begin before the rows come"
    SEALED = (
        "its loss has a delta, and it begins when all blocks that it may read are sealed and pay"
    )


class Look(ABC):
    """One priced query to the data, decided from public facts only.

    Attributes:
        charges: The price of the look, at most one entry for each block.
    """

    __slots__ = ()

    charges: tuple[Charge, ...]

    @property
    def reads(self) -> Sequence[int]:
        """The blocks whose rows it may read. By default they are those that pay for it now."""
        return [charge.block for charge in self.charges]

    @property
    def sort(self) -> LookSort:
        """Its sort; one that publishes anything else than noisy counts says another."""
        return LookSort.COUNTS

    @property
    def reads_waiting(self) -> bool:
        """Whether it reads rows of an open period, whose block is not sealed."""
        return False

    def check(self, data: Blocks) -> None:
        """Checks that it may be taken now, before it is charged. What decides is public.

        Raises:
            ValueError: It reads a block that is not sealed, or whose rows are erased. Or it has a delta and
                reads an open period: rows could then wait for a look with bad luck.
        """
        has_delta = self.sort is LookSort.SEALED or any(charge.delta for charge in self.charges)
        if self.reads_waiting and has_delta:
            raise ValueError("a look with a delta reads rows whose block is not sealed")
        data.check(self.reads)

    @property
    @abstractmethod
    def description(self) -> dict[str, object]:
        """Public facts for the ledger: kind, attributes, blocks, scales. JSON-ready."""

    @property
    def seconds(self) -> float:
        """The unit of time, in seconds, that hides how long drawing takes where that depends on the data.

        Taking the look is made to last a multiple of it. It follows from public facts, and is so long that
        one is nearly always enough. 0 where the time depends on nothing private.
        """
        return 0.0

    def draw(self, noise: NoiseSource) -> dict[str, bytes]:
        """Secrets that this look begins with, by their names in the vault; committed with its charge."""
        del noise
        return {}

    def reserve(self, noise: NoiseSource) -> None:
        """Draws the noise it will need into the pool; called before the charge is committed."""
        del noise

    @abstractmethod
    def take(self, noise: NoiseSource, data: Blocks) -> Release:
        """Looks at the data, once charge and secrets are durable; cannot fail on drawn values."""


ROWS_ERASED: Final = Refused(
    RefusalCode.ROWS_ERASED,
    "window: the rows of some of its phases are erased, as the definition says, and what is published does "
    "not answer this; ask about the last phases, whose rows are kept, or what publications already answer",
)
"""The refusal of a query that would need a look at a block whose rows are erased."""

SHARE_SPENT: Final = Refused(
    RefusalCode.SHARE_SPENT,
    "what is left of a phase's budget is not for the one who pays for this query to spend, or not yet; what "
    "publications already answer can still be asked",
)
"""The refusal of a query whose look would pass what its payer may spend."""


@dataclass(frozen=True, slots=True)
class Quote:
    """The price of an answer now, and its error bar. A quote spends nothing.

    Attributes:
        outcome: The answer if it needs no look, or the refusal.
        charges: The price, one entry for each block.
        error_bar: The largest error bar that the answer would have, as a share of its rows. None if the
            mechanism does not say.
        expected: Whether price and error bar rest on today's estimates. Otherwise they are exact.
        most: The most units of any line that the query may take, whatever its looks find. None where the
            price is exact.
        note: What the reader should know about an expected price.
        growth: What the data set would measure more on its own account once this is paid, one entry for each
            block. The owner pays for it.
    """

    outcome: Outcome | None
    charges: tuple[Charge, ...]
    error_bar: float | None = None
    expected: bool = False
    most: int | None = None
    note: str | None = None
    growth: tuple[Charge, ...] = ()

    @classmethod
    def of(cls, step: Outcome | Look) -> Quote:
        """The price of a step that ``Mechanism.answer`` would give."""
        if isinstance(step, Outcome):
            return cls(step, (), widest_bar(step))
        return cls(None, step.charges)


@dataclass(frozen=True, slots=True)
class BundleQuote:
    """The price of several queries if they were asked one after another now. Nothing is spent.

    Attributes:
        quotes: The price of each query after those before it, in the order asked, as ``high`` counts it.
        low: What the queries cost together if every doubt resolves cheaply, one entry a block.
        high: The same if no doubt does. Where nothing is in doubt, ``low`` is equal to it.
    """

    quotes: tuple[Quote, ...]
    low: tuple[Charge, ...]
    high: tuple[Charge, ...]


class Rehearsal(ABC):
    """A copy of what is publicly known, of which queries are asked one after another.

    Nothing is spent, and the mechanism that it is a copy of does not change.
    """

    @abstractmethod
    def quote(self, query: AnyQuery) -> Quote:
        """The price of a query after the queries before it. The query counts as asked from then on."""


class Separately(Rehearsal):
    """Every query at the price that it has now; one that comes again is free.

    Args:
        quote: The price of a query now.
        sparing: Whether one look may serve several queries. A query then pays on each block only what is
            more than the dearest query before it paid there.
    """

    def __init__(self, quote: Callable[[AnyQuery], Quote], *, sparing: bool) -> None:
        self._quote = quote
        self._sparing = sparing
        self._asked: set[tuple[bytes, bytes]] = set()
        self._paid: dict[int, Charge] = {}

    def quote(self, query: AnyQuery) -> Quote:
        quote = self._quote(query)
        name = query.key, pack_window(query.window)
        if name in self._asked:
            return replace(quote, charges=())
        self._asked.add(name)
        return replace(quote, charges=self._beyond(quote.charges)) if self._sparing else quote

    def _beyond(self, charges: Iterable[Charge]) -> tuple[Charge, ...]:
        """Returns the charges beyond the largest before them on the same block."""
        beyond = []
        for charge in charges:
            paid = self._paid.get(charge.block, Charge(charge.block, 0))
            rho, delta = max(charge.rho, paid.rho), max(charge.delta, paid.delta)
            if (rho, delta) != (paid.rho, paid.delta):
                beyond.append(Charge(charge.block, rho - paid.rho, delta - paid.delta))
                self._paid[charge.block] = Charge(charge.block, rho, delta)
        return tuple(beyond)


class Spending:
    """The rules by which queries may take of what lines have left. By default all may take all of it."""

    def part_now(self, window: range) -> npt.NDArray[np.float64]:
        """The part of what opening leaves of each line that may be spent by now, shape (len(window),)."""
        return np.ones(len(window))

    def kept_for_later(self, block: int) -> int:
        """Returns the units that a line has left and that queries may not take before later phases open."""
        del block
        return 0

    def paid_by_owner(self, query: AnyQuery) -> bool:
        """Whether the owner of the data set pays for a query, no matter who asks it."""
        del query
        return False

    def pays(self, payers: Payers | None) -> None:
        """Says what may be spent for the next queries, so that looks are planned within it.

        Args:
            payers: Who may pay for them. None where nobody's part of a line is bounded.
        """
        del payers

    def takes_unasked(self, room: Room | None) -> None:
        """Says what the next queries may take of each line that say neither an error nor a price.

        Args:
            room: Units of each line of a window. None where nothing but the query itself bounds that.
        """
        del room

    def is_unasked(self, query: AnyQuery) -> bool:
        """Whether the data set decides what an answer takes, because the query does not say so."""
        del query
        return False


class Remembering(ABC):
    """What a mechanism stores besides its releases, and how it goes on after a restart."""

    def remembered(self) -> dict[bytes, bytes]:
        """Verified answers first given since the last call, to be stored for repeats."""
        return {}

    def recall(self, remembered: dict[bytes, bytes]) -> None:
        """Takes stored verified answers back after a restart."""
        assert not remembered, "this mechanism remembers nothing besides its releases"

    def lost(self, look: dict[str, object]) -> None:
        """A look (its ``description``) was charged, but a crash lost its release."""
        del look

    def rows_gone(self, n_blocks: int) -> None:
        """Takes note that the rows of the first ``n_blocks`` blocks are lost: it asks for no look at them."""
        del n_blocks

    @property
    def changed_rows(self) -> ChangedRows:
        """The blocks of which rows were erased or corrected since they were sealed."""
        raise NotImplementedError(f"the rows of {self!r} stay as they are")

    def end_runs(self, secrets: Sequence[str]) -> None:
        """Ends the runs whose secrets, by their names in the vault, are gone. Their charges stay."""
        del secrets

    @abstractmethod
    def release_from_bytes(self, data: bytes) -> Release:
        """Inverse of ``Release.to_bytes``. Raises CorruptState."""


class Mechanism(Remembering):
    """One data set's mechanism. Holds no reference to the data.

    Attributes:
        spending: The rules by which queries may take of what lines have left.
        found: The values that were found, of attributes whose values are found. None where all are listed.
        running: The periods that have running totals and are not sealed. None without running totals.
    """

    spending: Spending = Spending()
    found: FoundValues | None = None
    running: RunningPeriods | None = None
    takes_schemas: ClassVar[bool] = False
    """Whether it goes on where the attributes change."""

    def change_schema(
        self, schema: Schema, tiles: Sequence[PlannedTile], running: RunningSettings | None = None
    ) -> None:
        """Goes on with another version of the attributes.

        Args:
            schema: All versions. The newest one is of blocks that are not open yet.
            tiles: The queries that the definition declares, about the newest version.
            running: What running totals are about in the newest version; None without them.
        """
        raise NotImplementedError(f"{self!r} has one version of its attributes")

    def recorded(self, query: AnyQuery) -> Recorded:
        """What the rows of a query's window do not say, because some have older attributes. It is public."""
        return Recorded(query.window.start)

    # ------------------------------------------------------------ public facts

    @property
    @abstractmethod
    def kinds(self) -> frozenset[str]:
        """Kinds of queries that it answers; it refuses all others."""

    @property
    def in_order(self) -> frozenset[int]:
        """Attributes that blocks must keep in order of arrival, because they are answered row by row."""
        return frozenset()

    @property
    def secrets(self) -> frozenset[str]:
        """Names in the vault that later looks need; all others are dropped."""
        return frozenset()

    @property
    def rows_to_open(self) -> int:
        """Waiting rows below which no phase opens, whatever the definition asks for."""
        return 1

    @property
    def least_windows(self) -> Mapping[str, int]:
        """Rows of a window below which a kind's queries are always refused, by the name of its setting."""
        return {}

    @property
    def published_budget(self) -> dict[str, object] | None:
        """The constants behind the promise, JSON-ready, where the mechanism publishes them."""
        return None

    @property
    def repeats_alike(self) -> bool:
        """Whether a repeat is the same again, and leads to nothing, while nothing is charged or published."""
        return False

    def opening_units(self, n_rows: int) -> int | None:
        """Units of a new line that opening a phase of ``n_rows`` rows spends; None where it varies."""
        del n_rows
        return None

    def basis(self, window: range) -> Basis:
        """Returns the published values that synthetic rows of a window follow.

        Raises:
            ValueError: Nothing that was published says enough about the window.
        """
        raise ValueError(f"nothing that rows could follow: {self!r} about {window}")

    # ------------------------------------------------------------ phases and charges

    def opens(self, waiting: int, min_rows: int) -> bool:
        """Returns whether ``waiting`` rows open a phase now; ``min_rows`` is the data set's setting."""
        return waiting >= min_rows

    @abstractmethod
    def open_phase(self, n_rows: int) -> Sequence[Look]:
        """Adds a sealed block of ``n_rows`` rows; returns the looks that opening it asks for, in order."""

    @abstractmethod
    def charged(self, look_charges: tuple[Charge, ...]) -> None:
        """Records a charge as spent; called when its commit is durable, and on replay."""

    # ------------------------------------------------------------ queries

    @abstractmethod
    def answer(self, query: AnyQuery) -> Outcome | Look:
        """Answers from public knowledge, refuses, or says which look it needs."""

    def quote(self, query: AnyQuery) -> Quote:
        """Exact price of ``query`` now; changes nothing."""
        return Quote.of(self.answer(query))

    def quote_together(self, queries: Sequence[AnyQuery]) -> BundleQuote:
        """The price of all ``queries``, asked in this order now; changes nothing."""
        runs = []
        for sparing in (True, False):
            rehearsal = self.rehearse(sparing=sparing)
            runs.append(tuple(rehearsal.quote(query) for query in queries))
        # A look that a spared query did not ask for may be missed by a later one, which then pays more.
        low, high = sorted(runs, key=lambda quotes: dearest(_of_all(quotes)))
        return BundleQuote(high, _of_all(low), _of_all(high))

    def rehearse(self, *, sparing: bool) -> Rehearsal:
        """A copy of its public state, to try queries on.

        Args:
            sparing: Whether a charge that depends on what will be published, or on whether two queries can
                share a look, is left out.
        """
        return Separately(self.quote, sparing=sparing)

    def unsupported(self, kind: str) -> Refused:
        """The refusal of a query whose kind is not one of ``kinds``."""
        return Refused(
            RefusalCode.UNSUPPORTED_KIND,
            f"this data set does not answer {kind}; ask one of {', '.join(sorted(self.kinds))}",
        )

    @abstractmethod
    def absorb(self, release: Release) -> None:
        """Folds a release into what is known."""

    @abstractmethod
    def conclude(self, query: AnyQuery, look: Look, release: Release) -> Outcome | Look:
        """The answer to ``query`` after ``release`` was absorbed, or the next look that it needs."""

    def opened(self) -> Sequence[Look]:
        """The looks of an opening that follow from what its first looks published."""
        return ()

    def complete(self, block: int, n_rows: int) -> Sequence[Look]:
        """Adds its late rows to a block, which gets no more from then on.

        Args:
            block: The block. Those before it are complete.
            n_rows: The number of its late rows. There may be none.

        Returns:
            The looks that are taken because of them.
        """
        raise NotImplementedError(f"the rows of {self!r} do not come late")

    def was_asked(self, query: AnyQuery, charges: Sequence[Charge]) -> Sequence[Look]:
        """Takes note of a query that was answered, or refused, and of the charges that it has paid.

        Returns:
            The looks that the data set takes on its own account because of it. They serve the queries to
            come, and no query is charged for them.
        """
        del query, charges
        return ()

    def growth(self) -> Sequence[Look]:
        """The looks at sealed blocks that the data set takes on its own account as a phase has opened."""
        return ()


def dearest(charges: Iterable[Charge]) -> int:
    """The largest part of a line, rho or delta, that a block pays, in units. 0 if nothing is paid."""
    return max((max(charge.rho, charge.delta) for charge in charges), default=0)


def _of_all(quotes: Iterable[Quote]) -> tuple[Charge, ...]:
    """Returns the charges of each block for several quotes together."""
    return summed(charge for quote in quotes for charge in quote.charges)


_NOT_FRESH = Refused(
    RefusalCode.UNSUPPORTED_KIND,
    "this profile gives no fresh answers; leave fresh out, or ask a data set of the calibrated profile",
)


class LinearMechanism(Mechanism):
    """A mechanism that answers counts of rows, their tables or their sums, and refuses everything else.

    Attributes:
        answers_fresh: Whether it answers queries that no memory may enter.
    """

    answers_fresh: ClassVar[bool] = False

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({"predicate"})

    def answer(self, query: AnyQuery) -> Outcome | Look:
        known = self._supported(query)
        return known if isinstance(known, Refused) else self._answer(known)

    def quote(self, query: AnyQuery) -> Quote:
        known = self._supported(query)
        return Quote(known, ()) if isinstance(known, Refused) else self._quote(known)

    def _supported(self, query: AnyQuery) -> LinearQuery | Refused:
        """The same query if it is of one of the ``kinds``; a refusal for any other."""
        if not isinstance(query, LinearQuery) or query.kind not in self.kinds:
            return self.unsupported(query.kind)
        return _NOT_FRESH if query.fresh and not self.answers_fresh else query

    def conclude(self, query: AnyQuery, look: Look, release: Release) -> Outcome | Look:
        assert isinstance(query, LinearQuery), "no look was asked for by another query"
        return self._conclude(query, look, release)

    @abstractmethod
    def _answer(self, query: LinearQuery) -> Outcome | Look:
        """Answers a query of one of the ``kinds``, as ``answer`` does."""

    def _quote(self, query: LinearQuery) -> Quote:
        """Quotes the price of a query of one of the ``kinds``, as ``quote`` does."""
        return Quote.of(self._answer(query))

    @abstractmethod
    def _conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        """Answers a query of one of the ``kinds`` after its look, as ``conclude`` does."""
