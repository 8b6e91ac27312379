"""``stream-dp ask``."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import click
from rich.table import Table
from rich.text import Text

from stream_dp.calendar_periods import Length, span_of, zone_of
from stream_dp.cli.command_options import FILE, GivenServers, analyst_option, connected, json_option
from stream_dp.cli.files.statement_files import FileQuery, read_statements
from stream_dp.cli.terminal import show
from stream_dp.cli.text.reply_text import (
    answer_lines,
    bundle_lines,
    busy,
    rows_of_a_phase,
    view_lines,
)
from stream_dp.cli.text.sql_error import pointed_error, pointed_refusal
from stream_dp.client import Client, Query, Refusal, Rejection, ResultTable
from stream_dp.client.statements.statement import Statement
from stream_dp.display.price_words import NOTHING_ASKED
from stream_dp.errors import InvalidQuery, StreamDPError
from stream_dp.messages import (
    FIELDS,
    NoisyAnswer,
    QuotedAnswer,
    QuotedBundle,
    RefusedAnswer,
    Series,
)
from stream_dp.precision_texts import as_at_most

_IN_SQL = {"predicate", "table", "share", "difference", "correlation", "sum", "quantile"}
_KINDS = [kind for kind in FIELDS if kind not in _IN_SQL]
"""The kinds of queries that SQL cannot say."""


def _window(_: click.Context, option: click.Parameter, text: str | None) -> dict[str, Any] | None:
    """Reads a window as a message has it: a number of phases, two of them, or a length of time.

    One that is right before another has no two phases.
    """
    if text is None:
        return None
    field = "last" if option.name == "window" else "previous"
    if field == "last" and (both := re.fullmatch(r"([1-9]\d*)-([1-9]\d*)", text)):
        return {"phases": [int(both[1]), int(both[2])]}
    if re.fullmatch(r"[1-9]\d*", text):
        return {f"{field}_phases": int(text)}
    try:
        Length.read(text)
    except ValueError:
        raise click.BadParameter(
            "write a number of phases such as 7, or a length of time such as '7 days'"
        ) from None
    return {field: text}


def _at_most(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    try:
        return None if text is None else as_at_most(text)
    except InvalidQuery as error:
        raise click.BadParameter(f"{text!r}: {error.problem}; {error.fix}") from None


@dataclass(frozen=True)
class AskOptions:
    """What the options say of a query, or of the queries of a file."""

    group_by: tuple[str, ...] = ()
    kind: str | None = None
    attribute: str | None = None
    low: float | None = None
    high: float | None = None
    window: Mapping[str, Any] | None = None
    since: str | None = None
    until: str | None = None
    series: Series | None = None
    minus_previous: Mapping[str, Any] | None = None
    at_most: float | None = None
    quote: bool = False
    query_id: str | None = None
    standing: bool = False
    alert_above: float | None = None
    alert_below: float | None = None
    timeout_s: float = 30.0
    as_json: bool = False

    @property
    def kind_asked(self) -> str | None:
        """The kind of query. None for one that SQL says."""
        return self.kind if self.minus_previous is None else "difference"

    @property
    def is_sql(self) -> bool:
        """Whether the query is a text in SQL and nothing else."""
        return not (self.group_by or self.kind_asked or self.standing)

    @property
    def asked_window(self) -> Mapping[str, Any] | None:
        """The window that the options name, as a message has it."""
        ends = {"since": self.since, "until": self.until}
        return {name: end for name, end in ends.items() if end is not None} or self.window

    @property
    def alert(self) -> dict[str, float] | None:
        """The alert of a standing query, as a message has it."""
        sides = {"above": self.alert_above, "below": self.alert_below}
        return {side: number for side, number in sides.items() if number is not None} or None

    def check(self, query: str | None, file: Path | None) -> None:
        """Refuses options that do not go together, and names them as the command line does."""
        for name, end in (("since", self.since), ("until", self.until)):
            try:
                span_of(end or "2026-11-01", zone_of(None))
            except ValueError as error:
                raise click.UsageError(f"--{name}: {error}") from None
        dated = self.since is not None or self.until is not None
        in_file, one = file is not None, "--file holds the queries: leave {} out"
        tiles = "write the file's queries as tiles, and use `stream-dp dashboard apply`"
        for wrong, said in (
            (dated and self.window, "give --window, or --since and --until, not both"),
            (len(self.alert or ()) > 1, "give --alert-above or --alert-below, not both"),
            (self.alert and not self.standing, "an alert goes with --standing"),
            (
                self.standing and not self.query_id,
                "--standing needs --id: the answers have the ids ID@1, ID@2, ...",
            ),
            (self.standing and self.quote, "--quote is for one answer: leave --standing out"),
            (self.standing and in_file, f"--standing is for one query: {tiles}"),
            (in_file and query, one.format("QUERY")),
            (in_file and self.query_id, one.format("--id")),
            (in_file and self.group_by, one.format("--group-by")),
            (in_file and self.kind, one.format("--kind")),
            (in_file and self.minus_previous, one.format("--minus-previous")),
            (
                in_file and self.quote and self.at_most,
                "--quote spends nothing: leave --at-most out",
            ),
            (
                self.minus_previous and self.kind,
                f"--minus-previous needs no --kind: leave --kind {self.kind} out",
            ),
        ):
            if wrong:
                raise click.UsageError(said)
        self._check_kind(query)

    def _check_kind(self, query: str | None) -> None:
        """Refuses what a kind of query lacks or has not."""
        kind = self.kind_asked
        shape, named = FIELDS[kind or "predicate"], f"--kind {kind}"
        if kind == "difference":
            named = "a difference"
        if query is None and {"where", "wheres"} & {*shape.needs}:
            raise click.UsageError(f'{named} needs a condition, such as "age < 30"')
        for name in ("attribute", "low", "high", "at_most"):
            value, option = getattr(self, name), name.replace("_", "-")
            in_query = name == "attribute" and query is not None
            if name in shape.needs and value is None and not in_query:
                raise click.UsageError(f"{named} needs --{option}")
            if name not in shape.names and value is not None:
                raise click.UsageError(
                    f"{named} has no --{option}" if kind else f"--{option} needs --kind"
                )

    def query(self, texts: Sequence[str]) -> Query[Any]:
        """The query of some conditions: several for a batch, and at most one for others."""
        is_batch = self.kind == "prefix_batch"
        return Query(
            condition=texts[0] if texts and not is_batch else None,
            conditions=tuple(texts) if is_batch else (),
            group_by=self.group_by,
            kind=self.kind_asked,
            attribute=self.attribute,
            low=self.low,
            high=self.high,
            minus_window=self.minus_previous,
            window=self.asked_window,
            series=self.series,
            at_most=self.at_most,
            query_id=self.query_id,
        )


@click.command(context_settings={"allow_extra_args": True})
@connected("dataset")
@click.argument("query", required=False)
@click.option("--group-by", multiple=True, help="An attribute to group by. May be repeated.")
@click.option(
    "--kind",
    type=click.Choice(_KINDS),
    metavar="KIND",
    help="The kind of query: one of those above.",
)
@click.option("--attribute", help="The attribute to analyse.  [default: the one in the condition]")
@click.option("--low", type=float, help="The lower share, for --kind between.")
@click.option("--high", type=float, help="The upper share, for --kind between.")
@click.option(
    "--file", type=FILE, help="Ask the queries of a file: one a line, or separated by semicolons."
)
@click.option(
    "--window",
    metavar="WINDOW",
    callback=_window,
    help="The phases to ask about: the last ones, such as 7 or '7 days', or from one to another, such as "
    "3-7.  [default: all phases]",
)
@click.option("--since", metavar="TIME", help="Ask about the phases from this date on.")
@click.option("--until", metavar="TIME", help="Ask about the phases before this date.")
@click.option(
    "--series",
    type=click.Choice(get_args(Series)),
    help="Answer for each of these periods by itself.",
)
@click.option(
    "--minus-previous",
    metavar="WINDOW",
    callback=_window,
    help="Ask for the share in the --window minus that right before it, in 7 phases (7) or '7 days'.",
)
@click.option(
    "--at-most",
    metavar="SHARE",
    callback=_at_most,
    help="The largest share of any phase's budget to spend, such as 2%, as COSTING AT MOST in SQL. With "
    "--file: on all answers together.  [default: the data set decides]",
)
@click.option(
    "--quote",
    is_flag=True,
    help="Say what the answer would cost and how precise it would be, and spend nothing. With --file: all "
    "answers together.",
)
@click.option(
    "--id",
    "query_id",
    help="The id of the query, which gets the same answer again.  [default: a new id]",
)
@click.option(
    "--standing",
    is_flag=True,
    help="Ask again in each phase. Its answers have the ids ID@PHASE, with the ID of --id.",
)
@click.option(
    "--alert-above",
    type=float,
    metavar="X",
    help="With --standing: raise an alert when the whole error bar is above X.",
)
@click.option(
    "--alert-below", type=float, metavar="X", help="With --standing: raise one when it is below X."
)
@analyst_option
@click.option(
    "--timeout",
    "timeout_s",
    type=float,
    default=30.0,
    help="The seconds to wait.",
)
@json_option("Print the answer as a JSON message.")
def command(
    connection: GivenServers,
    dataset: str,
    query: str | None,
    file: Path | None,
    analyst: str | None,
    **given: Any,
) -> None:
    """Ask a QUERY about DATASET.

    QUERY is a condition in SQL, which counts rows, or a SELECT. A SELECT with FROM needs no DATASET.

    The data set decides how precise an answer is, unless QUERY ends with WITHIN 5%. COSTING AT MOST 2% limits
    what the answer takes of any phase's budget.

    Use --kind for what SQL cannot say, if `stream-dp dataset show` lists it:

    \b
    threshold           how many rows have each value or a lower one
    prefix_batch        the shares of several conditions, with a QUERY for each
    between             whether a share is below --low, above --high, or between
    median, mode        the exact bin of the median, the exact most frequent value
    correlated_vector   what each row said about a private yes or no
    interior_point      whether a value is below, above or among the rows
    adaptive_threshold  how many rows have a lower value, chosen after looking

    The exit code is 1 without an answer.

    \b
    stream-dp ask people "age >= 30 AND NOT smoker"
    stream-dp ask people "SELECT city, AVG(income) GROUP BY city WITHIN 500 COSTING AT MOST 5%"
    stream-dp ask people smoker --since 2026-11-01 --until 2026-12-01 --series day
    """  # noqa: D301 - \b is the mark of click for lines that stay as they are
    options = AskOptions(**given)
    more = click.get_current_context().args
    if more and options.kind != "prefix_batch":
        raise click.UsageError(
            f"the query ends before {more[0]!r}; put the whole query in quotes, so that the shell "
            "does not split it"
        )
    # The SQL reader takes half a second to load. The broker answers in the meantime.
    threading.Thread(target=__import__, args=("stream_dp.sql",), daemon=True).start()
    if query is None and re.search(r"\s", dataset.strip()):  # no name holds a blank
        dataset, query = _named_in(dataset), dataset
    options.check(query, file)
    texts = [text for text in (query, *more) if text is not None]
    with connection.client(analyst) as client:
        if file is not None:
            answered = ask_statements(client, dataset, read_statements(file), options, file)
        elif options.is_sql:
            text = _with_price(query or "SELECT COUNT(*)", options.at_most)
            answered = ask_statements(client, dataset, [FileQuery(1, text)], options)
        elif options.standing:
            answered = _stand(client, dataset, options, texts)
        else:
            answered = _ask_query(client, dataset, options, texts)
    sys.exit(0 if answered else 1)


def _with_price(query: str, at_most: float | None) -> str:
    """Returns a query in SQL with its limit at its end; the line break ends a comment."""
    if at_most is None:
        return query
    return f"{query.rstrip().removesuffix(';')}\nCOSTING AT MOST {100 * Decimal(repr(at_most)):f}%"


def _named_in(query: str) -> str:
    """Returns the data set that the FROM of a statement names."""
    from stream_dp import sql

    try:
        name = sql.names_of(query).dataset
    except InvalidQuery as error:
        raise StreamDPError(pointed_error(query, error)) from None
    if name is None:
        raise click.UsageError(
            "name the data set: stream-dp ask NAME QUERY, or SELECT ... FROM NAME"
        )
    return name.lower()  # as all names of data sets are


# ---------------------------------------------------------------- in SQL


def ask_statements(
    client: Client,
    dataset: str,
    written: Sequence[FileQuery],
    options: AskOptions,
    file: Path | None = None,
) -> bool:
    """Asks, or quotes together, texts in SQL, and prints what they give.

    Args:
        client: The client.
        dataset: The data set.
        written: The texts.
        options: How they are asked. A limit is for all texts of a file together.
        file: The file that they are from. None for a text of the command line.

    Returns:
        Whether all of them are, or would be, answered.

    Raises:
        StreamDPError: One cannot be asked. The error shows the piece that is wrong.
    """
    with busy("Asking"):
        read = [_read(client, dataset, each, options, file) for each in written]
        if options.quote:
            price = client.quote_statements(read, timeout_s=options.timeout_s)
        else:
            limit = None if file is None else options.at_most
            given = client.ask_statements(read, at_most=limit, timeout_s=options.timeout_s)
    if options.quote:
        named = [(str(each.line), one) for each, one in zip(written, read, strict=True)]
        return _show_quote(client, price, named, as_json=options.as_json)
    for each, one, found in zip(written, read, given, strict=True):
        if options.as_json:
            click.echo(_in_json(found))
            continue
        if file is not None:
            show(Text(f"{each.line}: {each.in_one_line}", "bold"))
        if isinstance(found, ResultTable):
            show(*view_lines(found.view))
            continue
        why = (
            _explained(client, one, found.answer)
            if isinstance(found, Refusal)
            else found.reason.message
        )
        if file is None:
            click.echo(f"refused: {why}", err=True)
        else:
            show(Text(f"refused: {why}", "red"))
    return all(isinstance(found, ResultTable) for found in given)


def _read(
    client: Client, dataset: str, each: FileQuery, options: AskOptions, file: Path | None
) -> Statement:
    try:
        return client.statement(
            each.text,
            dataset=dataset,
            window=options.asked_window,
            series=options.series,
            query_id=options.query_id,
        )
    except InvalidQuery as error:
        raise each.fault(file, error) from None


def _show_quote(
    client: Client,
    quote: QuotedBundle | RefusedAnswer | None,
    statements: Sequence[tuple[str, Statement]],
    *,
    as_json: bool,
) -> bool:
    """Prints a quote for statements; returns whether all of them would be answered."""
    if as_json:
        click.echo('{"status": "free"}' if quote is None else quote.to_bytes().decode())
    elif isinstance(quote, RefusedAnswer):
        click.echo(f"refused: {_explained(client, statements[0][1], quote)}", err=True)
    else:
        show(*_quoted_lines(quote, statements))
    if isinstance(quote, QuotedBundle):
        return all(query.privacy_loss for query in quote.queries)
    return quote is None


def _in_json(found: ResultTable | Refusal | Rejection) -> str:
    """What a statement gives, as JSON: its answer if that says all, or else its table."""
    said = found.rejected if isinstance(found, Rejection) else found.answer
    if said is not None:
        return said.to_bytes().decode()
    assert isinstance(found, ResultTable), "a refusal is an answer"
    return json.dumps(found.to_document(), ensure_ascii=False)


def _quoted_lines(
    quote: QuotedBundle | None, statements: Sequence[tuple[str, Statement]]
) -> list[Text | Table]:
    """A quote for statements at length.

    Args:
        quote: The quote. None if nothing is asked.
        statements: The position of each statement, and the statement.
    """
    if quote is None:
        return [Text(NOTHING_ASKED)]
    names = []
    for position, one in statements:
        written, n = " ".join(one.text.split()), len(one.items)
        names += [
            (position, written if n == 1 else f"{written} ({i} of {n})") for i in range(1, n + 1)
        ]
    return bundle_lines(quote, names)


def _explained(client: Client, statement: Statement, answer: RefusedAnswer) -> str:
    """Explains a refusal, and points at the piece if the statement asks one query."""
    message = statement.items[0] if len(statement.items) == 1 else {}
    return _refusal(client, answer, message, [statement.text] if message else [])


# ---------------------------------------------------------------- what SQL does not say


def _stand(client: Client, dataset: str, options: AskOptions, texts: Sequence[str]) -> bool:
    """Begins a standing query, and says where its answers are."""
    with busy("Asking"):
        listed = client.stand(
            dataset, options.query(texts), alert=options.alert, timeout_s=options.timeout_s
        )
    if options.as_json:
        click.echo(listed.to_bytes().decode())
        return True
    name = listed.query_id
    click.echo(f"{name} is answered in each phase from now on, under the ids {name}@PHASE")
    click.echo(
        "see `stream-dp watch` for the answers, and `stream-dp standing list` for the prices"
    )
    return True


def _ask_query(client: Client, dataset: str, options: AskOptions, texts: Sequence[str]) -> bool:
    """Asks, or quotes, one query, and prints what it gives; returns whether there is an answer."""
    asked = options.query(texts)
    with busy("Asking"):
        message = _message(client, dataset, asked, texts)
        answer = client.ask_query(dataset, asked, quote=options.quote, timeout_s=options.timeout_s)
        refusal = (
            _refusal(client, answer, message, texts) if isinstance(answer, RefusedAnswer) else None
        )
    if options.as_json:
        click.echo(answer.to_bytes().decode())
    elif refusal is not None:
        click.echo(f"refused: {refusal}", err=True)
    elif isinstance(answer, NoisyAnswer | QuotedAnswer):
        show(*answer_lines(answer, texts if asked.conditions else ()))
    return refusal is None


def _message(
    client: Client, dataset: str, asked: Query[Any], texts: Sequence[str]
) -> Mapping[str, Any]:
    """Writes the query as a message. An error in its SQL shows the piece that is wrong."""
    for text in texts:
        try:
            client.as_message(dataset, Query(text))
        except InvalidQuery as error:
            raise StreamDPError(pointed_error(text, error)) from None
    return client.as_message(dataset, asked)


def _refusal(
    client: Client, answer: RefusedAnswer, message: Mapping[str, Any], texts: Sequence[str]
) -> str:
    """Explains a refusal to someone who asked in SQL at a terminal."""
    reason = answer.reason
    if reason.code == "no_phase":
        return _waits(client, answer.dataset)
    found = re.match(r"wheres\[(\d+)\](.*)", reason.message, re.DOTALL)
    if found is None:
        return pointed_refusal(texts[0] if texts else "", message.get("where"), reason)
    index = int(found[1])
    of_one = reason.model_copy(update={"message": f"where{found[2]}"})
    return pointed_refusal(texts[index], message["wheres"][index], of_one)


def _waits(client: Client, dataset: str) -> str:
    """Says that no phase is open yet, and how to open one."""
    definition = client.definition(dataset)
    rows, waiting = rows_of_a_phase(definition), client.waiting().get(dataset, 0)
    said = f"no phase is open yet: {waiting:,} rows of {dataset} wait"
    if definition.phase.every is not None and waiting >= rows:
        return f"{said} for the end of their period; to end it now: stream-dp phase close {dataset}"
    return (
        f"{said}, and the first phase opens at {rows:,}; send more with: stream-dp ingest FILE --dataset "
        f"{dataset}"
    )
