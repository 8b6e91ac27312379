"""Writes sales.csv: 300,000 sales of two months, of a company that does not exist, to try tools with.

python examples/sales.py > sales.csv
"""

from __future__ import annotations

import csv
import math
import random
import sys
from datetime import date, timedelta

draw = random.Random(2026)  # noqa: S311 - made-up sales need no secrets
days = [date(2026, 9, 1) + timedelta(days=number) for number in range(61)]
busy = [1 + number / 60 + 0.3 * math.sin(number * math.tau / 7) for number in range(61)]
sales = csv.writer(sys.stdout)
sales.writerow(["sold", "country", "channel", "amount", "paid"])
for day in draw.choices(days, busy, k=300_000):
    country = draw.choices(["BE", "DE", "FR", "IT"], [2, 3, 4, 1])[0]
    channel = draw.choices(["shop", "web", "web app"], [5, 3, 2])[0]
    amount = round(min(draw.lognormvariate(3.2, 0.7), 200), 2)
    sales.writerow([day, country, channel, amount, draw.random() < 0.6])
