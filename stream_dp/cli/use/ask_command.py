"""``stream-dp ask``."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from rich.text import Text

from stream_dp.cli.files.statement_files import read_statements
from stream_dp.cli.server_options import GivenServers, connected
from stream_dp.cli.text.reply_text import answer_lines, busy, output, rows_of_a_phase
from stream_dp.cli.text.sql_error import pointed_error, pointed_refusal
from stream_dp.cli.text.statement_tables import in_json, quoted_lines, statement_lines
from stream_dp.client import Client, Query, Refusal, Rejection, ResultTable
from stream_dp.client.statements.statement import Statement
from stream_dp.errors import InvalidQuery, StreamDPError
from stream_dp.messages import (
    FIELDS,
    Answer,
    NoisyAnswer,
    QuotedAnswer,
    QuotedBundle,
    RefusedAnswer,
    Series,
)
from stream_dp.periods import Length, span_of, zone_of
from stream_dp.within import as_at_most, as_error

_KINDS = [
    kind
    for kind in FIELDS
    if kind not in ("predicate", "table", "share", "difference", "correlation")
]


def _window(_: click.Context, __: click.Parameter, text: str | None) -> dict[str, Any] | None:
    """Reads a window as a message has it: a number of phases, two of them, or a length of time."""
    if text is None:
        return None
    if (both := re.fullmatch(r"([1-9]\d*)-([1-9]\d*)", text)) is not None:
        return {"phases": [int(both[1]), int(both[2])]}
    if re.fullmatch(r"[1-9]\d*", text):
        return {"last_phases": int(text)}
    return {"last": _length(text)}


def _previous(_: click.Context, __: click.Parameter, text: str | None) -> dict[str, Any] | None:
    """Reads a window right before another one: a number of phases, or a length of time."""
    if text is None:
        return None
    if re.fullmatch(r"[1-9]\d*", text):
        return {"previous_phases": int(text)}
    return {"previous": _length(text)}


def _length(text: str) -> str:
    try:
        Length.read(text)
    except ValueError:
        raise click.BadParameter(
            "write a number of phases such as 7, or a length of time such as '7 days'"
        ) from None
    return text


@click.command(context_settings={"allow_extra_args": True})
@connected()
@click.argument("dataset")
@click.argument("query", required=False)
@click.option("--group-by", multiple=True, help="An attribute to group by. May be repeated.")
@click.option(
    "--kind",
    type=click.Choice(_KINDS),
    metavar="KIND",
    help="The kind of query: one of those above.",
)
@click.option(
    "--share-of",
    metavar="CONDITION",
    help="Ask which share of the rows of QUERY satisfies this condition too.",
)
@click.option("--attribute", help="The attribute to analyse.  [default: the one in the condition]")
@click.option("--rank", type=float, help="The rank of a quantile, such as 0.9.")
@click.option("--low", type=float, help="The lower share, for --kind between.")
@click.option("--high", type=float, help="The upper share, for --kind between.")
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Ask the queries of a file: one a line, or separated by semicolons.",
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
    callback=_previous,
    help="Ask for the share in the --window minus that right before it, in 7 phases (7) or '7 days'.",
)
@click.option(
    "--minus-last",
    type=click.IntRange(1),
    help="The same, minus that of the last N phases.",
)
@click.option(
    "--error",
    metavar="ERROR",
    help="How far off the answer may be, as WITHIN in SQL: 5%, '0.5% of rows', 50, or 0.01 for a share.  "
    "[default: the data set decides]",
)
@click.option(
    "--at-most",
    metavar="SHARE",
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
    "--fresh",
    is_flag=True,
    help="Pay to measure the rows once more. Then the error bar holds even if answers led you to the query.",
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
    "--alert-below",
    type=float,
    metavar="X",
    help="With --standing: raise one when it is below X.",
)
@click.option(
    "--analyst",
    help="The name of the analyst.  [default: the one in STREAM_DP_TOKEN, or your login name]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=float,
    default=30.0,
    show_default=True,
    help="The seconds to wait.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as a JSON message.")
def command(
    connection: GivenServers,
    dataset: str,
    query: str | None,
    group_by: tuple[str, ...],
    kind: str | None,
    share_of: str | None,
    attribute: str | None,
    rank: float | None,
    low: float | None,
    high: float | None,
    file: Path | None,
    window: Mapping[str, Any] | None,
    since: str | None,
    until: str | None,
    series: Series | None,
    minus_previous: Mapping[str, Any] | None,
    minus_last: int | None,
    error: str | None,
    at_most: str | None,
    quote: bool,  # noqa: FBT001 - click
    fresh: bool,  # noqa: FBT001 - click
    query_id: str | None,
    standing: bool,  # noqa: FBT001 - click
    alert_above: float | None,
    alert_below: float | None,
    analyst: str | None,
    timeout_s: float,
    as_json: bool,  # noqa: FBT001 - click
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
    sum, quantile       as in SQL
    correlated_vector   what each row said about a private yes or no
    interior_point      whether a value is below, above or among the rows
    adaptive_threshold  how many rows have a lower value, chosen after looking

    The exit code is 1 without an answer.

    \b
    stream-dp ask people "age >= 30 AND NOT smoker"
    stream-dp ask people "SELECT city, AVG(income) GROUP BY city WITHIN 500 COSTING AT MOST 5%"
    stream-dp ask people smoker --since 2026-11-01 --until 2026-12-01 --series day
    """  # noqa: D301 - \b is the mark of click for lines that stay as they are
    more = click.get_current_context().args
    named: str | None = dataset
    if query is None and re.search(r"\s", dataset.strip()):  # no name holds a blank
        named, query = None, dataset
    window = _between(window, since, until)
    alert = _alert(alert_above, alert_below)
    _check_standing(alert, query_id, standing=standing, quote=quote, in_file=file is not None)
    if file is not None:
        alone = {
            "QUERY": query,
            "--group-by": group_by,
            "--kind": kind,
            "--share-of": share_of,
            "--minus-previous": minus_previous,
            "--minus-last": minus_last,
            "--attribute": attribute,
            "--rank": rank,
            "--low": low,
            "--high": high,
            "--error": error,
            "--id": query_id,
        }
        for name, value in alone.items():
            if value not in (None, ()):
                raise click.UsageError(f"--file holds the queries: leave {name} out")
        if quote and at_most is not None:
            raise click.UsageError("--quote spends nothing: leave --at-most out")
        limit = _read("--at-most", as_at_most, at_most)
        about: dict[str, Any] = {"window": window, "series": series, "timeout_s": timeout_s}
        with connection.client(analyst) as client:
            answered = ask_file(
                client, dataset, file, at_most=limit, quote=quote, as_json=as_json, **about
            )
        sys.exit(0 if answered else 1)
    minus = _minus_window(minus_previous, minus_last)
    if share_of is not None and minus is not None:
        raise click.UsageError("a share is about one window: ask about each window, and subtract")
    for option, names_kind, wanted in (
        ("--share-of", share_of is not None, "share"),
        ("--minus-previous or --minus-last", minus is not None, "difference"),
    ):
        if names_kind and kind is not None:
            raise click.UsageError(f"{option} needs no --kind: leave --kind {kind} out")
        kind = wanted if names_kind else kind
    is_batch = kind == "prefix_batch"
    if more and not is_batch:
        raise click.UsageError(
            f"the query ends before {more[0]!r}; put the whole query in quotes, so that the shell "
            "does not split it"
        )
    given = {"attribute": attribute, "rank": rank, "low": low, "high": high}
    _check_options(kind, {**given, "error": error, "at_most": at_most}, query)
    # The SQL reader takes half a second to load. The broker answers in the meantime.
    threading.Thread(target=__import__, args=("stream_dp.sql",), daemon=True).start()
    precise = _Precise.of(error, at_most)
    if not group_by and kind is None and query is None:
        query = "SELECT COUNT(*)"
    if query is not None and not is_batch:  # the SQL knows what the error is of
        query, precise = precise.after(query), _Precise()
    texts = [text for text in (query, *more, share_of) if text is not None]
    asked = Query(
        condition=None if is_batch else query,
        group_by=group_by,
        window=window,
        series=series,
        query_id=query_id,
        kind=kind,
        attribute=attribute,
        conditions=tuple(texts) if is_batch else (),
        rank=rank,
        low=low,
        high=high,
        error=precise.error,
        at_most=precise.at_most,
        fresh=fresh,
        share_of=share_of,
        minus_window=minus,
    )
    if named is None:
        dataset = _named_in(query or "")
    with connection.client(analyst) as client:
        if standing:
            with busy("Asking"):
                _stand(client, dataset, asked, alert, timeout_s, as_json=as_json)
            return
        if not group_by and kind is None:
            text = f"FRESH {query}" if fresh else str(query)
            about = {"window": window, "series": series, "timeout_s": timeout_s}
            answered = ask_text(
                client, dataset, text, query_id=query_id, quote=quote, as_json=as_json, **about
            )
            sys.exit(0 if answered else 1)
        with busy("Asking"):
            message = _message(client, dataset, asked, texts)
            answer = client.ask_query(dataset, asked, quote=quote, timeout_s=timeout_s)
            refusal = _refusal(client, answer, message, texts)
    if as_json:
        click.echo(answer.to_bytes().decode())
    elif refusal:
        click.echo(f"refused: {refusal}", err=True)
    elif isinstance(answer, NoisyAnswer | QuotedAnswer):
        console = output()
        for piece in answer_lines(answer, texts if is_batch else ()):
            console.print(piece)
    if refusal:
        sys.exit(1)


