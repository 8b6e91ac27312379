"""Exact choices at random, made of uniform integers: no float takes part, and nothing is rounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from stream_dp.core.randomness.noise_sources import MAX_UNIFORM, IntArray, NoiseSource

_WORD: Final = MAX_UNIFORM.bit_length() - 1


def permutation(noise: NoiseSource, size: int) -> IntArray:
    """The integers 0 to ``size - 1`` in an order of which each is as likely as any other."""
    while True:
        keys = noise.uniform(MAX_UNIFORM, size)
        order = np.argsort(keys)
        # Equal keys would favour an order; they hardly ever come, and then all keys are drawn again.
        if size < 2 or np.diff(keys[order]).all():
            return order.astype(np.int64)


def uniform_below(noise: NoiseSource, limit: int) -> int:
    """An integer of any size from 0 to ``limit - 1``, each as likely as any other."""
    bits = (limit - 1).bit_length()
    while True:
        number = _random_bits(noise, bits)
        if number < limit:
            return number


def choose(noise: NoiseSource, bounds: Callable[[int], tuple[Sequence[int], Sequence[int]]]) -> int:
    """An index with probability exactly proportional to its weight, which may be irrational.

    A uniform number in [0, 1) is looked up among the cumulative shares. Of both as many bits are made as tell
    where it lies; when they leave it open, more are.

    Args:
        noise: The source of randomness.
        bounds: ``bounds(precision)``: integers at most and at least ``2^precision`` times the weights, in any
            unit of weight, closer to each other the larger ``precision`` is.
    """
    precision, number = 2 * _WORD, _random_bits(noise, 2 * _WORD)
    while True:
        index = _place(number, precision, *bounds(precision))
        if index is not None:
            return index
        number = number << _WORD | _random_bits(noise, _WORD)
        precision += _WORD


def _place(number: int, bits: int, low: Sequence[int], high: Sequence[int]) -> int | None:
    """The index whose share surely holds all of ``[number, number + 1) / 2^bits``; None if that is open.

    A cumulative share is largest where the weights up to it are high and those behind it low.
    """
    low_up_to, high_up_to = 0, 0
    low_after, high_after = sum(low), sum(high)
    for index, (least, most) in enumerate(zip(low, high, strict=True)):
        low_up_to, high_up_to = low_up_to + least, high_up_to + most
        low_after, high_after = low_after - least, high_after - most
        if (number + 1) * (low_up_to + high_after) <= low_up_to << bits:
            return index
        if number * (high_up_to + low_after) < high_up_to << bits:
            return None
    return None


def _random_bits(noise: NoiseSource, bits: int) -> int:
    words = -(-bits // _WORD)
    number = 0
    for word in noise.uniform(MAX_UNIFORM, words).tolist():
        number = number << _WORD | word
    return number >> (words * _WORD - bits)
