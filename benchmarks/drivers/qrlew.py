"""Qrlew, which rewrites SQL; a PostgreSQL server of the driver's own runs what it writes.

Every rewritten query comes with a ``DpEvent``, which says what noise it has. The ledger of the driver adds
up the zCDP of these events. Phases are rows appended to one table, and a window is a condition on the phase.
"""

from __future__ import annotations

import atexit
import math
import shutil
import tempfile
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import product
from typing import Any

from drivers.protocol import About, Ledger, Peer, Query, Stream, Unable, main

pgserver: Any = import_module("pgserver")
pyqrlew: Any = import_module("pyqrlew")
pd: Any = import_module("pandas")
sqlalchemy: Any = import_module("sqlalchemy")

DELTA = 1e-13
"""Delta of one query: it only tells Qrlew how to come from epsilon to the scale."""


class Rewritten:
    """One table with a column for the phase; declared values make the keys of GROUP BY public."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._ledger = Ledger(stream.promise.rho)
        self._dataset: Any = None
        self._n_rows = 0
        folder = tempfile.mkdtemp()  # short, as the path of a socket has to be
        server = pgserver.get_server(folder)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(server.cleanup)
        uri = server.get_uri().replace("postgresql://", "postgresql+psycopg2://")
        # Without this the server joins some rewritten queries row by row, and takes minutes for them.
        options = {"options": "-c enable_nestloop=off -c statement_timeout=60000"}
        self._engine = sqlalchemy.create_engine(uri, connect_args=options)

    def open_phase(self, phase: int) -> None:
        self._ledger.open_phase()
        frame = pd.DataFrame(self._stream.rows(range(phase, phase + 1))).astype(str)
        frame.insert(0, "phase", phase)
        frame.insert(0, "id", [str(self._n_rows + i) for i in range(len(frame))])
        self._n_rows += len(frame)
        frame.to_sql("t", self._engine, index=False, if_exists="append")
        with self._engine.begin() as connection:
            connection.execute(sqlalchemy.text("ANALYZE t"))
        if self._dataset is None:
            self._dataset = self._declared()

    def answer(self, query: Query) -> Sequence[float]:
        window = query.window
        sigma = self._stream.promise.sigma(self._stream.n_rows(window))
        epsilon = math.sqrt(2.0 * math.log(1.25 / DELTA)) / sigma  # from which Qrlew comes to sigma
        rewritten = self._dataset.relation(_sql(query)).rewrite_with_differential_privacy(
            self._dataset,
            [("t", [], "id")],
            {"epsilon": epsilon, "delta": DELTA},
            1.0,
        )
        event = rewritten.dp_event().to_dict()
        if event["class_name"] != "GaussianDpEvent":
            raise Unable("it thresholds the keys, although they are declared")
        self._ledger.charge(window, 0.5 / event["noise_multiplier"] ** 2)
        with self._engine.connect() as connection:
            rows = connection.execute(sqlalchemy.text(rewritten.relation().to_query())).all()
        cells = [range(self._stream.attribute(name).size) for name in query.by]
        counts = dict.fromkeys(product(*cells), 0.0)
        for *key, count in rows:
            counts[tuple(map(int, key))] = float(count)
        return list(counts.values())

    def spent(self) -> float:
        return self._ledger.spent()

    def _declared(self) -> Any:
        """The dataset, with what is public: the values of every column, and one row for each id."""
        dataset = pyqrlew.Dataset.from_database("d", self._engine, "public")
        dataset = dataset.with_constraint("public", "t", "id", "_UNIQUE_")
        dataset = dataset.with_range("public", "t", "phase", 0, len(self._stream.phases))
        for attribute in self._stream.attributes:
            values = [str(cell) for cell in range(attribute.size)]
            dataset = dataset.with_possible_values("public", "t", attribute.name, values)
        return dataset


def _sql(query: Query) -> str:
    conditions = [f"phase >= {query.first}", f"phase <= {query.phase}"]
    for name, cells in query.where.items():
        conditions.append(f"{name} IN ({', '.join(repr(str(cell)) for cell in cells)})")
    by = ", ".join(query.by)
    keys, grouped = (f"{by}, ", f" GROUP BY {by}") if by else ("", "")
    return f"SELECT {keys}COUNT(*) AS n FROM public.t WHERE {' AND '.join(conditions)}{grouped}"


def make(stream: Stream, _: str) -> tuple[About, Peer]:
    versions = {"pyqrlew": version("pyqrlew")}
    return About("Qrlew", versions, "zCDP of its events, ledger of the driver"), Rewritten(stream)


if __name__ == "__main__":
    main(make)
