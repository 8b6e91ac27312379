"""A mechanism made from a definition, next to its rows, driven as the pipeline drives it."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Outcome
from stream_dp.core.queries.conditions import CompiledConditions
from stream_dp.core.queries.query import AnyQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.attribute_versions import Schema
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.messages import Definition, QueryFields
from stream_dp.pipeline.queries.compiler import compile_query
from stream_dp.profiles.builder import build, declared_in, rows_that_open


class Run:
    """One data set.

    Attributes:
        transcript: What a restart folds: rows of a phase, bytes of a release, description of a lost look.
        lines: What each block was charged, in units.
        looks: How many looks were charged.
    """

    def __init__(self, definition: Definition, noise: NoiseSource) -> None:
        self.definition = definition
        self.universe, self.mechanism = build(definition)
        self.data = Blocks(self.universe)
        self.transcript: list[int | bytes | dict[str, Any]] = []
        self.lines: list[tuple[int, int]] = []
        self.looks = 0
        self._noise = noise

    def open(self, cells: list[dict[str, Any]]) -> list[Look]:
        """Opens a phase, with as many times these cells as it takes; returns its looks."""
        n_rows = sum(cell["count"] for cell in cells)
        times = -(-rows_that_open(self.mechanism, self.definition) // n_rows)
        rows = self.universe.encode_cells(
            [{**cell, "count": times * cell["count"]} for cell in cells]
        )
        block = Block.seal(self.universe, rows, self.mechanism.in_order)
        assert self.mechanism.opens(block.n_rows, self.definition.phase.min_rows)
        self.data.append(block)
        self.lines.append((0, 0))
        self.transcript.append(block.n_rows)
        looks = list(self.mechanism.open_phase(block.n_rows))
        # The pipeline charges the looks of a phase together, before it takes the first one.
        for look in looks:
            self.charge(look)
        for look in looks:
            self.take(look)
        return looks

    def query(self, fields: dict[str, Any], window: range | None = None) -> AnyQuery:
        """A query's message, compiled for a window; for all phases where none is given."""
        query = QueryFields.model_validate({"query_id": "q", **fields})
        schema = Schema.of(declared_in(self.definition))
        engine = SimpleNamespace(conditions=CompiledConditions(self.universe), schema=schema)
        held: Any = SimpleNamespace(universe=self.universe, mechanism=self.mechanism, engine=engine)
        return compile_query(held, query).on(window or range(len(self.data)))

    def ask(self, query: AnyQuery) -> Outcome:
        step = self.mechanism.answer(query)
        while not isinstance(step, Outcome):
            self.charge(step)
            step = self.mechanism.conclude(query, step, self.take(step))
        return step

    def charge(self, look: Look) -> None:
        """Everything that is durable before the look is taken."""
        look.reserve(self._noise)
        self.data.vault.update(look.draw(self._noise))
        for charge in look.charges:
            rho, delta = self.lines[charge.block]
            self.lines[charge.block] = rho + charge.rho, delta + charge.delta
        self.mechanism.charged(look.charges)
        self.looks += 1

    def take(self, look: Look) -> Release:
        release = look.take(self._noise, self.data)
        self.transcript.append(release.to_bytes())
        self.mechanism.absorb(release)
        self._drop_secrets()
        return release

    def lose(self, look: Look) -> None:
        """A crash comes after the look was charged and taken, and before its release is committed."""
        self.charge(look)
        look.take(self._noise, self.data)
        description = json.loads(json.dumps(look.description))
        self.transcript.append(description)
        self.mechanism.lost(description)
        self._drop_secrets()

    def replayed(self, until: int | None = None) -> Run:
        """The same data set after a restart: a fresh mechanism that folded what was published."""
        fresh = Run(self.definition, self._noise)
        fresh.data, fresh.lines = self.data, list(self.lines)
        for entry in self.transcript[:until]:
            match entry:
                case int():
                    fresh.mechanism.open_phase(entry)
                case bytes():
                    fresh.mechanism.absorb(fresh.mechanism.release_from_bytes(entry))
                case dict():
                    fresh.mechanism.lost(entry)
        if until is None:
            charges = (Charge(block, *line) for block, line in enumerate(self.lines))
            fresh.mechanism.charged(tuple(charges))
        fresh.transcript = list(self.transcript[:until])
        return fresh

    def _drop_secrets(self) -> None:
        for name in self.data.vault.keys() - self.mechanism.secrets:
            del self.data.vault[name]


@pytest.fixture
def make_run() -> Callable[[Definition, NoiseSource], Run]:
    """``make_run(definition, noise)``: a data set without a phase."""
    return Run
