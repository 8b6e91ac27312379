"""Values that nobody lists: how many are found, and how near their counts are.

    python benchmarks/keys.py [--seed 1 2 3] [--users 10000000] [--keys 1000000]
    python benchmarks/keys.py --daily

The first form is the synthetic workload of DP-SQLP (Zhang et al. 2023, "Differentially Private Stream
Processing at Scale", section 5.1), without servers. Each user sends up to 32 records, each with a key, in one
of 100 micro-batches: their numbers and the keys follow two laws of Zipf and Mandelbrot. A micro-batch is a
phase, a user a person for life, and one window of 100 phases has half of each line. Rows are read, chosen and
sealed as a worker does it, and noise is exact. Errors are those of all keys, against the records of each:
what is not found counts as 0. Beside ours are the figures that the paper and a public second run
(confidential-storm) state. It needs 12 GiB and some minutes for each seed.

The second form goes through Kafka and Redis: pages of a site, 20,000 rows a day for 128 days. 70% of the rows
visit 3,000 old pages, 20% those that came since, 30 new ones a day, and 10% say what no other row says.
"""

from __future__ import annotations

import argparse
import gc
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table
from system import running_system
from workloads import console, verdict

from stream_dp.core.budget.accountant import Budget
from stream_dp.core.budget.parameters import Privacy, Unit
from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.core.residual.keys.found_values import FindSettings, FoundValues
from stream_dp.core.residual.keys.key_look import KeyRelease
from stream_dp.core.rows.attributes import Category
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.lifetime_slots import allowances_of_slots
from stream_dp.core.rows.person_slots import Persons
from stream_dp.core.rows.universe import Universe
from stream_dp.messages import CategoryAttribute
from stream_dp.pipeline.rows.person_allowance import Used

Numbers: TypeAlias = npt.NDArray[np.integer[Any]]

# ---------------------------------------------------------------- DP-SQLP's workload

BATCHES: Final = 100
MOST_RECORDS: Final = 32
UNIT: Final = Unit(rows_per_phase=2, phases=12, lifetime=True)
OF_USERS: Final = Privacy(6.0, 1e-9, UNIT)
SHARE: Final = Fraction(1, 2)
UNIVERSE: Final = Universe((Category("key", (), spare=65_000, finds=True),))


@dataclass(frozen=True)
class Found:
    """How many keys a method finds, and the errors of their counts."""

    method: str
    keys: int
    largest: float
    total: float
    squares: float


STATED: Final = (
    Found("DP-SQLP, the paper", 28_338, 1_391, 17.7e6, 50_039),
    Found("DP-SQLP, best second run", 32_146, 1_094, 16.9e6, 44_538),
)


def _zipf_mandelbrot(n: int, shift: float, power: float) -> npt.NDArray[np.float64]:
    """The distribution function of ranks 1 to n, shape (n,)."""
    ends: npt.NDArray[np.float64] = np.cumsum((np.arange(1, n + 1) + shift) ** -power)
    ends /= ends[-1]
    return ends


def records(seed: int, users: int, keys: int) -> tuple[Numbers, Iterator[tuple[Numbers, Numbers]]]:
    """How many records each key has in all, and the users and keys of one micro-batch after the other."""
    draw = np.random.default_rng(seed)
    numbers = _zipf_mandelbrot(100_000, 26.0, 6.738)
    each = np.minimum(np.searchsorted(numbers, draw.random(users)) + 1, MOST_RECORDS)
    user = np.repeat(np.arange(users, dtype=np.int32), each)
    ends = _zipf_mandelbrot(keys, 1000.0, 1.4)
    key = np.concatenate(
        [
            np.searchsorted(ends, draw.random(len(part))).astype(np.int32)
            for part in np.array_split(user, 50)
        ]
    )
    batch = draw.integers(0, BATCHES, len(user), dtype=np.uint8)
    order = np.argsort(batch, kind="stable")
    starts = np.searchsorted(batch[order], np.arange(1, BATCHES))
    parts = ((user[places], key[places]) for places in np.split(order, starts))
    return np.bincount(key, minlength=keys), parts


class Life:
    """The phases of a data set whose persons count for life, without a worker."""

    def __init__(self) -> None:
        self.data = Blocks(UNIVERSE)
        self.counted = 0
        self._used = Used.by(np.empty((0, 12), np.uint8), np.empty(0, np.int64))

    def seal(self, phase: int, users: Numbers, keys: Numbers) -> None:
        persons = Persons("user", bytes(32), f"batch {phase}")
        rows = UNIVERSE.encode_columns({"key": keys, "user": users}, persons)
        assert rows.whose is not None, "rows of persons say whose they are"
        allowed = allowances_of_slots(rows.whose.digests, self._used.of(rows.whose.digests), UNIT)
        self._used = self._used.and_by(Used.by(rows.whose.digests, allowed))
        marks = rows.whose.counted(allowed)
        self.counted += int(marks.sum())
        self.data.append(Block.seal(UNIVERSE, rows, counted=marks))


