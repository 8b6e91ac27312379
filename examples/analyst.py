"""Asks in Python, with data frames (needs pandas). First: `stream-dp up`.

python examples/analyst.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from stream_dp.client import Client, Query
from stream_dp.messages import CountAnswer, QuantileAnswer, QuotedAnswer

DEFINITION = {
    "dataset": "visits",
    "attributes": [
        {"name": "ward", "type": "category", "values": ["north", "south", "west"]},
        {"name": "minutes", "type": "number", "edges": [15, 30, 60, 120], "missing": True},
        {"name": "first", "type": "boolean"},
    ],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.02, "failure_probability": 0.01},
    "phase": {"min_rows": 20_000},
}


def visits(month: int, n_rows: int = 25_000) -> pd.DataFrame:
    """Visits that never took place."""
    rng = np.random.default_rng(month)
    minutes = rng.gamma(2.0, 25.0, n_rows)
    return pd.DataFrame(
        {
            "visitor": np.arange(n_rows),  # not declared, so it never leaves this process
            "ward": rng.choice(["north", "south", "west", "east"], n_rows, p=[0.4, 0.3, 0.2, 0.1]),
            "minutes": np.where(rng.random(n_rows) < 0.05, np.nan, minutes),
            "first": rng.random(n_rows) < 0.3,
        }
    )


def main() -> None:
    # Finds what `stream-dp up` started; servers of your own: STREAM_DP_BOOTSTRAP_SERVERS, or an argument.
    with Client(analyst="ann") as client:
        client.define(DEFINITION)
        for month in (1, 2):
            # An id of your own makes sending safe to repeat: these rows count once.
            event = client.send("visits", frame=visits(month), batch_id=f"2026-{month:02}")
            print(f"month {month}: {event.rows:,} rows, phase {event.phase} is open")

        answer = client.ask("visits", "minutes >= 60 AND NOT first", query_id="long-returning")
        assert isinstance(answer, CountAnswer), answer
        assert answer.error_bar is not None
        print(f"long returning visits: {answer.value:.1%} ± {answer.error_bar:.1%} ({answer.path})")

        print(client.table("visits", "SELECT ward, COUNT(*) GROUP BY ward"))

        wards = ["north", "south", "west", "other"]
        asked = [Query(f"ward = '{ward}' AND minutes < 15", last_phases=1) for ward in wards]
        for ward, reply in zip(wards, client.ask_many("visits", asked), strict=True):
            print(f"short visits in {ward}: {getattr(reply, 'count', reply)}")

        most = client.ask("visits", Query.quantile("minutes", 0.9))
        assert isinstance(most, QuantileAnswer), most
        assert most.lies_in is not None
        print(
            f"the longest tenth of the visits begins at {most.lies_in.label} minutes ({most.path})"
        )

        quote = client.quote("visits", "first AND minutes >= 120 AND ward = 'west'")
        assert isinstance(quote, QuotedAnswer), quote
        cost = quote.privacy_loss.share
        print(f"one more would be {quote.difficulty}, and cost {cost:.2%} of a phase's budget")


if __name__ == "__main__":
    main()
