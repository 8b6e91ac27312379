"""What all connections share: the client of Kafka, the facts, the catalogs, plans and answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from sqlglot import exp

from stream_dp import sql
from stream_dp.client import AsyncClient
from stream_dp.client.asked_queries import schema_in
from stream_dp.client.asked_statements import as_joined
from stream_dp.errors import ServerUnavailable, StreamDPError
from stream_dp.gateway.catalogs.catalog_process import CatalogProcess
from stream_dp.gateway.catalogs.catalog_tables import CatalogTable
from stream_dp.gateway.catalogs.column_names import column_name
from stream_dp.gateway.protocol.sql_fault import SqlFault
from stream_dp.gateway.protocol.statement_result import StatementResult
from stream_dp.gateway.protocol.statement_texts import tree_of
from stream_dp.gateway.published_facts import FactsReader, PublishedFacts
from stream_dp.gateway.shared_answers import Answers, SharedAnswers, WaitingRooms, keep_latest
from stream_dp.gateway.statement_rows import rows_of
from stream_dp.messages import Definition, Event
from stream_dp.sql import StatementPlan

_log = logging.getLogger(__name__)

_PLANS: Final = 1_000
_RESULTS: Final = 1_000
_VIEWS: Final = 32
_MOST_VALUES: Final = 20_000
_RETRY_S: Final = 2.0


class Deployment:
    """The data sets behind one gateway.

    Args:
        connect: A function that makes a client, which is not yet connected.

    Attributes:
        rooms: How much may go on at a time.
        answers: The answers.
        catalogs: The process of the catalogs.
    """

    def __init__(self, connect: Callable[[], AsyncClient]) -> None:
        self._connect = connect
        self._opened: tuple[AsyncClient, FactsReader] | None = None
        self._following: asyncio.Task[None] | None = None
        self._plans: OrderedDict[tuple[int, str], tuple[str, StatementPlan]] = OrderedDict()
        self._tables: OrderedDict[tuple[int, frozenset[str] | None], tuple[CatalogTable, ...]] = (
            OrderedDict()
        )
        self._results: OrderedDict[
            tuple[str, bool], tuple[Answers, StatementPlan, StatementResult]
        ] = OrderedDict()
        self.rooms = WaitingRooms()
        self.answers = SharedAnswers(self.rooms)
        self.catalogs = CatalogProcess()

    async def start(self) -> None:
        """Connects, and reads what the topics tell.

        Raises:
            ServerUnavailable: No broker answers, or the topics do not exist.
        """
        await self.catalogs.start()
        self._opened = await self._open()
        self._following = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Ends all of it."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        if self._opened is not None:
            await self._opened[0].close()
        await self.catalogs.close()

    async def _open(self) -> tuple[AsyncClient, FactsReader]:
        client = await self._connect().__aenter__()
        reader = FactsReader(client)
        try:
            await client.open()
            await reader.fresh()
        except BaseException:
            await client.close()
            raise
        return client, reader

    async def _follow(self) -> None:
        """Takes in what events tell, and connects again when the brokers were away for long."""
        while True:
            try:
                client, reader = self._opened = self._opened or await self._open()
                async for reply in client.follow():
                    if isinstance(reply, Event):
                        reader.announce(reply)
            except StreamDPError as error:
                _log.warning("the gateway connects again: %s", error)
            except Exception as error:  # noqa: BLE001 - nothing else would follow the events
                _log.error("the gateway connects again: %s", type(error).__name__)
            opened, self._opened = self._opened, None
            if opened is not None:
                with contextlib.suppress(StreamDPError):
                    await opened[0].close()
            await asyncio.sleep(_RETRY_S)

    @property
    def client(self) -> AsyncClient:
        """The client.

        Raises:
            ServerUnavailable: The brokers are away.
        """
        return self._now()[0]

    @property
    def reader(self) -> FactsReader:
        """What reads the facts.

        Raises:
            ServerUnavailable: The brokers are away.
        """
        return self._now()[1]

    def _now(self) -> tuple[AsyncClient, FactsReader]:
        if self._opened is None:
            raise ServerUnavailable("no broker answers at the moment")
        return self._opened

    def result(
        self, text: str, dataset: str, plan: StatementPlan, answers: Answers, *, has_bars: bool
    ) -> StatementResult:
        """Returns what a statement gives. It is worked out once while its answers are the same."""
        key = text, has_bars
        known = self._results.get(key)
        if known is not None and known[0] is answers and known[1] is plan:
            return known[2]
        has_versions = self.state(dataset)[-1] > 1
        found = rows_of(text, dataset, plan, answers, has_bars=has_bars, has_versions=has_versions)
        if answers and len(found.rows) * len(found.columns or ()) <= _MOST_VALUES:
            keep_latest(self._results, key, (answers, plan, found), _RESULTS)
        return found

    def tables(
        self, facts: PublishedFacts, seen: frozenset[str] | None
    ) -> tuple[CatalogTable, ...]:
        """Returns all tables that somebody may see."""
        if (found := self._tables.get((facts.version, seen))) is None:
            found = facts.tables(seen)
            keep_latest(self._tables, (facts.version, seen), found, _VIEWS)
        return found

    def state(self, dataset: str) -> tuple[int, int, int]:
        """Returns what says that answers may be others by now.

        They are the number of open phases of a data set, the newest one that has got late rows, and the
        version of the attributes.
        """
        definition = self.reader.facts.definitions.get(dataset)
        version = 1 if definition is None else definition.schema_version
        return *self.reader.phases.get(dataset, (0, 0)), version

    async def plan(
        self, text: str, facts: PublishedFacts, seen: frozenset[str] | None
    ) -> tuple[str, StatementPlan]:
        """Returns the data set that a question is about, and its plan. It is planned once, and in a thread.

        Raises:
            InvalidQuery: It cannot be asked.
        """
        key, known = (facts.version, text), facts.seen(seen)
        if (found := self._plans.get(key)) is None:
            found = await asyncio.to_thread(_planned, text, facts, known)
            keep_latest(self._plans, key, found, _PLANS)
        if found[0] not in known:
            raise unknown_table(found[0])
        return found


def _planned(
    text: str, facts: PublishedFacts, known: Mapping[str, Definition]
) -> tuple[str, StatementPlan]:
    """Plans a statement about one of the data sets that may be seen."""
    names = sql.names_of(text)
    name = (names.dataset or "").lower()
    if name not in known:
        raise unknown_table(name)
    attributes, unit = schema_in(known[name])
    joined = {each.lower() for each in names.joined} & facts.dimensions.keys()
    dimensions = {each: as_joined(facts.dimensions[each]) for each in joined}
    plan = sql.plan(text, attributes, dataset=name, unit=unit, dimensions=dimensions)
    return name, _with_names_of_postgres(text, plan)


def _with_names_of_postgres(text: str, plan: StatementPlan) -> StatementPlan:
    """Returns a plan whose columns without AS are called as Postgres calls them, such as ``count``."""
    try:
        items = tree_of(text).expressions
    except SqlFault:
        return plan
    if len(items) != len(plan.outputs):
        return plan
    named = zip(items, plan.outputs, strict=True)
    outputs = tuple(
        one if isinstance(item, exp.Alias | exp.Column) else replace(one, name=column_name(item))
        for item, one in named
    )
    return replace(plan, outputs=outputs)


def unknown_table(name: str) -> SqlFault:
    """Returns the fault of a name that is none of a table that one may see."""
    return SqlFault(
        "42P01",
        f'relation "{name}" does not exist',
        hint="SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'",
    )
