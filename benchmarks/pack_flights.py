"""Packs nycflights13 (CC0) into the compact sample that the package ships.

python benchmarks/pack_flights.py nycflights13.csv.gz
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

import numpy as np

TARGET = Path(__file__).parent.parent / "stream_dp" / "samples" / "flights.npz"


def main(source: Path) -> None:
    with gzip.open(source, "rt", newline="") as lines:
        rows = list(csv.DictReader(lines))
    carriers = sorted({row["carrier"] for row in rows})
    origins = sorted({row["origin"] for row in rows})
    missing = np.iinfo(np.int16).min
    np.savez_compressed(
        TARGET,
        carriers=np.array(carriers),
        origins=np.array(origins),
        month=np.array([int(row["month"]) for row in rows], np.uint8),
        day=np.array([int(row["day"]) for row in rows], np.uint8),
        carrier=np.array([carriers.index(row["carrier"]) for row in rows], np.uint8),
        origin=np.array([origins.index(row["origin"]) for row in rows], np.uint8),
        hour=np.array([int(row["sched_dep_time"]) // 100 for row in rows], np.uint8),
        distance=np.array([int(row["distance"]) for row in rows], np.int16),
        arr_delay=np.array(
            [int(row["arr_delay"]) if row["arr_delay"] else missing for row in rows], np.int16
        ),
    )
    print(f"{TARGET.name}: {len(rows):,} rows, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
