"""One data set's ledger from its first entry to its last."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from stream_dp.audit.entry_order import in_order
from stream_dp.audit.kind_charges import is_approximate
from stream_dp.audit.line_limits import Due, Line, LossEvent
from stream_dp.audit.look_charges import Looks
from stream_dp.audit.look_facts import erased
from stream_dp.audit.numbers import UNITS, Wrong
from stream_dp.audit.oracle import Oracle
from stream_dp.audit.paper_charges import Papers
from stream_dp.audit.share_check import ShareCheck
from stream_dp.audit.sweep_check import SweepCheck
from stream_dp.errors import InvalidDefinition
from stream_dp.messages import ChangeSchema, Definition

_ROUND: Final = 1e-9
"""The most by which the oracle's floats may exceed what is promised."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to say about one entry, or about all.

    Attributes:
        entry: Its number, from 0.
    """

    entry: int | None
    text: str

    def __str__(self) -> str:
        return self.text if self.entry is None else f"entry {self.entry}: {self.text}"


@dataclass
class BlockReport:
    """One phase's block and its line, in units of 2^-50 of what it may hold.

    Attributes:
        rows: The rows of the phase.
        spent: The charges to the first sum, rho or epsilon, and to delta.
        recomputed: The cost of its looks.
        epsilon: The epsilon of these looks at the promised delta by dp-accounting. None if it cannot tell.
    """

    rows: int
    spent: tuple[int, int] = (0, 0)
    recomputed: tuple[int, int] = (0, 0)
    epsilon: float | None = None
    losses: Counter[LossEvent] = field(default_factory=Counter, repr=False)
    delta: Fraction = field(default=Fraction(0), repr=False)

    @property
    def difference(self) -> tuple[int, int]:
        """The charges minus the cost. It is below 0 if too little was charged."""
        return self.spent[0] - self.recomputed[0], self.spent[1] - self.recomputed[1]


@dataclass
class Report:
    """The content of a ledger and its faults.

    Attributes:
        entries: The number of entries.
        charges: The number of entries that charge.
        head: The head of the chain, to be compared with a head that was kept.
        promised: (epsilon, delta). None if no definition can be read.
        full: The epsilon of a full line by dp-accounting. None if it does not know the looks.
        faults: The entries that must not be there.
        notes: The remarks that are not faults.
    """

    dataset: str
    entries: int = 0
    charges: int = 0
    head: str = ""
    promised: tuple[float, float] | None = None
    full: float | None = None
    retired: bool = False
    blocks: list[BlockReport] = field(default_factory=list)
    faults: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)


def verify(
    dataset: str,
    records: Sequence[bytes],
    *,
    catalog: Definition | None = None,
    progress: Callable[[], object] = lambda: None,
) -> Report:
    """Checks everything that follows from a ledger.

    Args:
        dataset: The name of the data set.
        records: The records of the data set in the order of the topic. The same bytes may come twice.
        catalog: The definition on the topic ``catalog``. None if there is none.
        progress: A function that is called after each entry.
    """
    return _Verification(dataset, records, catalog, progress).report


class _Verification:
    def __init__(
        self,
        dataset: str,
        records: Sequence[bytes],
        catalog: Definition | None,
        progress: Callable[[], object],
    ) -> None:
        self.report = Report(dataset)
        entries, head = in_order(dataset, records, self._fault)
        self.report.entries, self.report.head = len(entries), head.hex()
        self._prices: Looks | Papers | None = None
        self._definition: Definition | None = None
        self._catalog, self._said_at = catalog, 0
        self._shares, self._sweeps = ShareCheck(), SweepCheck()
        self._until: object = None  # when the newest phase ends
        self._complete = 0  # first phases that get no more rows
        self._written_off = 0  # first phases of which nothing is left
        self._writing_off = False
        if not entries:
            self._fault(None, "the topic has no entry of its ledger")
            return
        self._define(entries[0], catalog)
        for entry in entries[1:]:
            self._take(entry)
            progress()
        self._conclude()

    def _fault(self, entry: int | None, text: str) -> None:
        self.report.faults.append(Finding(entry, text))

    def _note(self, entry: int | None, text: str) -> None:
        self.report.notes.append(Finding(entry, text))

    # ------------------------------------------------------------ entries

    def _define(self, entry: Mapping[str, Any], catalog: Definition | None) -> None:
        """The first entry holds the definition, as the catalog does, and how much a line may hold."""
        seq, self._line = entry["seq"], None
        if entry["kind"] != "dataset":
            self._fault(seq, "it is the first one that there is, and not the data set's definition")
            return
        stored = entry.get("definition")
        try:
            definition = Definition.read(stored if isinstance(stored, dict) else {})
            if definition.dataset != self.report.dataset:
                raise Wrong(f"its definition is that of {definition.dataset}")
            approximate = is_approximate(definition)
            self._line = Line.of(definition, entry.get("line"), approximate=approximate)
        except (ArithmeticError, InvalidDefinition, Wrong) as error:
            self._fault(seq, f"no price can be told: {error}")
            return
        self._definition, privacy = definition, definition.privacy
        self._said_at = seq
        self._shares.define(definition.analysts, definition.owner)
        self._sweeps.define(entry)
        self.report.promised = privacy.epsilon, privacy.delta
        if (settings := definition.mechanism.papers) is not None:
            self._prices = Papers(definition, settings)
            return
        self._prices = Looks(definition, self._line)
        self._oracle = Oracle(self._line, privacy.epsilon, privacy.delta)

    def _take(self, entry: Mapping[str, Any]) -> None:
        seq, kind = entry["seq"], entry["kind"]
        if kind != "written_off":
            self._check_written_off(seq)
        if self.report.retired:
            self._fault(seq, "it comes after the data set was retired")
        if kind == "phase":
            self._open(seq, entry)
        elif kind == "charge":
            self.report.charges += 1
            self._charge(seq, entry)
        elif kind == "analysts":
            for fault in self._shares.change(entry):
                self._fault(seq, fault)
        elif kind == "schema":
            self._change(seq, entry)
        elif kind == "running":
            self._begin_running(seq, entry)
        elif kind == "late":
            self._add_late(seq, entry)
        elif kind == "sweep":
            wrong = self._sweeps.fault(entry, self._definition, len(self.report.blocks))
            if wrong is not None:
                self._fault(seq, wrong)
        elif kind == "written_off":
            self._write_off(seq, entry)
        elif kind == "retired":
            self.report.retired = True
        elif kind == "dataset":
            self._fault(seq, "it defines the data set again")

    def _change(self, seq: int, entry: Mapping[str, Any]) -> None:
        """Other attributes are in force from a phase on that is not open yet."""
        definition, phase, indices = self._definition, entry.get("phase"), entry.get("indices")
        if definition is None or not isinstance(self._prices, Looks):
            self._fault(seq, "it changes the attributes of a data set that cannot change them")
            return
        try:
            change = ChangeSchema.read(
                {
                    "version": 1,
                    "dataset": self.report.dataset,
                    "change": "schema",
                    "schema_version": entry.get("schema_version"),
                    "attributes": entry.get("attributes"),
                }
            )
            if change.schema_version != definition.schema_version + 1:
                raise Wrong(
                    f"it is version {change.schema_version} of the attributes, and not the next"
                )
            if type(phase) is not int or not isinstance(indices, list):
                raise Wrong("it does not say from which phase on, or how looks name the attributes")
            self._definition = definition.changed(change, phase)
            self._prices.change(change.attributes, indices, phase - 1)
            self._said_at = seq
        except (InvalidDefinition, Wrong) as error:
            self._fault(seq, str(error))

    def _add_late(self, seq: int, entry: Mapping[str, Any]) -> None:
        """Late rows come to the first phase that is not complete, which gets no more then."""
        rows, phase, definition = entry.get("rows"), entry.get("phase"), self._definition
        if definition is None or definition.phase.late is None:
            self._fault(seq, "it adds rows to a phase of a data set that takes no late rows")
        elif type(rows) is not int or rows < 0 or phase != self._complete + 1:
            self._fault(seq, f"it does not add rows to phase {self._complete + 1}")
        elif phase > len(self.report.blocks):
            self._fault(seq, f"it adds rows to phase {phase}, which is not open yet")
        else:
            self._complete = phase
            self.report.blocks[phase - 1].rows += rows

    def _begin_running(self, seq: int, entry: Mapping[str, Any]) -> None:
        if not isinstance(self._prices, Looks):
            self._fault(seq, "it begins running totals of a data set that has none")
            return
        try:
            self._prices.begin_running(entry)
        except Wrong as error:
            self._fault(seq, str(error))

    def _open(self, seq: int, entry: Mapping[str, Any]) -> None:
        rows, number = entry.get("rows"), entry.get("phase")
        blocks = self.report.blocks
        self._check_running(seq)
        self._until = entry.get("until")
        if type(rows) is not int or rows < 0 or type(number) is not int:
            self._fault(seq, "it opens a phase and does not say which, or with how many rows")
            return
        if number != len(blocks) + 1:
            self._fault(seq, f"it opens phase {number} where phase {len(blocks) + 1} is next")
        blocks.append(BlockReport(rows))
        said, due = entry.get("erased", 0), self._erased
        if type(said) is not int or said != due:
            self._fault(
                seq,
                f"by the definition the rows of the first {due:,} phases are erased with it, and it says "
                "something else",
            )

    def _check_running(self, seq: int | None) -> None:
        """Looks, once the newest phase is open, whether it has paid for the running totals of its periods."""
        if isinstance(self._until, str) and isinstance(self._prices, Looks):
            with contextlib.suppress(ValueError):
                if self._prices.owes_running(self._until):
                    self._fault(seq, "the phase before it has not paid for its running totals")

    @property
    def _erased(self) -> int:
        """The number of first phases whose rows are erased by now; 0 if no definition can be read."""
        return 0 if self._definition is None else erased(self._definition, len(self.report.blocks))

    def _write_off(self, seq: int, entry: Mapping[str, Any]) -> None:
        """Every phase up to now counts as spent in full: what was charged to it may not all be known."""
        blocks, phases = self.report.blocks, entry.get("phases")
        if phases != len(blocks) or type(phases) is not int:
            self._fault(seq, f"it writes off {phases} phases where {len(blocks)} are open")
            return
        charged = self._charged(seq, entry)
        for index, units in charged.items():
            block = blocks[index]
            rest = UNITS - block.spent[0], UNITS - block.spent[1]
            if units != rest:
                self._fault(
                    seq,
                    f"phase {index + 1} has {rest[0]:,} units and {rest[1]:,} of delta left, and "
                    f"{units[0]:,} and {units[1]:,} are written off",
                )
            block.spent = block.spent[0] + units[0], block.spent[1] + units[1]
            block.recomputed = block.recomputed[0] + units[0], block.recomputed[1] + units[1]
        self._writing_off = True

    def _check_written_off(self, seq: int | None) -> None:
        """Looks, once no further entry of the kind follows, whether nothing of a phase is left."""
        if not self._writing_off:
            return
        self._writing_off, self._written_off = False, len(self.report.blocks)
        for number, block in enumerate(self.report.blocks, 1):
            if min(block.spent) < UNITS:
                self._fault(
                    seq, f"phase {number} was to be written off before it, and has some left"
                )

    def _charge(self, seq: int, entry: Mapping[str, Any]) -> None:
        charged = self._charged(seq, entry)
        for fault in self._shares.charge(entry, charged):
            self._fault(seq, fault)
        owed = self._outstanding(seq, entry)
        for index in sorted(charged.keys() | (owed or {}).keys()):
            block = self.report.blocks[index]
            units = charged.get(index, (0, 0))
            due = None if owed is None else owed.get(index, Due())
            # What cannot be told is taken as it was charged: its fault is reported already.
            wanted = (
                units if due is None else (due.rho.nearest(units[0]), due.delta.nearest(units[1]))
            )
            self._compare(seq, index, units, wanted)
            block.spent = block.spent[0] + units[0], block.spent[1] + units[1]
            block.recomputed = block.recomputed[0] + wanted[0], block.recomputed[1] + wanted[1]
            if due is not None:
                block.losses.update(due.loss.events)
                if due.loss.delta:
                    block.delta += due.loss.delta
            if (
                max(block.spent)
                > UNITS
                >= max(block.spent[0] - units[0], block.spent[1] - units[1])
            ):
                self._fault(seq, f"with it phase {index + 1} has spent more than all of its budget")

    def _charged(self, seq: int, entry: Mapping[str, Any]) -> dict[int, tuple[int, int]]:
        """Units by block, those left out that no line can be told for."""
        charged: dict[int, tuple[int, int]] = {}
        listed = entry.get("charges")
        for charge in listed if isinstance(listed, list) else [None]:
            if (
                not isinstance(charge, list)
                or len(charge) != 3
                or any(type(number) is not int or number < 0 for number in charge)
            ):
                self._fault(seq, "its charges cannot be read")
                continue
            index, rho, delta = charge
            if index >= len(self.report.blocks):
                self._fault(seq, f"it charges phase {index + 1}, which is not open yet")
                continue
            if index < self._erased and entry["kind"] != "written_off":
                self._fault(seq, f"it charges phase {index + 1}, whose rows are erased")
            if index < self._written_off:
                self._fault(seq, f"it charges phase {index + 1}, whose rows are written off")
            before = charged.get(index, (0, 0))
            charged[index] = before[0] + rho, before[1] + delta
        return charged

    def _outstanding(self, seq: int, entry: Mapping[str, Any]) -> dict[int, Due] | None:
        """Returns what each block must be charged for the entry's looks. None if it cannot be told."""
        if self._prices is None:
            return None
        looks = entry.get("looks")
        if not isinstance(looks, list) or not all(isinstance(look, dict) for look in looks):
            self._fault(seq, "its looks cannot be read")
            return None
        owed: dict[int, Due] = {}
        rows = [block.rows for block in self.report.blocks]
        try:
            for look in looks:
                for index, due in self._prices.owed(look, rows):
                    owed[index] = owed[index] + due if index in owed else due
        except Wrong as error:
            self._fault(seq, str(error))
            return None
        return owed

    def _compare(
        self, seq: int, index: int, units: tuple[int, int], wanted: tuple[int, int]
    ) -> None:
        for name, charged, due in zip(self._sums, units, wanted, strict=True):
            if charged < due:
                self._fault(
                    seq,
                    f"undercharged: phase {index + 1} was charged {charged:,} units of {name}, and its looks "
                    f"cost {due:,}",
                )
            elif charged > due:
                self._note(
                    seq,
                    f"overcharged: phase {index + 1} was charged {charged:,} units of {name}, and its looks "
                    f"cost {due:,}",
                )

    @property
    def _sums(self) -> tuple[str, str]:
        return ("epsilon" if self._line is not None and self._line.linear else "rho"), "delta"

    # ------------------------------------------------------------ all together

    def _conclude(self) -> None:
        report = self.report
        self._check_written_off(None)
        self._check_running(None)
        said, listed = self._definition, self._catalog
        if said is not None and listed is not None:
            # The ledger has none of this: it follows from what looks have said.
            known = {"proposals": listed.proposals, "found": listed.found}
            said = said.model_copy(update=known)
            if said.with_found(listed.listed) != listed:
                self._fault(self._said_at, "its definition is not the one on the topic catalog")
        if self._prices is None or not self._prices.composes or not self._oracle.tells:
            return
        report.full = self._oracle.full()
        self._within(None, "a full line", report.full)
        for number, block in enumerate(report.blocks, 1):
            if number <= self._written_off:  # there may have been looks that are on no topic
                block.epsilon = report.full
                continue
            block.epsilon = self._oracle.spent(block.losses, block.delta)
            self._within(None, f"what was looked at in phase {number}", block.epsilon)

    def _within(self, entry: int | None, what: str, epsilon: float) -> None:
        assert self.report.promised is not None, "the definition was read"
        promised = self.report.promised[0]
        if epsilon > promised * (1 + _ROUND):
            self._fault(
                entry,
                f"dp-accounting gives {what} epsilon {epsilon:.6g}, and {promised:g} is promised",
            )
