"""Writes people.csv: 60,000 people who do not exist, to try the README with.

python examples/people.py > people.csv
"""

from __future__ import annotations

import csv
import random
import sys

draw = random.Random(2026)  # noqa: S311 - made-up people need no secrets
people = csv.writer(sys.stdout)
people.writerow(["name", "city", "age"])
for number in range(60_000):
    city = draw.choices(["Bonn", "Graz", "Lyon", "Oslo"], [4, 3, 2, 1])[0]
    age = "" if draw.random() < 0.05 else int(draw.triangular(0, 100, 35))
    people.writerow([f"person {number}", city, age])
