"""The driver on a worker of this process: no broker, no store, and real answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from stream_dp.client import Client, Rejection
from stream_dp.errors import InvalidInput
from stream_dp.messages import Answer, Definition, DimensionTable, Rejected, read_answer
from tests.pipeline.trail import Sent
from tests.pipeline.world import Process, World


class WorldClient(Client):
    """A client of a worker in this process, which answers at once."""

    def __init__(self) -> None:
        self.analyst = "ann"
        self.closed = False
        self.public = DimensionTable(
            dimension="carriers",
            key="code",
            columns=("code", "region", "planes"),
            types=("text", "text", "integer"),
            rows=(("AA", "west", 900), ("UA", "east", None)),
        )
        self.asked: list[Mapping[str, Any]] = []
        self._loop = asyncio.new_event_loop()
        self._world = World()
        self._process: Process | None = None
        self.define("flights")
        self._run(lambda world: world.cells("flights", "first"))

    def define(self, name: str, **changes: Any) -> None:  # type: ignore[override]
        """Defines a data set; what is not said is as in ``world.definition``."""
        self._run(lambda world: world.define(name, **changes))

    def close(self) -> None:
        self.closed = True

    def end(self) -> None:
        """Ends the worker."""
        assert self._process is not None
        self._loop.run_until_complete(self._process.kill())
        self._loop.close()

    def catalog(self) -> dict[str, Definition]:
        found: dict[str, Definition] = {}
        for one in self._world.trail:
            if isinstance(one, Sent) and one.outgoing.role == "catalog":
                found.pop(one.outgoing.key, None)
                if one.outgoing.value:
                    found[one.outgoing.key] = Definition.read(json.loads(one.outgoing.value))
        return found

    def retire(self, dataset: str, **_: Any) -> None:
        self._run(lambda world: world.produce("datasets", None, key=dataset))

    def dimensions(self) -> dict[str, DimensionTable]:
        return {self.public.dimension: self.public}

    def definition(self, dataset: str) -> Definition:
        if dataset not in (known := self.catalog()):
            raise InvalidInput("dataset", f"there is no data set {dataset!r}", "choose another")
        return known[dataset]

    def _ask_items(self, dataset: str, items: Sequence[Mapping[str, Any]], *more: Any) -> Any:
        self.asked += items
        at_most = {"at_most": more[0]} if more and more[0] is not None else {}
        sent = self._run(lambda world: world.ask_many(dataset, items, analyst="ann", **at_most))
        return [self._reply(sent, item["query_id"]) for item in items]

    def _reply(self, sent: Sequence[Sent], query_id: str) -> Answer | Rejection:
        for one in sent:
            if json.loads(one.outgoing.value).get("query_id") == query_id:
                if one.outgoing.role == "rejected":
                    return Rejection(Rejected.model_validate_json(one.outgoing.value))
                return read_answer(one.outgoing.value)
        raise AssertionError(f"no reply to {query_id}")

    def _quote_items(self, dataset: str, items: Sequence[Mapping[str, Any]], _: float) -> Any:
        bundle = {"quote": "together", "query_id": "price", "analyst": "ann"}
        sent = self._run(lambda world: world.ask_many(dataset, items, **bundle))
        return self._reply(sent, "price")

    def _prepared(self, dataset: str, item: Mapping[str, Any], timeout_s: float) -> Any:
        (reply,) = self._ask_items(dataset, [item])

        class Done:
            def wait(self) -> Answer:
                if isinstance(reply, Rejection):
                    raise reply
                return reply

        return Done()

    def _run(self, produce: Callable[[World], object]) -> list[Sent]:
        before = len(self._world.trail)

        async def run() -> None:
            if self._process is None:
                self._process = self._world.process()
                await self._process.assign()
            produce(self._world)
            await self._process.run()

        self._loop.run_until_complete(run())
        return [one for one in self._world.trail[before:] if isinstance(one, Sent)]


@pytest.fixture
def client() -> Iterator[WorldClient]:
    """A client with the data set ``flights``, in its first phase of 21,000 rows."""
    made = WorldClient()
    yield made
    made.end()
