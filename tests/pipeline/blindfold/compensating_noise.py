"""Noise that makes the releases of two runs come out alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import numpy as np

from stream_dp.core.kinds.median_mode.stable_answerer import StableLook
from stream_dp.core.kinds.prefix_batch.batch_answerer import BatchLook
from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.core.rows.blocks import Blocks
from stream_dp.pipeline.rows.column_cache import ColumnCache
from tests.pipeline.blindfold.draws import Drawn, Ints, Script, Statistic, differ
from tests.pipeline.blindfold.statistics_of_looks import STATISTICS

_MOST_ATTEMPTS: Final = 20_000


class Differs(AssertionError):
    """The second run does something else than the first one did."""


class Compensating:
    """Noise that makes the looks of a second run publish what those of a first have published.

    The first run draws, and notes its draws. In the second run each look gets the same draws, moved by the
    difference of what it adds them to (``STATISTICS``). So counts with noise come out the same, and so does
    every comparison. Secrets, which a look draws before it sees any row, are the same.

    A histogram (kind ``prefix_batch``) is drawn from a law that depends on all rows, and no draw of it can be
    moved. The second run draws it with the same numbers, and then anew until it is the same histogram: its
    draws have their own law, on condition of what was published.

    Every release is the look's own, in both runs: one that publishes anything else than the first one did
    ends the second run. What it adds draws to is read aside: so it shows nowhere what was read for that.
    """

    def __init__(self, script: Script, *, first: bool) -> None:
        self._script = script
        self._first = first
        self._source = PooledNoise()
        self._secrets = iter(script.secrets)
        self._looks = iter(script.looks)
        self._noted: list[Ints] | None = None
        self.told_apart: set[type] = set()
        """Looks of the second run that saw other rows than those of the first."""
        self._given: Iterator[Ints] = iter(())
        self._world: Any = None

    def play_in(self, world: Any) -> None:
        """Becomes the noise of the workers of a world."""
        self._world = world
        world.make_noise = lambda _: self

    def gaussian(self, sigma: Fraction, size: int) -> Ints:
        return self._drawn(self._source.gaussian(sigma, size))

    def laplace(self, scale: Fraction, size: int) -> Ints:
        return self._drawn(self._source.laplace(scale, size))

    def geometric_half(self, limit: int) -> int:
        return int(self._drawn(np.array([self._source.geometric_half(limit)]))[0])

    def uniform(self, limit: int, size: int) -> Ints:
        return self._drawn(self._source.uniform(limit, size))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def _drawn(self, fresh: Ints) -> Ints:
        """Both runs draw, whatever the draws are replaced by."""
        if self._first:
            (self._script.secrets if self._noted is None else self._noted).append(fresh.copy())
            return fresh
        given = next(self._secrets if self._noted is None else self._given, fresh)
        return given.copy() if given.shape == fresh.shape else fresh

    def look(self, take: Callable[..., Any], look: Any, data: Blocks) -> Any:
        """Takes a look of either run."""
        if self._noted is not None:  # a part of a look
            return take(look, self, data)
        self._noted = []
        try:
            return (
                self._first_look(take, look, data) if self._first else self._same(take, look, data)
            )
        finally:
            self._noted = None

    def _first_look(self, take: Callable[..., Any], look: Any, data: Blocks) -> Any:
        assert self._noted is not None
        release = take(look, self, data)
        drawn = Drawn(type(look), self._noted, [], release)
        drawn.statistics = self._statistics(look, data, drawn)
        self._script.looks.append(drawn)
        return release

    def _same(self, take: Callable[..., Any], look: Any, data: Blocks) -> Any:
        then = next(self._looks, None)
        if then is None or then.look is not type(look):
            raise Differs("the second run looks more often, or takes another look")
        wanted = then.release.to_bytes()
        now = self._statistics(look, data, then)
        if any(map(differ, then.statistics, now)):
            self.told_apart.add(type(look))
        self._given = iter(then.moved(now))
        for _ in range(_MOST_ATTEMPTS if isinstance(look, BatchLook) else 1):
            release = take(look, self, data)
            if release.to_bytes() == wanted:
                return release
        raise Differs(f"the second run cannot publish what the first did: {type(look)}")

    def _statistics(self, look: Any, data: Blocks, drawn: Drawn) -> list[Statistic]:
        of = drawn if isinstance(look, StableLook) else drawn.release
        return STATISTICS[type(look)](look, self._aside(data), of)

    def _aside(self, data: Blocks) -> Blocks:
        """The same blocks, read where they are kept: no cache or worker knows of it."""
        reader: Any = data._reader
        kept = self._world.kept

        async def parts(places: Any, *, on_topic: bool = False) -> list[bytes | None]:
            del on_topic
            keyed = [(f"{reader.dataset}/{named.name.hex()}", at) for named, at in places]
            return [kept[key.encode()][at] for key, at in keyed]

        aside = Blocks.elsewhere(
            data._shape_at,
            data.sizes,
            data.erased,
            replace(reader, _cache=ColumnCache(), _parts=parts),
        )
        aside._reader._loop = reader._loop  # type: ignore[attr-defined]
        aside.vault, aside.ticks = data.vault, data.ticks
        return aside
