"""Kind ``correlated_vector``: a public response to one private bit of each row, in order of arrival.

The responses of a block are drawn once, when its phase opens; from then on every query is free, in any
window, and so is whatever is computed from the answer. The source and the guarantee are in ``vector_law``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.budget.parameters import erased_blocks
from stream_dp.core.encoding import Format, fields
from stream_dp.core.kinds.correlated_vector.vector_law import ResponsePlan
from stream_dp.core.kinds.kind_answerer import Answerer, KindLook, KindTerms
from stream_dp.core.kinds.loss import Loss
from stream_dp.core.mechanism import ROWS_ERASED
from stream_dp.core.outcome import Outcome, Path, RefusalCode, Refused, Responses
from stream_dp.core.queries.query import KindQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.attributes import Boolean
from stream_dp.core.rows.blocks import MAX_ORDERED, Blocks
from stream_dp.errors import InvalidDefinition

MOST_RESPONSES: Final = 2**24
"""Rows of a window: its answer, a bit a row, still fits into one record."""

_FORMAT = Format("response vector")
_TRUE = 1  # cell of a Boolean


@dataclass(frozen=True, slots=True)
class ResponsesRelease:
    """Published responses of one block, a bit a row, the first row's the highest bit of the first byte."""

    block: int
    bits: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        return _FORMAT.pack(fields("<I", self.block), self.bits)


@dataclass(frozen=True)
class ResponsesLook(KindLook):
    """Draws the response of each row of a block."""

    plan: ResponsePlan
    attribute: int
    block: int
    charges: tuple[Charge, ...]

    @property
    def loss(self) -> Loss:
        return self.plan.loss

    @property
    def description(self) -> dict[str, object]:
        return {
            "attribute": self.attribute,
            "block": self.block,
            "agreement": float(self.plan.agreement),
        }

    def take(self, noise: NoiseSource, data: Blocks) -> ResponsesRelease:
        is_true = data.in_order(self.attribute, self.block) == _TRUE
        responses = self.plan.respond(np.where(is_true, 1, -1), noise)
        return ResponsesRelease(self.block, np.packbits(responses > 0).tobytes())


class CorrelatedVectors(Answerer[ResponsesRelease]):
    """The responses to a Boolean attribute; a missing value counts as false.

    Args:
        attribute: Its name.

    Raises:
        InvalidDefinition: There is no such attribute, or it is not boolean.
    """

    name = "correlated_vector"
    approximate = False

    def __init__(self, terms: KindTerms, attribute: str) -> None:
        super().__init__(terms)
        universe = self._universe
        of_name = dict(zip(universe.names, universe.attributes, strict=True))
        if not isinstance(of_name.get(attribute), Boolean):
            raise InvalidDefinition(
                "kinds.correlated_vector.attribute",
                "it is not the name of a boolean attribute",
                "name one whose bits are to be answered",
            )
        self._attribute = universe.names.index(attribute)
        self.in_order = (self._attribute,)
        self._plan = ResponsePlan(self._loss.epsilon)
        self._bits: dict[int, bytes] = {}
        self._lost: list[int] = []

    def open_phase(self, n_rows: int) -> Sequence[KindLook]:
        super().open_phase(n_rows)
        # What a crash lost is drawn again, where there still are rows, and the line has room for it.
        blocks, self._lost = [*self._lost, len(self._sizes) - 1], []
        return [
            ResponsesLook(self._plan, self._attribute, block, self._charges((block,)))
            for block in blocks
            if self._sizes[block] <= MAX_ORDERED and block >= self.erased
        ]

    def opening_units(self, n_rows: int) -> int:
        return self._charges((0,))[0].rho if n_rows <= MAX_ORDERED else 0

    def _step(self, asked: KindQuery) -> Outcome | KindLook:
        if asked.attribute != self._attribute:
            return Refused(
                RefusalCode.INVALID_QUERY,
                f"attribute: responses are drawn to {self._universe.names[self._attribute]} alone; ask about "
                "it, or ask a predicate",
            )
        n_rows = self._rows(asked.window)
        if n_rows > MOST_RESPONSES:
            return Refused(
                RefusalCode.INVALID_QUERY,
                f"window: the responses of at most {MOST_RESPONSES:,} rows fit into an answer, and these are "
                f"{n_rows:,}; ask about fewer phases",
            )
        for block in asked.window:
            if block not in self._bits:
                return self._lacking(block)
        return Responses(
            bits=self._joined(asked.window),
            n=n_rows,
            agreement=float(self._plan.agreement),
            error_bar=self._plan.error_bar(n_rows, self._failure_probability),
            confidence=1.0 - self._failure_probability,
            path=Path.CERTIFIED,
        )

    def _lacking(self, block: int) -> Refused:
        which = f"window: the rows of phase {block + 1} have no responses"
        if block < self.erased:
            return ROWS_ERASED
        if block in self._lost:
            if block < erased_blocks(len(self._sizes) + 1, self.kept):
                return Refused(
                    RefusalCode.ROWS_ERASED,
                    f"{which}, for a crash lost them, and its rows are erased when the next phase opens; ask "
                    "about younger phases",
                )
            return Refused(
                RefusalCode.RETRY_AFTER,
                f"{which}, for a crash lost them; they are drawn again when the next phase opens",
                retriable=True,
            )
        if self._sizes[block] > MAX_ORDERED:
            return Refused(
                RefusalCode.INVALID_QUERY,
                f"{which}, for they are more than {MAX_ORDERED:,}; ask about younger phases",
            )
        return Refused(
            RefusalCode.BUDGET_EXHAUSTED,
            f"{which}, for its budget had no room for them; ask about younger phases",
        )

    def _joined(self, window: range) -> bytes:
        """The responses of consecutive blocks, packed like each block's."""
        each = [
            np.unpackbits(np.frombuffer(self._bits[b], dtype=np.uint8), count=self._sizes[b])
            for b in window
        ]
        return np.packbits(np.concatenate(each)).tobytes()

    def absorb(self, release: ResponsesRelease) -> None:
        self._bits[release.block] = release.bits

    def conclude(self, asked: KindQuery, look: KindLook, release: ResponsesRelease) -> Outcome:
        raise AssertionError("no query needs a look")

    def lost(self, look: Mapping[str, object]) -> None:
        block = look["block"]
        assert isinstance(block, int), "as its description said"
        self._lost.append(block)

    def release_from_bytes(self, data: bytes) -> ResponsesRelease:
        reader = _FORMAT.read(data)
        (block,) = reader.fields("<I")
        reader.require(block < len(self._sizes))
        bits = reader.take(-(-self._sizes[block] // 8))
        reader.end()
        return ResponsesRelease(block, bits)
