"""The difference of two answers, as far as the bars of both allow: docs/proofs, Theorem 28."""

from __future__ import annotations

from stream_dp.core.outcome import Answered, Difference, Differences, Path, TableAnswered

_Ends = tuple[float, float] | None


def difference_of(
    first: Answered | TableAnswered, second: Answered | TableAnswered, minus: range
) -> Differences:
    """Returns the difference of shares and of counts, for windows whose rows that count are not known.

    Args:
        first: The counts in the window, with what is known of the rows that count.
        second: The same counts in the window that is taken away.
        minus: The blocks of that window.
    """
    sides = [one.cells if isinstance(one, TableAnswered) else (one,) for one in (first, second)]
    (one, *_), (other, *_) = sides
    paths = first.path, second.path
    looked = next((path for path in (Path.UNVERIFIED, Path.MEASURED) if path in paths), None)
    return Differences(
        tuple(_of_cells(*cells) for cells in zip(*sides, strict=True)),
        (one.n, other.n),
        minus,
        max(0.0, one.confidence + other.confidence - 1.0),
        looked or Path.CERTIFIED,
    )


def _of_cells(first: Answered, second: Answered) -> Difference:
    shares, ends = zip(*map(_share, (first, second)), strict=True)
    bars = [None if one.error_bar is None else one.error_bar * one.n for one in (first, second)]
    rows = [_within(one.count, bar, one.n) for one, bar in zip((first, second), bars, strict=True)]
    share, count = shares[0] - shares[1], first.count - second.count
    return Difference(share, _bar(share, *ends), count, _bar(count, *rows), max(shares))


def _share(answer: Answered) -> tuple[float, _Ends]:
    """The share of the rows that count, and its ends."""
    among = answer.among
    assert among is not None, "the rows that count are not known"
    share = 0.0 if among.share is None else among.share
    return share, None if among.share is None else _within(share, among.share_bar, 1.0)


def _within(value: float, bar: float | None, most: float) -> _Ends:
    return None if bar is None else (max(0.0, value - bar), min(most, value + bar))


def _bar(value: float, first: _Ends, second: _Ends) -> float | None:
    """The half width around a difference that reaches to its least and to its largest value."""
    if first is None or second is None:
        return None
    low, high = first[0] - second[1], first[1] - second[0]
    return max(high - value, value - low)
