"""What the driver of a peer reads and writes. It needs nothing but the standard library.

A driver runs in the environment of its peer, which knows nothing of stream_dp:

    python -m drivers.plain STREAM ANSWERS [--seconds 600] [--option NAME]

``STREAM`` is a folder. ``stream.json`` has the promise and the attributes, ``rows.csv`` the rows in order of
arrival, and ``queries.jsonl`` the queries, each with the phase that it follows. Rows hold the index of a cell
for each attribute, so numbers are binned alike for all. ``ANSWERS`` gets one JSON document a line: one about
the peer, one for each query, and a last one with what was spent.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from time import perf_counter
from typing import Any, Protocol

Columns = dict[str, list[int]]


class Exhausted(Exception):
    """The query would pass the budget of a phase."""


class Unable(Exception):
    """The peer has no way to answer such a query."""


@dataclass(frozen=True)
class Promise:
    """The same for every peer.

    Attributes:
        epsilon: Together with ``delta``, the lifetime promise for each row.
        delta: See ``epsilon``.
        rho: The largest rho for which rho-zCDP implies (``epsilon``, ``delta``).
        error: Largest error of each number, as a share of the rows of the window.
        failure_probability: Probability with which a number may be further off.
    """

    epsilon: float
    delta: float
    rho: float
    error: float
    failure_probability: float

    def sigma(self, n_rows: int) -> float:
        """The Gaussian scale, in rows, that just keeps the error of a count of ``n_rows`` rows."""
        return self.error * n_rows / NormalDist().inv_cdf(1.0 - self.failure_probability / 2.0)

    def laplace_scale(self, n_rows: int) -> float:
        """The Laplace scale, in rows, that just keeps the error of a count of ``n_rows`` rows."""
        return self.error * n_rows / math.log(1.0 / self.failure_probability)


@dataclass(frozen=True)
class Attribute:
    """A column of small integers.

    Attributes:
        name: Its name, which is also good in SQL.
        size: The cells are 0 to ``size - 1``; public.
        ordered: Whether the cells are bins of a number.
    """

    name: str
    size: int
    ordered: bool = False


@dataclass(frozen=True)
class Query:
    """A count, or the counts of GROUP BY.

    Attributes:
        number: Position in the stream.
        phase: The last phase that was open when it was asked.
        first: The first phase of the window, which ends with ``phase``.
        where: The cells that count, for each attribute with a condition.
        by: The attributes to group by.
    """

    number: int
    phase: int
    first: int
    where: dict[str, tuple[int, ...]]
    by: tuple[str, ...] = ()

    @property
    def window(self) -> range:
        return range(self.first, self.phase + 1)

    @property
    def key(self) -> tuple[object, ...]:
        """The same for two queries that ask for the same counts of the same rows."""
        return tuple(sorted(self.where.items())), self.by, self.first, self.phase

    def as_json(self) -> dict[str, Any]:
        where = {name: list(cells) for name, cells in self.where.items()}
        return {
            "number": self.number,
            "phase": self.phase,
            "first": self.first,
            "where": where,
            "by": list(self.by),
        }

    @classmethod
    def of_json(cls, query: dict[str, Any]) -> Query:
        where = {name: tuple(sorted(cells)) for name, cells in query["where"].items()}
        return cls(query["number"], query["phase"], query["first"], where, tuple(query["by"]))


@dataclass(frozen=True)
class Stream:
    """Rows by phase, and the queries that follow each phase."""

    name: str
    promise: Promise
    attributes: tuple[Attribute, ...]
    phases: list[Columns]
    queries: list[Query]

    @property
    def sizes(self) -> list[int]:
        """Rows of each phase; public."""
        first = self.attributes[0].name
        return [len(columns[first]) for columns in self.phases]

    def attribute(self, name: str) -> Attribute:
        return next(a for a in self.attributes if a.name == name)

    def n_rows(self, window: range) -> int:
        return sum(self.sizes[window.start : window.stop])

    def n_cells(self, query: Query) -> int:
        """Numbers in the answer."""
        return math.prod(self.attribute(name).size for name in query.by)

    def rows(self, window: range) -> Columns:
        """The rows of a window, column by column."""
        return {
            a.name: [cell for phase in window for cell in self.phases[phase][a.name]]
            for a in self.attributes
        }

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        about = {
            "name": self.name,
            "promise": vars(self.promise),
            "attributes": [vars(a) for a in self.attributes],
            "sizes": self.sizes,
        }
        (folder / "stream.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
        with (folder / "rows.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(a.name for a in self.attributes)
            for columns in self.phases:
                writer.writerows(zip(*(columns[a.name] for a in self.attributes), strict=True))
        with (folder / "queries.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(query.as_json()) + "\n" for query in self.queries)

    @classmethod
    def read(cls, folder: Path) -> Stream:
        about = json.loads((folder / "stream.json").read_text(encoding="utf-8"))
        attributes = tuple(Attribute(**a) for a in about["attributes"])
        with (folder / "rows.csv").open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            next(reader)
            rows = [[int(cell) for cell in row] for row in reader]
        phases, start = [], 0
        for size in about["sizes"]:
            part = rows[start : start + size]
            phases.append({a.name: [r[i] for r in part] for i, a in enumerate(attributes)})
            start += size
        with (folder / "queries.jsonl").open(encoding="utf-8") as file:
            queries = [Query.of_json(json.loads(line)) for line in file]
        return cls(about["name"], Promise(**about["promise"]), attributes, phases, queries)


class Ledger:
    """What each phase has spent of a limit, where losses add up. The peers that have no ledger share it."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._spent: list[float] = []

    def open_phase(self) -> None:
        self._spent.append(0.0)

    def charge(self, window: range, loss: float) -> None:
        """Charges every phase of the window.

        Raises:
            Exhausted: A phase has less left; nothing is charged.
        """
        if any(self._spent[phase] + loss > self._limit for phase in window):
            raise Exhausted
        for phase in window:
            self._spent[phase] += loss

    def spent(self) -> float:
        """The share of its limit that the fullest phase has spent."""
        return max(self._spent) / self._limit


