"""The look that names keys: the counts of those that enough units have, with noise (docs/proofs, Theorem 34).

A block pays for its levels when it opens. A level is looked at when the last block of its window opens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.encoding import fields, part
from stream_dp.core.mechanism import Look, LookSort
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.residual.keys.key_levels import KeyLevel
from stream_dp.core.residual.looks.table_looks import FORMAT
from stream_dp.core.rows.blocks import Blocks

KEYS: Final = 10
"""The kind of a measurement that names keys."""

_MOST_DRAWS: Final = 2**26
"""Most keys without a name that a look draws noise for. In a larger window no key of few units is named."""

_AT_ONCE: Final = 2**22
"""Draws that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class KeyLook(Look):
    """Looks for the keys of one attribute.

    Attributes:
        attribute: The index of the attribute.
        block: The block that opens, by its absolute index.
        levels: The levels that it pays for.
        windows: The window of each level that ends with the block; empty for a level that is not looked at.
        rows: The rows of each window; public.
        named: The keys that are known by now. How many have each is always said.
    """

    attribute: int
    block: int
    levels: tuple[KeyLevel, ...]
    windows: tuple[range, ...]
    rows: tuple[int, ...]
    named: frozenset[str] = field(repr=False)
    charges: tuple[Charge, ...]

    @property
    def reads(self) -> Sequence[int]:
        return sorted({block for window in self.windows for block in window})

    @property
    def sort(self) -> LookSort:
        return LookSort.SEALED

    @property
    def description(self) -> dict[str, object]:
        levels = [
            {
                "phases": level.phases,
                "sigma": str(level.sigma),
                "threshold": level.threshold,
                "failure": str(level.failure),
            }
            for level in self.levels
        ]
        return {"kind": "keys", "attribute": self.attribute, "block": self.block, "levels": levels}

    def _draws(self, rows: int) -> tuple[int, int]:
        """The least count that a key without a name is looked at with, and how many draws there are."""
        at_least = max(1, -(-rows // _MOST_DRAWS))
        return at_least, rows // at_least + len(self.named)

    def reserve(self, noise: NoiseSource) -> None:
        for level, window, rows in zip(self.levels, self.windows, self.rows, strict=True):
            if window:
                n_draws = self._draws(rows)[1]
                noise.reserve("gaussian", level.sigma, min(n_draws, _AT_ONCE))

    def take(self, noise: NoiseSource, data: Blocks) -> KeyRelease:
        found = []
        for level, window, rows in zip(self.levels, self.windows, self.rows, strict=True):
            if window:
                said = self._said(noise, level, rows, data.keys(self.attribute, window))
                by_count = sorted(said, key=lambda one: (-one[1], one[0]))
                found.append(KeyCounts(window, tuple(by_count)))
        return KeyRelease(self.attribute, self.block, tuple(found))

    def _said(
        self, noise: NoiseSource, level: KeyLevel, rows: int, counts: dict[bytes, int]
    ) -> Iterator[tuple[bytes, int]]:
        """The keys that a level tells, and how many units have each, with noise.

        Each key has a draw of its own. How many are drawn follows from public numbers.
        """
        at_least, n_draws = self._draws(rows)
        known = sorted(name.encode() for name in self.named)
        looked_at = [(text, counts.pop(text, 0), -math.inf) for text in known]
        below = level.threshold + at_least - 1
        looked_at += sorted(
            (text, count, below) for text, count in counts.items() if count >= at_least
        )
        for start in range(0, n_draws, _AT_ONCE):
            draws = noise.gaussian(level.sigma, min(_AT_ONCE, n_draws - start)).tolist()
            part = looked_at[start : start + _AT_ONCE]
            for (text, count, least), draw in zip(part, draws, strict=False):
                if count + draw >= least:
                    yield text, count + draw


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """What is published of a window: keys in UTF-8, and how many units have each, with noise.

    They come by count, the largest first, and then by text.
    """

    window: range
    counts: tuple[tuple[bytes, int], ...]


@dataclass(frozen=True, slots=True)
class KeyRelease:
    """What a look for keys has published.

    Attributes:
        attribute: The index of the attribute.
        block: The block that opened.
        windows: A part for each level whose window ends with the block.
    """

    attribute: int
    block: int
    windows: tuple[KeyCounts, ...]

    def to_bytes(self) -> bytes:
        parts = []
        for one in self.windows:
            parts.append(fields("<III", one.window.start, one.window.stop, len(one.counts)))
            parts += [part(text) + fields("<q", count) for text, count in one.counts]
        return FORMAT.pack(
            fields("<BHIB", KEYS, self.attribute, self.block, len(self.windows)), *parts
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> KeyRelease:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode.
        """
        reader = FORMAT.read(data)
        kind, attribute, block, n_windows = reader.fields("<BHIB")
        reader.require(kind == KEYS, "is of an unknown kind")
        windows = []
        for _ in range(n_windows):
            start, stop, n_counts = reader.fields("<III")
            counts = []
            for _ in range(n_counts):
                text = bytes(reader.required())
                counts.append((text, reader.fields("<q")[0]))
            windows.append(KeyCounts(range(start, stop), tuple(counts)))
        reader.end()
        return cls(attribute, block, tuple(windows))
