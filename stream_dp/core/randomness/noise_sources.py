"""Integer noise with exact rational scales, drawn for one look at a time.

Every draw comes from an exact sampler of integers: by inversion where a Gaussian's table is small
(``inversion``), else Canonne, Kamath, Steinke 2020, Algorithms 1 to 3, in OpenDP's implementation. No
floating-point number is ever rounded into a release. A scale is the ``Fraction`` that the charge is
computed from; one that the sampler would round is refused.

How long an exact sampler runs tells how large its draw is (Jin, McMurtry, Rubinstein, Ohrimenko 2022),
so a look takes draws that were reserved for it before its charge was made. They live in memory for that long
only: what the look leaves is overwritten, nothing is drawn ahead for other looks, and draws are not pickled,
not copied and do not survive a fork. So a copy of the process' memory that goes on, as from a snapshot of a
virtual machine, holds no draw that another look could be given a second time.

Randomness: OpenDP draws from OpenSSL's private generator, which the operating system seeds, and which
seeds itself again after a fork; all else reads the operating system's generator directly.
"""

from __future__ import annotations

import math
import os
import secrets
import weakref
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final, Literal, NoReturn, Protocol, TypeAlias, final

import numpy as np
import numpy.typing as npt

from stream_dp.core.randomness import inversion

Kind: TypeAlias = Literal["gaussian", "laplace"]
IntArray: TypeAlias = npt.NDArray[np.int64]
Sampler: TypeAlias = Callable[[Kind, Fraction, int], IntArray]
"""``sampler(kind, scale, size)``: that many fresh independent draws, int64, shape (size,)."""

MIN_SCALE: Final = Fraction(1, 2**20)
MAX_SCALE: Final = Fraction(2**50)  # a draw passes 2**63 with probability below exp(-8000)
MAX_RESERVED: Final = 2**24
"""Most draws of one scale that a look reserves: 128 MiB."""
MAX_UNIFORM: Final = 2**62

GRID_STEPS: Final = 32
_GRID_BITS: Final = 16
_CHUNK: Final = 2**14
_FIRST_UNBIASED_OPENDP: Final = (0, 14, 2)