class Peer(Protocol):
    """What a driver implements."""

    def open_phase(self, phase: int) -> None:
        """Takes the rows of the next phase."""

    def answer(self, query: Query) -> Sequence[float]:
        """The numbers, row-major in the order of ``query.by``.

        Raises:
            Exhausted: The budget does not allow it.
            Unable: The peer has no way to answer it.
        """

    def spent(self) -> float:
        """The share of its budget that the fullest phase has spent."""


@dataclass(frozen=True)
class About:
    """What stands in the table next to the numbers.

    Attributes:
        peer: The peer and how it is used, in a few words.
        versions: The packages that matter.
        accounting: How losses add up, and whose work that is.
        cache: Whether the driver puts an exact cache in front.
        paid: A function that tells how many answers were paid for, for a peer with a memory of its own.
    """

    peer: str
    versions: dict[str, str]
    accounting: str
    cache: bool = True
    paid: Callable[[], int] | None = None


def serve(stream: Stream, about: About, peer: Peer, file: Path, *, seconds: float) -> None:
    """Sends the stream through a peer and writes what comes back.

    Args:
        stream: Rows and queries.
        about: Whom the answers are from.
        peer: Whom to ask.
        file: Where the answers go.
        seconds: After this time no further query is asked; the table says so.
    """
    known: dict[tuple[object, ...], list[float]] = {}
    begun, opened, opening = perf_counter(), 0, 0.0
    stopped = False
    with file.open("w", encoding="utf-8") as out:
        header = {"peer": about.peer, "versions": about.versions, "accounting": about.accounting}
        out.write(json.dumps(header | {"cache": about.cache}) + "\n")
        for query in stream.queries:
            start = perf_counter()
            if start - begun > seconds:
                stopped = True
                break
            while opened <= query.phase:
                peer.open_phase(opened)
                opened += 1
            opening += perf_counter() - start
            start = perf_counter()
            values = known.get(query.key) if about.cache else None
            record: dict[str, Any] = {"number": query.number, "cached": values is not None}
            if values is None:
                try:
                    values = [float(value) for value in peer.answer(query)]
                except (Exhausted, Unable) as refusal:
                    record["refused"] = "budget" if isinstance(refusal, Exhausted) else str(refusal)
                else:
                    if len(values) != stream.n_cells(query):
                        raise ValueError(f"query {query.number} got {len(values)} numbers")
                    known[query.key] = values
            record["seconds"] = perf_counter() - start
            if values is not None:
                record["values"] = values
            out.write(json.dumps(record) + "\n")
        last: dict[str, Any] = {"spent": peer.spent(), "opening": opening, "stopped": stopped}
        if about.paid is not None:
            last["paid"] = about.paid()
        out.write(json.dumps(last) + "\n")


def main(make: Callable[[Stream, str], tuple[About, Peer]]) -> None:
    """The command line of every driver.

    Args:
        make: Gets the stream and ``--option``, and returns the peer.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("stream", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--option", default="")
    asked = parser.parse_args()
    stream = Stream.read(asked.stream)
    about, peer = make(stream, asked.option)
    serve(stream, about, peer, asked.answers, seconds=asked.seconds)