def _between(
    window: Mapping[str, Any] | None, since: str | None, until: str | None
) -> Mapping[str, Any] | None:
    """Returns the window that the options name, as a message has it."""
    ends = {"since": since, "until": until}
    by_date = {name: end for name, end in ends.items() if end is not None}
    if window is not None and by_date:
        raise click.UsageError("give --window, or --since and --until, not both")
    for name, end in by_date.items():
        try:
            span_of(end, zone_of(None))
        except ValueError as error:
            raise click.UsageError(f"--{name}: {error}") from None
    return by_date or window


def _alert(above: float | None, below: float | None) -> dict[str, float] | None:
    """Returns the alert of a standing query, as a message has it."""
    given = {"above": above, "below": below}
    alert = {side: number for side, number in given.items() if number is not None}
    if len(alert) > 1:
        raise click.UsageError("give --alert-above or --alert-below, not both")
    return alert or None


def _check_standing(
    alert: object, query_id: str | None, *, standing: bool, quote: bool, in_file: bool
) -> None:
    if standing and query_id is None:
        raise click.UsageError("--standing needs --id: the answers have the ids ID@1, ID@2, ...")
    if standing and quote:
        raise click.UsageError("--quote is for one answer: leave --standing out")
    if standing and in_file:
        raise click.UsageError(
            "--standing is for one query: write the file's queries as tiles, and use `stream-dp "
            "dashboard apply`"
        )
    if alert is not None and not standing:
        raise click.UsageError("an alert goes with --standing")


