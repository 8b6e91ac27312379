"""``stream-dp dashboard apply``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import click
from pydantic import BeforeValidator, Field, model_validator

from stream_dp.cli.command_options import FILE, GivenServers, analyst_option, connected
from stream_dp.cli.text.reply_text import busy
from stream_dp.client import Client, Query
from stream_dp.errors import InvalidInput
from stream_dp.messages import Definition, Series, TileTables, Window, read_json
from stream_dp.messages.message_base import Id, Request, tupled, validated
from stream_dp.messages.requests import QueryFields
from stream_dp.messages.standing_query import MOST_STANDING, AlertSpec

_MOST_BYTES = 4_194_304


class _Tile(Request):
    """One tile of a file: a query in SQL, or the fields of one.

    Attributes:
        sql: The query in SQL.
        query: The fields of the query, as in a message.
        window: The window that a query in SQL is about, as in a message.
        series: The periods that a query in SQL asks one part each for.
    """

    id: Id
    sql: str | None = None
    query: dict[str, Any] | None = None
    window: Window | None = None
    series: Series | None = None
    alert: AlertSpec | None = None

    @model_validator(mode="after")
    def _one_form(self) -> _Tile:
        if (self.sql is None) == (self.query is None):
            raise ValueError("write either sql or query")
        if self.query is not None and (self.window, self.series) != (None, None):
            raise ValueError("window and series go with sql: write them into the query")
        return self

    def item(self, client: Client, dataset: str) -> dict[str, Any]:
        """Returns the fields of the query's message."""
        if self.query is not None:
            item = {**self.query, "query_id": self.id}
        else:
            window = None if self.window is None else self.window.model_dump(exclude_none=True)
            asked = Query(self.sql, window=window, series=self.series, query_id=self.id)
            item = client.as_message(dataset, asked)
        if self.alert is not None:
            item["alert"] = self.alert.model_dump(exclude_none=True)
        return item


class _Tiles(Request):
    """A file of tiles."""

    tiles: Annotated[
        tuple[_Tile, ...], BeforeValidator(tupled), Field(min_length=1, max_length=MOST_STANDING)
    ]


@click.group()
def command() -> None:
    """Make the tiles of a file the standing queries of a data set."""


@command.command("apply")
@connected("dataset")
@click.argument("file", type=FILE, required=False)
@click.option("--prune", is_flag=True, help="End your standing queries that are not in the file.")
@analyst_option
def apply(
    connection: GivenServers, dataset: str, file: Path | None, prune: bool, analyst: str | None
) -> None:
    """Begin the tiles of FILE as standing queries of DATASET.

    Tiles that stand already stay as they are. A tile that has changed begins again with the next phase. FILE
    is a JSON document such as

    \b
    {"tiles": [{"id": "late", "sql": "delay >= 15", "window": {"last": "1 day"}, "alert": {"above": 0.2}},
               {"id": "carriers", "sql": "SELECT carrier, COUNT(*) GROUP BY carrier"}]}

    Without a FILE, the tiles are those of the workload in the definition: tile-1, tile-2 and so on.
    """  # noqa: D301 - \b is the mark of click for lines that stay as they are
    with busy("Applying the tiles"), connection.client(analyst) as client:
        wanted = {item["query_id"]: item for item in _items(client, dataset, file)}
        before = {
            one.query_id: one.query
            for one in client.standing(dataset)
            if one.analyst == client.analyst
        }
        gone = [name for name in before if name not in wanted] if prune else []
        changed = [name for name in wanted if name in before and before[name] != wanted[name]]
        begins = [name for name in wanted if name in changed or name not in before]
        # First all that end: another query may stand under an id only after that.
        ending = [{"query_id": name, "standing": False} for name in [*gone, *changed]]
        for change in (ending, [{**wanted[name], "standing": True} for name in begins]):
            if change:
                client.change_standing(dataset, change)
    done = dict.fromkeys(wanted, "stands already") | dict.fromkeys(begins, "begins")
    done |= dict.fromkeys(changed, "begins again, from the next phase on")
    for name, what in (done | dict.fromkeys(gone, "has ended")).items():
        click.echo(f"{name}: {what}")


def _items(client: Client, dataset: str, file: Path | None) -> list[Mapping[str, Any]]:
    """The fields of each tile's query. All are checked before the first one is sent."""
    tiles: list[Mapping[str, Any]]
    if file is None:
        tiles = list(_of_definition(client.definition(dataset)))
    else:
        document = read_json(file.read_bytes(), max_bytes=_MOST_BYTES)
        read = validated(_Tiles, document, InvalidInput, quoting=True)
        tiles = [tile.item(client, dataset) for tile in read.tiles]
    names = [tile["query_id"] for tile in tiles]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidInput("tiles", f"the id {twice} appears twice", "use an id for one tile")
    for tile in tiles:
        QueryFields.read({**tile, "standing": True})
    return tiles


def _of_definition(definition: Definition) -> Iterator[dict[str, Any]]:
    """The tiles of a definition's workload, as queries."""
    workload = getattr(definition.mechanism, "workload", None)
    if workload is None:
        fix = "name a file with tiles instead"
        raise InvalidInput("file", "the definition has no workload", fix)
    for number, tile in enumerate(_tiles(workload), start=1):
        kind = "sum" if tile.get("attribute") else "table" if tile.get("group_by") else "predicate"
        yield {"query_id": f"tile-{number}", "kind": kind, **tile}


def _tiles(workload: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(workload, TileTables):
        for tile in workload:
            yield tile.model_dump(mode="json", exclude_unset=True, exclude={"weight"})
        return
    for table in workload.tables:
        for phases in workload.windows:
            window = {} if phases == "all" else {"window": {"last_phases": phases}}
            yield {"group_by": list(table), **window}
