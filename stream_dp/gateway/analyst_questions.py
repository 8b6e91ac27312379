"""What the questions of one analyst give: from the catalogs, or asked over Kafka."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from sqlglot import exp

from stream_dp.client import AsyncClient, Refusal
from stream_dp.client.statements.statement import statement_of
from stream_dp.display.figure_text import share
from stream_dp.display.price_words import NOTHING_ASKED, quote_in_words
from stream_dp.gateway.catalogs.catalog_shapes import USUAL_TYPES
from stream_dp.gateway.catalogs.catalog_syntax import CatalogDialect, is_about_catalogs
from stream_dp.gateway.catalogs.catalog_tables import CatalogView
from stream_dp.gateway.deployment import Deployment
from stream_dp.gateway.gateway_logins import Login
from stream_dp.gateway.protocol.server_messages import Columns
from stream_dp.gateway.protocol.session_settings import SessionSettings
from stream_dp.gateway.protocol.sql_fault import SqlFault
from stream_dp.gateway.protocol.statement_result import StatementResult
from stream_dp.gateway.protocol.statement_texts import apart, parameters_in, read_ahead, tree_of
from stream_dp.gateway.published_facts import DATABASE, FRESH_S, NEWEST_S, OURS, PublishedFacts
from stream_dp.gateway.shared_answers import Answers
from stream_dp.gateway.statement_rows import columns_of
from stream_dp.messages import QuotedBundle, RefusedAnswer
from stream_dp.sql import StatementPlan

R = TypeVar("R")

_CHOOSING: Final = ("where", "having", "limit", "offset", "order")
"""The clauses that do not decide which columns a table has."""


class AnalystQuestions:
    """Answers the questions of one connection.

    Args:
        deployment: What all connections share.
        login: Who asks.
    """

    def __init__(self, deployment: Deployment, login: Login) -> None:
        self._deployment = deployment
        self._login = login
        self._twin: tuple[AsyncClient, AsyncClient] | None = None

    def types_of_columns(self, text: str) -> Mapping[str, str]:
        facts, tree = self._deployment.reader.facts, _tree(text)
        named = set() if tree is None else {one.name.lower() for one in tree.find_all(exp.Table)}
        of_tables = {
            column.name.lower(): column.type
            for table in self._deployment.tables(facts, self._login.seen)
            if table.name in named
            for column in table.columns
        }
        return {**USUAL_TYPES, "phase": "int8", **of_tables}

    async def describe(self, text: str, settings: SessionSettings) -> Columns:
        facts, is_apart = await self._read(text)
        if is_apart:
            catalogs = self._deployment.catalogs
            return await self._in_turn(
                catalogs.describe(apart(text), self._view(facts), settings.values)
            )
        written = _without_choice(text) if parameters_in(text) else text
        dataset, plan = await self._deployment.plan(written, facts, self._login.seen)
        has_versions = self._deployment.state(dataset)[-1] > 1
        return columns_of(plan, has_bars=settings.has_bars, has_versions=has_versions)

    async def answer(self, text: str, settings: SessionSettings) -> StatementResult:
        facts, is_apart = await self._read(text)
        if is_apart:
            catalogs = self._deployment.catalogs
            asked = catalogs.answer(text, self._view(facts), settings.values)
            return StatementResult(*await self._in_turn(asked))
        dataset, plan = await self._deployment.plan(text, facts, self._login.seen)
        answers: Answers = ()
        if plan.queries:
            answers = await self._deployment.answers.of(
                await self._client(),
                self._login.analyst,
                text,
                dataset,
                plan,
                state=self._deployment.state(dataset),
                **_about(settings),
            )
        return self._deployment.result(text, dataset, plan, answers, has_bars=settings.has_bars)

    async def price(self, text: str, settings: SessionSettings) -> Sequence[str]:
        facts, is_apart = await self._read(text)
        if is_apart:
            return ["Public tables alone  (cost=0.00..0.00 rows=1 width=8)", NOTHING_ASKED]
        dataset, plan = await self._deployment.plan(text, facts, self._login.seen)
        client = await self._client()
        asked = statement_of(text, dataset, plan, query_id=None, window=None, **_about(settings))
        async with self._deployment.rooms.of(self._login.analyst):
            quote = await client.quote_statements([asked])
        return list(_price_lines(dataset, plan, quote))

    async def budget(self) -> str:
        await self._login.check()
        facts = await self._deployment.reader.fresh(NEWEST_S)
        found = []
        for name in sorted(facts.seen(self._login.seen)):
            odometer = facts.odometers.get(name)
            n = len(odometer.blocks) if odometer else 0
            left = 1.0 - (odometer.most_spent if odometer else 0.0)
            phases = f"{n} phase{'' if n == 1 else 's'}"
            found.append(
                f"{name}: {share(max(0.0, left))} left of the phase with least left ({phases})"
            )
        return "; ".join(found) or "there is no data set yet"

    # ------------------------------------------------------------ pieces

    async def _read(self, text: str) -> tuple[PublishedFacts, bool]:
        """Reads a question. Returns the facts, and whether it is about catalogs and public tables alone.

        The facts are read again where the question may be about what has just changed.
        """
        await self._login.check()
        reader = self._deployment.reader
        facts = reader.facts
        await read_ahead(text)
        tree = _tree(text)
        if tree is None:
            return facts, False
        withs = {one.alias.lower() for one in tree.find_all(exp.CTE)}
        ages = [
            _age(table.db.lower(), table.name.lower(), facts)
            for table in tree.find_all(exp.Table)
            if table.db or table.name.lower() not in withs
        ]
        facts = await reader.fresh(min(ages, default=math.inf))
        tables = self._deployment.tables(facts, self._login.seen)
        return facts, is_about_catalogs(tree, tables)

    def _view(self, facts: PublishedFacts) -> CatalogView:
        seen = self._login.seen
        names = "all" if seen is None else ",".join(sorted(seen))
        key = f"{facts.version} {self._login.analyst} {names}"
        return CatalogView(key, DATABASE, self._login.analyst, self._deployment.tables(facts, seen))

    async def _in_turn(self, work: Coroutine[Any, Any, R]) -> R:
        """Does work at the catalogs. If nobody waits for it any more it ends all the same, in a second."""

        async def done() -> R:
            async with self._deployment.rooms.catalogs(self._login.analyst):
                return await work

        return await asyncio.shield(asyncio.create_task(done()))

    async def _client(self) -> AsyncClient:
        """Returns a client under the name of the analyst."""
        client = self._deployment.client
        if self._twin is None or self._twin[0] is not client:
            twin = await self._login.client(client)
            self._twin = client, twin
        return self._twin[1]


def _age(schema: str, name: str, facts: PublishedFacts) -> float:
    """Returns how old facts may be for a statement that names a table, in seconds."""
    if schema == OURS:
        return NEWEST_S
    if schema not in ("", "public") or name.startswith("pg_") or name in facts.dimensions:
        return FRESH_S
    return math.inf if name in facts.definitions else NEWEST_S


def _tree(text: str) -> Any:
    """Returns the tree of a question. None where only ``stream_dp.sql`` reads it, or nobody does."""
    try:
        return tree_of(text)
    except SqlFault:
        return None


def _without_choice(text: str) -> str:
    """Returns a question without the clauses that choose rows: a value to come decides no column."""
    tree = _tree(text)
    if tree is None or not isinstance(tree, exp.Select):
        return text
    tree = copy.deepcopy(tree)
    for select in tree.find_all(exp.Select):
        for clause in _CHOOSING:
            select.set(clause, None)
    found: str = tree.sql(dialect=CatalogDialect)
    return found


def _about(settings: SessionSettings) -> dict[str, Any]:
    return {"last_phases": settings.last_phases, "at_most": settings.at_most}


def _price_lines(
    dataset: str, plan: StatementPlan, quote: QuotedBundle | RefusedAnswer | None
) -> Sequence[str]:
    """Returns a price in words. The first line ends as that of Postgres does, with a percentage as cost."""
    width = 8 * len(plan.outputs)
    if isinstance(quote, RefusedAnswer):
        raise Refusal(quote)
    most = 0.0 if quote is None else 100 * (quote.together.most or quote.together.high)
    head = f"Noisy answers about {dataset}  (cost=0.00..{most:.2f} rows=1 width={width})"
    words = NOTHING_ASKED if quote is None else quote_in_words(quote)
    return [head, f"  {words}", "  cost is in percent of a phase's budget"]