def _stand(
    client: Client,
    dataset: str,
    asked: Query,
    alert: Mapping[str, float] | None,
    timeout_s: float,
    *,
    as_json: bool,
) -> None:
    """Begins a standing query, and says where its answers are."""
    listed = client.stand(dataset, asked, alert=alert, timeout_s=timeout_s)
    if as_json:
        click.echo(listed.to_bytes().decode())
        return
    name = listed.query_id
    click.echo(f"{name} is answered in each phase from now on, under the ids {name}@PHASE")
    click.echo(
        "see `stream-dp watch` for the answers, and `stream-dp standing list` for the prices"
    )


def _minus_window(previous: Mapping[str, Any] | None, last: int | None) -> Mapping[str, Any] | None:
    """Returns the window that a difference takes away, as a message has it."""
    if previous is not None and last is not None:
        raise click.UsageError("give --minus-previous or --minus-last, not both")
    return previous if last is None else {"last_phases": last}


_Read = TypeVar("_Read")


def _read(option: str, read: Callable[[str], _Read], text: str | None) -> _Read | None:
    """Reads the text of an option, and names the option where it is wrong."""
    if text is None:
        return None
    try:
        return read(text)
    except InvalidQuery as error:
        raise click.UsageError(f"{option} {text!r}: {error.problem}; {error.fix}") from None


