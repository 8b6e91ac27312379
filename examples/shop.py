"""Writes two weeks of orders of a shop that does not exist, one file a day, into the folder shop.

python examples/shop.py
"""

from __future__ import annotations

import csv
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path

draw = random.Random(2026)  # noqa: S311 - made-up orders need no secrets
BERLIN = timezone(timedelta(hours=1))
folder = Path("shop")
folder.mkdir(exist_ok=True)
for number in range(14):
    day = datetime(2026, 11, 1, tzinfo=BERLIN) + timedelta(days=number)
    with (folder / f"{day:%Y-%m-%d}.csv").open("w", newline="") as file:
        orders = csv.writer(file)
        orders.writerow(["order_id", "ordered_at", "country", "amount", "status"])
        returned = 0.3 if number == 9 else 0.06  # a bad batch was delivered
        for order in range(draw.randint(3_800, 4_600)):
            ordered_at = day + timedelta(minutes=int(draw.triangular(0, 1439, 1_140)))
            country = draw.choices(["DE", "FR", "IT", "SE"], [5, 3, 2, 1])[0]
            amount = round(min(draw.lognormvariate(3.6, 0.8), 2_000), 2)
            status = draw.choices(["paid", "open", "returned"], [0.8, 0.2, returned])[0]
            orders.writerow(
                [f"{day:%m%d}-{order}", ordered_at.isoformat(), country, amount, status]
            )
