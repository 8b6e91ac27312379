"""What the fault tests share: a data set's life, and a referee that reads what the topics say in the end."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from stream_dp.core.budget.accountant import UNITS
from stream_dp.errors import StreamDPError
from stream_dp.state import ledger
from stream_dp.state.schema import StateTable
from tests.durable import Durable
from tests.waiting import PATIENCE_S

ROWS = 21_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """kafka-python leaves sockets to brokers that died to the garbage collector, which finds them here."""
    here = Path(__file__).parent  # the items are those of the whole run
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(autouse=True)
def _left_sockets() -> Iterator[None]:
    """None is left for a later test to find."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _definition(dataset: str) -> dict[str, Any]:
    """Hardly anything is measured when a phase opens, so every new query has to look."""
    return {
        "version": 1,
        "dataset": dataset,
        "attributes": [
            {"name": "carrier", "type": "category", "values": ["AA", "UA"]},
            {"name": "delay", "type": "number", "edges": [0, 10, 30], "integer": True},
        ],
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "accuracy": {"error": 0.02, "failure_probability": 0.01},
        "phase": {"min_rows": 20_000},
        "mechanism": {"base_share": 0.0005},
    }


class Life:
    """What was done with some data sets, and whether all of it had exactly one outcome."""

    queries = ("carrier = 'AA'", "delay >= 30", "carrier = 'AA' OR delay >= 10", "NOT delay >= 0")

    def __init__(self, deployment: Any, names: Collection[str], **changes: Any) -> None:
        self.deployment = deployment
        self.names = tuple(names)
        self.changes = changes
        self.phases = 0

    def define(self, client: Any) -> None:
        for name in self.names:
            client.define(_definition(name) | self.changes, timeout_s=PATIENCE_S)

    def phase(self, client: Any, number: int | None = None) -> None:
        """A batch that opens a phase and all queries, for each data set; a known number repeats one."""
        self.phases = max(self.phases, number or self.phases + 1)
        number = number or self.phases
        cells = [
            {"carrier": "AA", "delay": 5, "count": 12_000},
            {"carrier": "UA", "delay": 45, "count": 9_000},
        ]
        for name in self.names:
            client.send(name, cells=cells, batch_id=f"batch-{number}", timeout_s=PATIENCE_S)
            for n, query in enumerate(self.queries):
                client.ask(name, query, query_id=f"{number}-{n}", timeout_s=PATIENCE_S)

    def complaints(self) -> list[str]:
        """What is wrong, from what the topics say in the end, and from that alone."""
        said = []
        durable = self.deployment.durable()
        answers: dict[tuple[str, str], set[bytes]] = {}
        for record in self.deployment.read("answers"):
            answer = record.key.decode(), dict(record.headers)["query_id"].decode()
            answers.setdefault(answer, set()).add(record.value)
        numbers = range(1, self.phases + 1)
        asked = {
            (name, f"{p}-{n}")
            for name in self.names
            for p in numbers
            for n in range(len(self.queries))
        }
        if answers.keys() != asked:
            said.append(f"answers to {answers.keys() ^ asked} are lacking or too many")
        said += [f"{name} has several answers" for name, some in answers.items() if len(some) > 1]
        replies = [json.loads(value) for values in answers.values() for value in values]
        events = [
            json.loads(e) for e in {record.value for record in self.deployment.read("events")}
        ]
        chains = self._chains()
        for name in self.names:
            mine = [event for event in events if event["dataset"] == name]
            said += self._of_data_set(name, mine, chains[name], durable)
            measured = [r for r in replies if r["dataset"] == name and r["path"] == "measured"]
            spent = sum(durable.spent(name).values())
            paid = sum(reply["privacy_loss"]["share"] for reply in measured) * UNITS
            if not 0 < paid <= spent * (1 + 1e-9):
                said.append(f"{name} released answers for {paid} and charged {spent}")
        if rejected := self.deployment.replies("rejected"):
            said.append(f"rejected: {rejected}")
        return said

    def _of_data_set(
        self, name: str, events: list[Any], chain: list[bytes], durable: Durable
    ) -> list[str]:
        said = []
        numbers = range(1, self.phases + 1)
        taken = sorted(e["batch_id"] for e in events if e["event"] == "batch_accepted")
        opened = sorted((e["phase"], e["rows"]) for e in events if e["event"] == "phase_opened")
        if taken != sorted(f"batch-{p}" for p in numbers) or opened != [(p, ROWS) for p in numbers]:
            said.append(f"{name} took {taken} and opened {opened}")
        ledger.Chain(name, chain)
        spent = durable.spent(name)
        charged = dict.fromkeys(spent, 0)
        for entry in chain:
            for block, rho, delta in json.loads(entry).get("charges", []):
                charged[f"{block}:rho"] += rho
                charged[f"{block}:delta"] += delta
        if charged != spent:
            said.append(f"{name} has spent {spent} and published {charged}")
        if name in durable.unsent:
            said.append(f"something of {name} has not left")
        if durable.table(name, StateTable.INTENT):
            said.append(f"{name} has looks that nobody settled")
        return said

    def _chains(self) -> Mapping[str, list[bytes]]:
        """The published ledgers, each entry once, in order."""
        chains: dict[str, list[bytes]] = {name: [] for name in self.names}
        for record in self.deployment.read("ledger"):
            chain = chains[record.key.decode()]
            if record.value not in chain:
                chain.append(record.value)
        return chains

    def wait_until_released(self, worker: Any) -> None:
        """Waits until all has left, and the journal says so."""
        worker.until(lambda: self._holds(lambda durable: not durable.unsent))

    def wait_until_followed(self, worker: Any) -> None:
        """Waits until Redis has what the journal has."""
        worker.until(
            lambda: self._holds(
                lambda durable: (
                    {name: durable.states[name] for name in self.names}
                    == self.deployment.in_redis(*self.names)
                )
            )
        )

    def _holds(self, condition: Callable[[Durable], bool]) -> bool:
        """Whether a condition holds of the journal. It does not while a server is away, or entries go."""
        try:
            return condition(self.deployment.durable())
        except StreamDPError:
            return False


@pytest.fixture
def make_life() -> Callable[..., Life]:
    """``make_life(deployment, names)``, and changes of the definitions if there are any"""
    return Life