def ask_text(
    client: Client,
    dataset: str,
    text: str,
    *,
    window: Mapping[str, Any] | None = None,
    series: Series | None = None,
    query_id: str | None = None,
    timeout_s: float = 30.0,
    quote: bool = False,
    as_json: bool = False,
) -> bool:
    """Asks, or quotes, one text in SQL, and prints what it gives.

    Args:
        client: The client.
        dataset: The data set.
        text: The text.
        window: The phases to ask about, as a message names them. None asks about all phases.
        series: The periods to group by as well.
        query_id: The id of the query. None takes a new one.
        timeout_s: The seconds to wait for a reply.
        quote: Whether to print what it would cost.
        as_json: Whether to print JSON.

    Returns:
        Whether it is, or would be, answered.

    Raises:
        StreamDPError: It cannot be asked. The error shows the piece that is wrong.
    """
    with busy("Asking"):
        try:
            read = client.statement(
                text, dataset=dataset, window=window, series=series, query_id=query_id
            )
        except InvalidQuery as error:
            raise StreamDPError(pointed_error(text, error)) from None
        if quote:
            price = client.quote_statements([read], timeout_s=timeout_s)
        else:
            (found,) = client.ask_statements([read], timeout_s=timeout_s)
    if quote:
        return _show_quote(client, price, [("1", read)], as_json=as_json)
    if isinstance(found, Rejection):
        raise found
    if as_json:
        click.echo(in_json(found))
    elif isinstance(found, Refusal):
        click.echo(f"refused: {_explained(client, read, found.answer)}", err=True)
    else:
        _print(found)
    return isinstance(found, ResultTable)


def ask_file(
    client: Client,
    dataset: str,
    file: Path,
    *,
    window: Mapping[str, Any] | None = None,
    series: Series | None = None,
    at_most: float | None = None,
    timeout_s: float = 30.0,
    quote: bool = False,
    as_json: bool = False,
) -> bool:
    """Asks, or quotes together, the statements of a file. What is not said here is as in ``ask_text``.

    Args:
        client: The client.
        dataset: The data set.
        file: The file.
        window: The phases to ask about.
        series: The periods to group by as well.
        at_most: The largest share of any phase's budget that all statements together may take.
        timeout_s: The seconds to wait for a reply.
        quote: Whether to print what they would cost.
        as_json: Whether to print JSON.

    Returns:
        Whether all of them are, or would be, answered.
    """
    written, read = read_statements(file), []
    with busy("Asking"):
        for each in written:
            try:
                read.append(
                    client.statement(each.text, dataset=dataset, window=window, series=series)
                )
            except InvalidQuery as error:
                raise each.fault(file, error) from None
        if quote:
            price = client.quote_statements(read, timeout_s=timeout_s)
        else:
            given = client.ask_statements(read, at_most=at_most, timeout_s=timeout_s)
    if quote:
        named = [(str(each.line), one) for each, one in zip(written, read, strict=True)]
        return _show_quote(client, price, named, as_json=as_json)
    for each, one, found in zip(written, read, given, strict=True):
        if as_json:
            click.echo(in_json(found))
            continue
        output().print(Text(f"{each.line}: {each.in_one_line}", "bold"))
        if isinstance(found, ResultTable):
            _print(found)
            continue
        why = found.reason.message
        if isinstance(found, Refusal):
            why = _explained(client, one, found.answer)
        output().print(Text(f"refused: {why}", "red"))
    return all(isinstance(found, ResultTable) for found in given)


def _print(table: ResultTable) -> None:
    console = output()
    for piece in statement_lines(table):
        console.print(piece)


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
        console = output()
        for piece in quoted_lines(quote, statements):
            console.print(piece)
    if isinstance(quote, QuotedBundle):
        return all(query.privacy_loss for query in quote.queries)
    return quote is None


