"""What the topics tell of all data sets, as tables of Postgres have it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from stream_dp.attribute_dates import labels_of
from stream_dp.client import AsyncClient
from stream_dp.client.budget.odometer import Odometer
from stream_dp.errors import StreamDPError
from stream_dp.gateway.catalogs.catalog_tables import CatalogTable, TableColumn
from stream_dp.messages import Definition, DimensionTable, Event, SyntheticRows

DATABASE: Final = "stream_dp"
"""The one database. A client that names none gets it too."""

SYNTHETIC: Final = "synthetic"
"""The schema of the free synthetic rows."""

OURS: Final = "stream_dp"
"""The schema of what we say of data sets."""

FRESH_S: Final = 5.0
"""The seconds after which public tables are read again when somebody asks for them."""

NEWEST_S: Final = 1.0
"""The seconds after which budgets are, and all that might have a name that is not known."""

TYPE_OF_COLUMN: Final[Mapping[str, str]] = {
    "text": "text",
    "integer": "int8",
    "real": "float8",
    "boolean": "bool",
    "date": "date",
    "timestamp": "timestamp",
}
"""The types of Postgres for those of our columns."""

_DATES: Final = {
    **dict.fromkeys(("year", "quarter", "month", "week", "day"), "date"),
    "hour": "timestamp",
}
"""The types of dates. Those that come again and again, such as weekdays, are texts."""

_BUDGET: Final = (
    TableColumn("dataset", "text", False, "The name of the data set"),
    TableColumn("phase", "int8", False, "The number of the phase"),
    TableColumn("rows", "int8", False, "The rows of the phase"),
    TableColumn("since", "text", True, "When the phase begins"),
    TableColumn("until", "text", True, "When it has ended"),
    TableColumn("looks", "int8", False, "The paid looks at its rows"),
    TableColumn("spent", "float8", False, "The spent share of the budget of its rows"),
    TableColumn("left", "float8", False, "The share that is left"),
)
_MOST_SHOWN: Final = 20
_VERSIONS: Final = itertools.count(1)


@dataclass(frozen=True)
class PublishedFacts:
    """What was read from the topics at one time.

    Attributes:
        version: A number that is another one when anything is.
        definitions: The definitions of the data sets by name.
        dimensions: The public tables by name.
        synthetic: The newest synthetic rows by data set.
        odometers: What was spent, by data set.
    """

    version: int = 0
    definitions: Mapping[str, Definition] = field(default_factory=dict)
    dimensions: Mapping[str, DimensionTable] = field(default_factory=dict)
    synthetic: Mapping[str, SyntheticRows] = field(default_factory=dict)
    odometers: Mapping[str, Odometer] = field(default_factory=dict)

    def seen(self, seen: frozenset[str] | None) -> Mapping[str, Definition]:
        """Returns the definitions of the data sets that somebody may see; all for None."""
        return {name: one for name, one in self.definitions.items() if seen is None or name in seen}

    def tables(self, seen: frozenset[str] | None) -> tuple[CatalogTable, ...]:
        """Returns all tables that somebody may see."""
        known = self.seen(seen)
        return (
            *(_of_data_set(name, one) for name, one in sorted(known.items())),
            *(_of_dimension(one) for _, one in sorted(self.dimensions.items())),
            *(
                _of_synthetic(name, definition, self.synthetic.get(name))
                for name, definition in sorted(known.items())
                if definition.synthetic_rows
            ),
            CatalogTable(
                OURS, "budget", "What was spent of each phase", _BUDGET, tuple(self._spent(known))
            ),
        )

    def _spent(self, known: Mapping[str, Definition]) -> Iterator[tuple[Any, ...]]:
        for name in sorted(known):
            blocks = self.odometers[name].blocks if name in self.odometers else []
            for number, block in enumerate(blocks, 1):
                left = max(0.0, 1.0 - block.spent)
                yield (
                    name,
                    number,
                    block.rows,
                    block.since,
                    block.until,
                    block.looks,
                    block.spent,
                    left,
                )


def _of_data_set(name: str, definition: Definition) -> CatalogTable:
    privacy = definition.privacy
    whom = "row" if privacy.unit is None else "person"
    said = f"Differentially private: epsilon {privacy.epsilon:g} for each {whom}, for life"
    return CatalogTable("public", name, said, tuple(_columns(definition)), None)


def _columns(definition: Definition) -> Iterator[TableColumn]:
    for attribute in definition.attributes:
        said: str | None = None
        kind = "text"
        if attribute.type == "number":
            kind = "int8" if attribute.integer else "float8"
            said = f"Bins begin at: {_shortened(attribute.edges)}"
            if attribute.propose is not None:
                said = f"{len(attribute.edges) + 1} bins of a fixed grid"
        elif attribute.type == "boolean":
            kind = "bool"
        elif attribute.type == "date":
            kind = _DATES.get(attribute.by, "text")
            labels = labels_of(attribute.by, attribute.first, attribute.until)
            said = f"By {attribute.by}, from {labels[0]} to {labels[-1]}; its groups are texts"
        else:
            said = f"One of: {_shortened(attribute.values)}"
        yield TableColumn(attribute.name, kind, attribute.missing, said)


def _shortened(values: Any) -> str:
    shown = ", ".join(
        f"{one:g}" if isinstance(one, float) else str(one) for one in values[:_MOST_SHOWN]
    )
    return shown if len(values) <= _MOST_SHOWN else f"{shown}, ... ({len(values):,} in all)"


def _of_dimension(table: DimensionTable) -> CatalogTable:
    columns = tuple(
        TableColumn(name, TYPE_OF_COLUMN[kind], name != table.key, None)
        for name, kind in zip(table.columns, table.types, strict=True)
    )
    return CatalogTable("public", table.dimension, "A public table", columns, table.rows)


def _of_synthetic(name: str, definition: Definition, found: SyntheticRows | None) -> CatalogTable:
    """Returns the synthetic rows of a data set, which have the labels of its cells as texts."""
    note = "Synthetic rows, made of what was published; free"
    kinds = {one.name: "bool" if one.type == "boolean" else "text" for one in definition.attributes}
    columns = tuple(TableColumn(column, kind, True, None) for column, kind in kinds.items())
    if found is None:
        return CatalogTable(
            SYNTHETIC, name, f"{note}. They come after the first phase", columns, ()
        )
    values = found.values()
    rows = tuple(zip(*(values[column] for column in kinds), strict=True))
    return CatalogTable(SYNTHETIC, name, f"{note}. {found.note}", columns, rows)


class FactsReader:
    """Reads the facts again when they may have changed.

    Args:
        client: The client that reads.

    Attributes:
        facts: What was read last.
        phases: The number of open phases of each data set, and the newest one that has got late rows. Events
            tell these at once.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._reading = asyncio.Lock()
        self._read_s = -math.inf
        self._told = self._known = 0
        self.facts = PublishedFacts()
        self.phases: dict[str, tuple[int, int]] = {}

    def announce(self, event: Event) -> None:
        """Takes what an event tells."""
        if event.batch_id is not None and event.event != "phase_opened":
            return
        if event.phase is not None and event.schema_version is None:  # which is of a later one
            filled = event.phase if event.event == "phase_complete" and event.rows else 0
            self._know(event.dataset, event.phase, filled)
        self._told += 1

    def _know(self, dataset: str, phases: int, filled: int) -> None:
        before = self.phases.get(dataset, (0, 0))
        self.phases[dataset] = max(phases, before[0]), max(filled, before[1])

    async def fresh(self, age_s: float = FRESH_S) -> PublishedFacts:
        """Returns facts that are not older than ``age_s`` seconds, and not older than the latest event."""
        async with self._reading:
            if self._told != self._known or time.monotonic() - self._read_s > age_s:
                await self._read()
            return self.facts

    async def _read(self) -> None:
        told = self._told
        began_s = time.monotonic()
        definitions, dimensions, ledgers = await asyncio.gather(
            self._client.catalog(), self._client.dimensions(), self._client.ledgers()
        )
        synthetic = {}
        for name, definition in definitions.items():
            if definition.synthetic_rows:
                with contextlib.suppress(StreamDPError):  # they come after the first phase
                    synthetic[name] = await self._client.synthetic(name)
        odometers = {name: Odometer.read(entries) for name, entries in ledgers.items()}
        for name, odometer in odometers.items():
            self._know(name, len(odometer.blocks), odometer.filled)
        found = PublishedFacts(self.facts.version, definitions, dimensions, synthetic, odometers)
        if found != self.facts:
            self.facts = replace(found, version=next(_VERSIONS))
        self._read_s, self._known = began_s, told