class NoiseSource(Protocol):
    """A source of integer noise. Seeded ones exist only in tests and for the lab's synthetic rows."""

    def gaussian(self, sigma: Fraction, size: int) -> IntArray:
        """Draws discrete Gaussian noise, int64, shape (size,).

        One integer query of L2 sensitivity D plus this noise is ``D**2 / (2 * sigma**2)``-zCDP.

        Args:
            sigma: Scale in rows, a float's exact value. ``Pr[x]`` is proportional to
                ``exp(-x**2 / (2 * sigma**2))``.
            size: The number of draws.

        Raises:
            ValueError: ``sigma`` is not the exact value of a float, or not in ``[MIN_SCALE, MAX_SCALE]``.

        Canonne, Kamath, Steinke 2020, Definition 1 and Theorem 4.
        """
        ...

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Draws discrete Laplace noise, int64, shape (size,).

        One integer query of L1 sensitivity D plus this noise is ``D / scale``-DP.

        Args:
            scale: Scale in rows, a float's exact value. ``Pr[x]`` is proportional to
                ``exp(-abs(x) / scale)``.
            size: The number of draws.

        Raises:
            ValueError: ``scale`` is not the exact value of a float, or not in ``[MIN_SCALE, MAX_SCALE]``.

        Ghosh, Roughgarden, Sundararajan 2012, section 2.
        """
        ...

    def geometric_half(self, limit: int) -> int:
        """Draws from ``{0, ..., limit}`` with probability proportional to ``2**-x``.

        Raises:
            ValueError: ``limit`` is negative.
        """
        ...

    def uniform(self, limit: int, size: int) -> IntArray:
        """Draws from ``{0, ..., limit - 1}``, each as likely as any other, int64, shape (size,).

        Raises:
            ValueError: ``limit`` is not in ``[1, MAX_UNIFORM]``.
        """
        ...

    def reserve(self, kind: Kind, scale: Fraction, size: int) -> None:
        """Draws ``size`` values, beyond those reserved before, for the look that is about to be charged.

        Neither the time that a draw takes nor its failure then comes between charge and release. Raises as
        ``gaussian`` and ``laplace`` do.
        """
        ...

    def discard(self) -> None:
        """Overwrites and forgets what was reserved and not taken: before a look reserves, and after it."""
        ...


def _checked_scale(scale: Fraction) -> Fraction:
    if not isinstance(scale, Fraction):
        raise TypeError(f"a noise scale is a Fraction, not {type(scale).__name__}")
    if not MIN_SCALE <= scale <= MAX_SCALE:
        raise ValueError(f"the noise scale {scale} is outside {MIN_SCALE} to {MAX_SCALE}")
    if Fraction(float(scale)) != scale:
        raise ValueError(
            f"the noise scale {scale} is not the exact value of a float, so the sampler would use another "
            f"than the one charged; use grid_sigma() or another dyadic rational"
        )
    return scale


def _checked_size(size: int) -> int:
    if size < 0:
        raise ValueError(f"the number of draws must not be negative: {size}")
    return size


@final
class OpenDPSampler:
    """Fresh draws from OpenDP's exact integer samplers; one measurement a scale, set up once.

    OpenDP is imported on first use: that takes most of a second, and the asking side never draws.

    Raises:
        RuntimeError: The installed OpenDP has the biased sampler of its issue 2638.
    """

    def __init__(self) -> None:
        _require_unbiased_opendp(version("opendp"))

    def __call__(self, kind: Kind, scale: Fraction, size: int) -> IntArray:
        measurement = _opendp_measurement(kind, _checked_scale(scale))
        draws = np.empty(size, dtype=np.int64)
        for start in range(0, size, _CHUNK):
            part = draws[start : start + _CHUNK]
            part[:] = measurement(np.zeros(part.size, dtype=np.int64))
        return draws


def _require_unbiased_opendp(installed: str) -> None:
    numbers = tuple(int(part) for part in installed.split(".")[:3] if part.isdigit())
    if numbers < _FIRST_UNBIASED_OPENDP:
        raise RuntimeError(
            f"OpenDP {installed} draws biased noise (its issue 2638: a wrong division in the "
            f"sampler); install 0.14.2 or newer"
        )


@lru_cache(maxsize=512)
def _opendp_measurement(kind: Kind, scale: Fraction) -> Callable[[IntArray], list[int]]:
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian, make_laplace
    from opendp.metrics import l1_distance, l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    vectors = vector_domain(atom_domain(T="i64"))
    measurement: Any
    if kind == "gaussian":
        measurement = make_gaussian(vectors, l2_distance(T="f64"), scale=float(scale))
        loss, charged = measurement.map(1.0), 1 / (2 * scale**2)
    else:
        measurement = make_laplace(vectors, l1_distance(T="i64"), scale=float(scale))
        loss, charged = measurement.map(1), 1 / scale
    # OpenDP states the loss of the scale it will draw with, rounded up to a float: it must be ours.
    if not charged <= Fraction(loss) <= charged * (1 + Fraction(1, 2**50)):
        raise ValueError(f"OpenDP would draw {kind} noise with another scale than {scale}")
    return measurement  # type: ignore[no-any-return]


@final
class ExactSampler:
    """Fresh draws of any scale, each by the quicker of the two exact samplers.

    Raises:
        RuntimeError: The sampler fails, see ``OpenDPSampler``.
    """

    def __init__(self) -> None:
        self._opendp = OpenDPSampler()

    def __call__(self, kind: Kind, scale: Fraction, size: int) -> IntArray:
        if kind == "gaussian" and inversion.MIN_SIGMA <= scale <= inversion.MAX_SIGMA:
            return inversion.gaussian(_checked_scale(scale), size)
        return self._opendp(kind, scale, size)


@final
class _Pool:
    """Draws of one scale, first in, first out; what was handed out or given up is overwritten."""

    __slots__ = ("_start", "_values")

    def __init__(self) -> None:
        self._values: IntArray = np.empty(0, dtype=np.int64)
        self._start = 0

    def __len__(self) -> int:
        return int(self._values.size) - self._start

    def push(self, draws: IntArray) -> None:
        waiting = self._values[self._start :]
        values = np.concatenate([waiting, draws])
        self.wipe()
        self._values = values
        draws[:] = 0

    def pop(self, size: int) -> IntArray:
        part = self._values[self._start : self._start + size]
        draws = part.copy()
        part[:] = 0
        self._start += size
        return draws

    def wipe(self) -> None:
        self._values[:] = 0
        self._values, self._start = np.empty(0, dtype=np.int64), 0


@final
class PooledNoise:
    """The noise source of a release: exact draws, made for the look that takes them.

    A look that takes more than it reserved costs time, never exactness: the missing draws are made on the
    spot.

    Args:
        sampler: Makes fresh draws; None takes ``ExactSampler``.
    """

    def __init__(self, *, sampler: Sampler | None = None) -> None:
        self._sampler: Sampler = ExactSampler() if sampler is None else sampler
        self._pools: dict[tuple[Kind, Fraction], _Pool] = {}
        _living.add(self)

    def gaussian(self, sigma: Fraction, size: int) -> IntArray:
        return self._take("gaussian", sigma, size)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        return self._take("laplace", scale, size)

    def geometric_half(self, limit: int) -> int:
        if limit < 0:
            raise ValueError(f"the limit must not be negative: {limit}")
        # Of the integers 1 to 2**(limit + 1) - 1, twice as many have b + 1 bits as have b.
        return limit + 1 - (1 + secrets.randbelow(2 ** (limit + 1) - 1)).bit_length()

    def uniform(self, limit: int, size: int) -> IntArray:
        if not 1 <= limit <= MAX_UNIFORM:
            raise ValueError(f"the limit of a uniform draw must be in 1 to 2**62: {limit}")
        mask = np.uint64(2 ** (limit - 1).bit_length() - 1)
        draws: IntArray = np.empty(0, dtype=np.int64)
        while (missing := _checked_size(size) - draws.size) > 0:
            words = np.frombuffer(os.urandom(8 * missing), dtype=np.uint64) & mask
            draws = np.concatenate([draws, words[words < limit].astype(np.int64)])
        return draws

    def reserve(self, kind: Kind, scale: Fraction, size: int) -> None:
        pool = self._pools.setdefault((kind, _checked_scale(scale)), _Pool())
        if len(pool) + _checked_size(size) > MAX_RESERVED:
            raise ValueError(
                f"{len(pool) + size} draws of one scale are too many to reserve at once"
            )
        if size:
            pool.push(self._sampler(kind, scale, size))

    def discard(self) -> None:
        for pool in self._pools.values():
            pool.wipe()
        self._pools.clear()

    @property
    def waiting(self) -> int:
        """Draws that are reserved and not taken."""
        return sum(map(len, self._pools.values()))

    def _take(self, kind: Kind, scale: Fraction, size: int) -> IntArray:
        pool = self._pools.get((kind, _checked_scale(scale)), _Pool())
        draws = pool.pop(min(_checked_size(size), len(pool)))
        if draws.size < size:
            draws = np.concatenate([draws, self._sampler(kind, scale, size - draws.size)])
        return draws

    def __repr__(self) -> str:
        return "PooledNoise()"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("noise is never pickled nor copied: a draw must be used once")


_living: weakref.WeakSet[PooledNoise] = weakref.WeakSet()


def _discard_all() -> None:
    for noise in list(_living):
        noise.discard()


# Parent and child would otherwise release with the same noise, and the difference would be exact.
os.register_at_fork(after_in_child=_discard_all)


def _floor_root(value: int, power_of_two: int) -> int:
    """Floor of the ``2**power_of_two``-th root, exactly: nested floors of square roots."""
    for _ in range(power_of_two):
        value = math.isqrt(value)
    return value


@lru_cache(maxsize=4096)
def grid_sigma(k: int) -> Fraction:
    """Step ``k`` of the public grid of scales: ``2**(k / 32)`` rounded down to 16 significant bits.

    A dyadic rational and a float's exact value; strictly increasing in ``k``; the same everywhere.

    Raises:
        ValueError: The step lies outside ``[MIN_SCALE, MAX_SCALE]``.
    """
    octave, step = divmod(k, GRID_STEPS)
    significand = _floor_root(
        2 ** (GRID_STEPS * (_GRID_BITS - 1) + step), GRID_STEPS.bit_length() - 1
    )
    sigma = significand * Fraction(2) ** (octave - _GRID_BITS + 1)
    if not MIN_SCALE <= sigma <= MAX_SCALE:
        raise ValueError(f"step {k} of the grid of scales is outside {MIN_SCALE} to {MAX_SCALE}")
    return sigma


def grid_index(sigma_max: float) -> int:
    """The largest ``k`` with ``grid_sigma(k) <= sigma_max``; ``MAX_SCALE``'s where all are smaller.

    Raises:
        ValueError: ``sigma_max`` is not a number, or below ``MIN_SCALE``.
    """
    if not sigma_max >= MIN_SCALE:
        raise ValueError(f"no scale of the grid is as small as {sigma_max}")
    bounded = min(Fraction(sigma_max), MAX_SCALE) if math.isfinite(sigma_max) else MAX_SCALE
    last = GRID_STEPS * (MAX_SCALE.numerator.bit_length() - 1)
    k = min(last, math.floor(GRID_STEPS * math.log2(bounded)) + 1)
    while grid_sigma(k) > bounded:
        k -= 1
    return k