def _explained(client: Client, statement: Statement, answer: RefusedAnswer) -> str:
    """Explains a refusal, and points at the piece if the statement asks one query."""
    message = statement.items[0] if len(statement.items) == 1 else {}
    return _refusal(client, answer, message, [statement.text] if message else [])


@dataclass(frozen=True, slots=True)
class _Precise:
    """The options ``--error`` and ``--at-most``, and the clauses that say the same in SQL."""

    error: float | Mapping[str, float] | None = None
    at_most: float | None = None
    clauses: str = ""

    @classmethod
    def of(cls, error: str | None, at_most: str | None) -> _Precise:
        clauses = f"\nWITHIN {error}" if error else ""
        clauses += f"\nCOSTING AT MOST {at_most}" if at_most else ""
        return cls(
            _read("--error", as_error, error), _read("--at-most", as_at_most, at_most), clauses
        )

    def after(self, query: str) -> str:
        """A query in SQL with the clauses at its end; the line break ends a comment."""
        return f"{query.rstrip().removesuffix(';')}{self.clauses}" if self.clauses else query


def _check_options(kind: str | None, given: Mapping[str, object], query: str | None) -> None:
    """Checks the options of a kind and names a wrong one as the command line writes it."""
    shape = FIELDS[kind or "predicate"]
    if query is None and {"where", "wheres"} & {*shape.needs}:
        raise click.UsageError(f'--kind {kind} needs a condition, such as "age < 30"')
    for name, value in given.items():
        named_in_query = (
            name == "attribute" and query is not None and kind not in ("sum", "quantile")
        )
        option = name.replace("_", "-")
        if name in shape.needs and value is None and not named_in_query:
            raise click.UsageError(f"--kind {kind} needs --{option}")
        if name not in shape.names and value is not None:
            named = {"share": "--share-of", "difference": "a difference"}.get(
                kind or "", f"--kind {kind}"
            )
            problem = f"{named} has no --{option}" if kind else f"--{option} needs --kind"
            raise click.UsageError(problem)


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


def _message(client: Client, dataset: str, asked: Query, texts: Sequence[str]) -> Mapping[str, Any]:
    """Writes the query as a message. An error in its SQL shows the piece that is wrong."""
    for text in texts:
        try:
            client.as_message(dataset, Query(text))
        except InvalidQuery as error:
            raise StreamDPError(pointed_error(text, error)) from None
    return client.as_message(dataset, asked)


def _refusal(
    client: Client, answer: Answer, message: Mapping[str, Any], texts: Sequence[str]
) -> str:
    """Explains a refusal to someone who asked in SQL at a terminal."""
    if not isinstance(answer, RefusedAnswer):
        return ""
    reason = answer.reason
    if reason.code == "no_phase":
        definition = client.definition(answer.dataset)
        rows = rows_of_a_phase(definition)
        waiting = client.waiting().get(answer.dataset, 0)
        if definition.phase.every is not None and waiting >= rows:
            return (
                f"no phase is open yet: {waiting:,} rows of {answer.dataset} wait for the end of their "
                f"period; to end it now: stream-dp phase close {answer.dataset}"
            )
        return (
            f"no phase is open yet: {waiting:,} rows of {answer.dataset} wait, and the first phase opens at "
            f"{rows:,}; send more with: stream-dp ingest FILE --dataset {answer.dataset}"
        )
    if reason.message.startswith("share_of"):
        within = reason.message.replace("share_of", "where", 1)
        of_part = reason.model_copy(update={"message": within})
        return pointed_refusal(texts[-1], message["share_of"], of_part)
    found = re.match(r"wheres\[(\d+)\](.*)", reason.message, re.DOTALL)
    if found is None:
        return pointed_refusal(texts[0] if texts else "", message.get("where"), reason)
    index = int(found[1])
    of_one = reason.model_copy(update={"message": f"where{found[2]}"})
    return pointed_refusal(texts[index], message["wheres"][index], of_one)