def found_of_users(seed: int, users: int, keys: int, out: Console) -> Found:
    """What is found in one run."""
    gc.collect()  # what an earlier run held is gone before this one begins
    truth, batches = records(seed, users, keys)
    life = Life()
    finds = FoundValues(
        UNIVERSE,
        Budget.of(OF_USERS, approximate=True),
        {0: FindSettings(SHARE, (BATCHES,))},
    )
    for phase, (user, key) in enumerate(
        track(batches, f"seed {seed}: phases", BATCHES, console=out, transient=True)
    ):
        life.seal(phase, user, key)
    rows = int(truth.sum())
    (look,) = finds.looks(BATCHES - 1, lambda _: rows, erased=0)
    with out.status(f"seed {seed}: one look at {rows:,} rows"):
        noise = PooledNoise()
        release = look.take(noise, life.data)
    (level,) = look.levels
    out.print(
        f"seed {seed}: {rows:,} records, of which {life.counted / rows:.2%} count; "
        f"{np.count_nonzero(truth):,} keys occur; "
        f"noise {float(level.sigma):.1f}, named from {level.threshold} on"
    )
    return _scored(f"one window, half of each line, seed {seed}", release, truth)


def _scored(method: str, release: KeyRelease, truth: Numbers) -> Found:
    (window,) = release.windows
    told = np.zeros(len(truth), dtype=np.int64)
    for text, count in window.counts:
        told[int(text)] = max(count, 0)
    errors = np.abs(told - truth).astype(float)
    return Found(
        method,
        len(window.counts),
        float(errors.max()),
        float(errors.sum()),
        math.sqrt(float((errors**2).sum())),
    )


def of_users(seeds: list[int], users: int, keys: int, out: Console) -> None:
    ours = [found_of_users(seed, users, keys, out) for seed in seeds]
    privacy = f"epsilon {OF_USERS.epsilon:g}, delta {OF_USERS.delta:g}"
    table = Table("method", title=f"DP-SQLP's workload, {users:,} users, {keys:,} keys ({privacy})")
    for name in ("keys", "largest error", "errors together", "root of squares"):
        table.add_column(name, justify="right")
    stated = STATED if (users, keys) == (10_000_000, 1_000_000) else ()
    for one in (*ours, *stated):
        numbers = (one.keys, one.largest, one.total, one.squares)
        table.add_row(one.method, *(f"{number:,.0f}" for number in numbers))
    out.print(table)
    if stated:
        out.print(verdict("fewest keys", min(one.keys for one in ours), least=64_000))
        out.print(verdict("largest error", max(one.largest for one in ours), most=250))
        out.print(verdict("errors together", max(one.total for one in ours), most=8.8e6))


# ---------------------------------------------------------------- pages, day by day

DAYS: Final = 128
ROWS_A_DAY: Final = 20_000
OLD: Final = 3_000
NEW_A_DAY: Final = 30
PAGES: Final = {
    "version": 1,
    "dataset": "visits",
    "attributes": [
        {
            "name": "page",
            "type": "category",
            "find": {"most": 5_000, "windows": [1, 8, 64], "share": 0.1},
        },
        {"name": "bot", "type": "boolean"},
    ],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.05, "failure_probability": 0.01},
    "phase": {"min_rows": ROWS_A_DAY},
}


def days(seed: int) -> Iterator[list[str]]:
    """The pages that are visited on one day after the other; a page of one row alone begins with "junk"."""
    draw = np.random.default_rng(seed)
    old = np.arange(1, OLD + 1) ** -1.05
    fresh = 1.0 / np.arange(1, NEW_A_DAY + 1)
    for day in range(DAYS):
        ages = np.arange(day, -1, -1)
        new = np.concatenate([fresh * 0.5 ** (age / 6) for age in ages])
        shares = np.concatenate([0.7 * old / old.sum(), 0.2 * new / new.sum(), [0.1]])
        counts = draw.multinomial(ROWS_A_DAY, shares)
        names = [f"/old/{n}" for n in range(OLD)]
        names += [f"/new/{n // NEW_A_DAY}/{n % NEW_A_DAY}" for n in range(len(new))]
        visits = np.repeat(names, counts[:-1]).tolist()
        visits += [f"junk-{day}-{n}" for n in range(counts[-1])]
        draw.shuffle(visits)
        yield visits


def daily(out: Console) -> None:
    told: dict[str, int] = {}
    visits: list[list[str]] = []
    with running_system(out) as system, system.client() as client:
        client.define(PAGES)
        with Progress(console=out, transient=True) as progress:
            task = progress.add_task("days through Kafka", total=DAYS)
            for day, pages in enumerate(days(7)):
                columns: dict[str, list[Any]] = {"page": pages, "bot": [False] * len(pages)}
                event = client.send("visits", columns=columns, batch_id=f"{day:03}", timeout_s=120)
                assert event.phase == day + 1, "each day opens a phase"
                client.sql("SELECT COUNT(*) FROM visits")  # waits for its looks
                (page, _) = client.definition("visits").attributes
                assert isinstance(page, CategoryAttribute)
                told |= {value: day for value in page.values if value not in told}
                visits.append(pages)
                progress.advance(task)
    last = range(DAYS - 14, DAYS)
    named = [told.get(page, DAYS) <= day for day in last for page in visits[day]]
    junk = sum(value.startswith("junk") for value in told)
    out.print(f"{len(told):,} pages were found, {junk} of them said by one row alone")
    out.print(
        f"{sum(named) / len(named):.0%} of the rows of the last 14 days have a page with a name"
    )
    out.print(verdict("pages found", len(told), least=700))
    out.print(verdict("pages of one row", junk, most=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--users", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--daily", action="store_true", help="pages, day by day, through Kafka")
    arguments = parser.parse_args()
    out = console()
    if arguments.daily:
        daily(out)
    else:
        of_users(arguments.seed, arguments.users, arguments.keys, out)


if __name__ == "__main__":
    main()
