"""``stream-dp person``: erase persons, and look for what is still there of one."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from rich.markup import escape

from stream_dp.calendar_periods import span_of, zone_of
from stream_dp.cli.command_options import FILE, PERSON_KEY, GivenServers, connected, json_option
from stream_dp.cli.terminal import many, note, show, show_json
from stream_dp.cli.text.progress_bar import bar, late_bar
from stream_dp.cli.text.reply_text import bare_table, busy, numbers
from stream_dp.display.phase_words import phases
from stream_dp.errors import InvalidInput, RequestTimeout, ServerUnavailable, StreamDPError
from stream_dp.messages import TOPICS, Definition, Event

if TYPE_CHECKING:
    from stream_dp.client import AcceptedChanges, Client
    from stream_dp.client.kafka.deployment_topics import TopicState
    from stream_dp.pipeline.repair.offline import Offline
    from stream_dp.pipeline.repair.person_traces import PersonSearch, SoughtPerson
    from stream_dp.pipeline.rows.slab_files import SlabFiles
    from stream_dp.settings import WorkerSettings

_TIMEOUT_S = 60.0
"""The seconds to wait for each batch of a request."""
_ROWS_AT_ONCE = 20_000
_STAYS = (
    "source topics, backups, exports and published numbers stay as they are: see docs/erasure.md"
)


@click.group()
def command() -> None:
    """Erase persons, and look for what is still there of one."""


@command.command()
@connected("name")
@click.option("--key", "keys", multiple=True, help="The key of a person. May be repeated.")
@click.option(
    "--file",
    type=FILE,
    help="A file of keys: .txt with one a line, or .csv, .tsv, .ndjson or .parquet with a column of them.",
)
@click.option(
    "--column",
    help="The column of the keys in the file.  [default: the one that says whose a row is]",
)
@click.option(
    "--forget",
    is_flag=True,
    help="Where the promise is for life: forget, too, how much of it these persons have used. Who comes back "
    "then has the whole promise again.",
)
@click.option("--wait", is_flag=True, help="Wait for the receipt, which may take hours.")
@click.option(
    "--receipt",
    "to_file",
    type=click.File("w", lazy=False),
    metavar="FILE",
    help="Wait for the receipt, and write it to FILE as JSON.",
)
@click.option("--now", is_flag=True, help="Have the sweep begin now, and wait for the receipt.")
@json_option("Print one JSON document at the end.")
def erase(
    connection: GivenServers,
    name: str,
    keys: tuple[str, ...],
    file: Path | None,
    column: str | None,
    forget: bool,
    wait: bool,
    to_file: IO[str] | None,
    now: bool,
    as_json: bool,
) -> None:
    """Erase persons, with all rows that came before, from data set NAME.

    Workers make the changes in a sweep, at a public time. Nobody is told whether a person was there: what is
    printed, and the signed receipt, say the same in both cases. Rows that a person sends later count again.
    """
    with connection.client() as client:
        definition = client.definition(name)
        persons = [*keys, *_of_file(definition, file, column)]
        if not persons:
            raise click.UsageError("pass --key, or --file with at least one key")
        accepted = _erased(client, name, persons, forget=forget)
        by = _by(definition, accepted.due)
        if not as_json:
            whom = "this person" if len(persons) == 1 else f"these {len(persons):,} persons"
            click.echo(f"accepted: what there is of {whom} is erased by {by} at the latest")
        note(_STAYS)
        receipt = None
        if now:
            client.sweep(name)
        if now or wait or to_file is not None:
            with busy("Waiting for the sweep"):
                receipt = client.receipt(name, *accepted.change_numbers)
    document = {} if receipt is None else json.loads(receipt.to_bytes())
    if to_file is not None:
        to_file.write(f"{json.dumps(document)}\n")
    if as_json:
        show_json([_facts(name, persons, accepted, by, document)])
    elif receipt is not None:
        click.echo(_receipt_line(receipt))


def _of_file(definition: Definition, file: Path | None, column: str | None) -> Sequence[object]:
    """The keys in a file."""
    if file is None:
        if column is not None:
            raise click.UsageError("--column goes with --file")
        return ()
    unit = definition.privacy.unit
    return person_keys(file, column or ("" if unit is None else unit.key))


def person_keys(file: Path, column: str) -> list[Any]:
    """Returns the keys in a file, without the empty ones.

    Args:
        file: A text file (.txt) with a key on each line, or a file that ``ingest`` reads.
        column: The column of the keys. A text file has none.

    Raises:
        InvalidInput: The file cannot be read, or has no such column. The error quotes no line of it.
    """
    if file.suffix.lower() == ".txt":
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise InvalidInput(file.name, "it is not UTF-8", "save it in UTF-8") from None
        return [key for line in lines if (key := line.strip())]
    from stream_dp.cli.files.file_columns import FileColumns
    from stream_dp.cli.files.reading_options import FileReading

    read = FileColumns(file, {"key": column}, FileReading(), person=None, listed={})
    if column not in read.names():  # its first line may be a key
        raise InvalidInput(
            "--column",
            f"{file.name} has no column {column}",
            "name the column of the keys, or write one key a line to a .txt file",
        )
    return [key for some, _ in read.read(_ROWS_AT_ONCE) for key in some["key"] if key is not None]


def _erased(
    client: Client, name: str, persons: Sequence[object], *, forget: bool
) -> AcceptedChanges:
    """Sends the request, and says how to go on if that is cut short."""
    with late_bar(f"Sending {many(len(persons), 'key')}", len(persons)) as advance:

        def count(event: Event) -> None:
            advance(event.changes or 0)

        try:
            return client.erase(
                name, persons, forget=forget, timeout_s=_TIMEOUT_S, on_accepted=count
            )
        except (KeyboardInterrupt, ServerUnavailable, RequestTimeout) as error:
            why = str(error) or "stopped"
            raise StreamDPError(
                f"{why}; run the same command again: a person may be erased twice"
            ) from None


def _by(definition: Definition, due: str | None) -> str:
    """When a request is done at the latest, by the clocks of the data set."""
    assert definition.erasure is not None, "the request was accepted"
    assert due is not None, "the request has an id of its own"
    timezone = definition.phase.timezone
    begins_ms, _ = span_of(due, zone_of(timezone))
    ends_ms = begins_ms + 2 * definition.erasure.sweep_ms
    ends = datetime.fromtimestamp(-(-ends_ms // 60_000) * 60, zone_of(timezone))
    return f"{ends:%Y-%m-%d %H:%M} {timezone or 'UTC'}"


def _receipt_line(receipt: Event) -> str:
    where = "in rows that wait"
    if receipt.phases is not None:
        where = f"in {phases(receipt.phases)} and {where}"
    return (
        f"receipt: sweep {receipt.sweep} of {receipt.dataset} made {many(receipt.changes or 0, 'change')} "
        f"{where}, at {receipt.at}; the signature is that of the data set: {receipt.signature}"
    )


def _facts(
    name: str,
    persons: Sequence[object],
    accepted: AcceptedChanges,
    by: str,
    receipt: dict[str, Any],
) -> dict[str, object]:
    """The request, as a document."""
    return {
        "dataset": name,
        "persons": len(persons),
        "batches": [event.batch for event in accepted.events],
        "change_numbers": accepted.change_numbers,
        "due": accepted.due,
        "erased_by": by,
        **({"receipt": receipt} if receipt else {}),
    }


# ---------------------------------------------------------------- what is still there


@command.command()
@connected("name", operator=True)
@click.option("--key", required=True, help="The key of the person, as rows have it.")
def check(connection: GivenServers, name: str, key: str) -> None:
    """Say where something of a person still is in data set NAME.

    The command reads Redis, all records of the data set on the topics of blocks and batches, and the files of
    STREAM_DP_ROWS. It reads records that were erased and that the broker still has, and changes nothing. It
    needs the STREAM_DP_PERSON_KEY_FILE of the workers; it finds that of `up` by itself. The exit code is 1 if
    it finds something.
    """
    from stream_dp.cli.operate.stopped_workers import run
    from stream_dp.client.kafka.deployment_topics import describe_topics
    from stream_dp.pipeline.rows.slab_files import files_of

    settings = connection.operator_settings()
    person = _sought(connection, settings, name, key)
    states = describe_topics(connection.broker, connection.topics)
    step = partial(_searched, name=name, person=person, files=files_of(settings))
    search = run(connection, step, idle=False)
    read = ", ".join(f"{what}: {count:,}" for what, count in search.read.items())
    if not search.traces:
        click.echo(f"nothing of this person is kept; {read}")
        return
    table = bare_table("place", "what", *numbers("slots"), "what to do")
    for place, what, slots, state in search.traces:
        table.add_row(place, escape(what), f"{slots:,}", _advice(state, name, states))
    show(table)
    click.echo(read)
    sys.exit(1)


def _sought(
    connection: GivenServers, settings: WorkerSettings, name: str, key: str
) -> SoughtPerson:
    """The person, as the data set knows them.

    Raises:
        InvalidInput: There is no such data set, nobody can be erased from it, or there is no key or key file.
        WrongKeyFile: The data set was defined with another key file.
    """
    from stream_dp.core.randomness.noise_sources import PooledNoise
    from stream_dp.core.rows.person_slots import PersonSecret
    from stream_dp.errors import WrongKeyFile
    from stream_dp.pipeline.repair.person_traces import sought
    from stream_dp.receipts import public_key

    with busy("Reading the ledger"), connection.client() as client:
        entries = client.ledger(name)
        if not entries:
            client.definition(name)  # it says which data sets there are
    public = entries[0].get("receipts") if entries else None
    if public is None:
        problem = "its definition has no erasure, so nobody can be erased from it"
        raise InvalidInput("NAME", f"{name}: {problem}", "name another data set")
    key_file = settings.person_key()
    if key_file is None:
        raise InvalidInput(
            PERSON_KEY,
            "it is not set, and only with this file a person can be told from others",
            "set it to the file that the workers have",
        )
    secret = PersonSecret.new(PooledNoise(), name, key_file).value
    if public_key(secret) != public:
        raise WrongKeyFile(name)
    return sought(key, entries[0]["definition"]["privacy"]["unit"]["key"], secret)


async def _searched(
    tools: Offline, *, name: str, person: SoughtPerson, files: SlabFiles | None
) -> PersonSearch:
    """Looks everywhere."""
    from stream_dp.pipeline.repair.person_traces import PersonSearch

    search = PersonSearch(tools, name, person)
    with busy("Reading the journal"):
        await search.begin(files)
    with busy("Reading Redis"):
        await search.in_redis()
    with busy("Reading the topic of batches"):
        await search.on_batches()
    with busy("Reading the topic of blocks"):
        await search.on_blocks()
    if files is not None:
        with bar() as progress:
            search.in_files(files, partial(progress.track, description="Reading files"))
    return search


def _advice(state: str, name: str, topics: dict[str, TopicState]) -> str:
    """What to do about something that is still there."""

    def when(role: str, setting: str) -> str:
        wanted = TOPICS[role].config()[setting]
        found, _ = topics[role].wrong.get(setting, (wanted, ""))
        hours = timedelta(milliseconds=int(found)) / timedelta(hours=1)
        return f"does so within {hours:g} hours" if hours >= 0 else "never does"

    return {
        "kept": f"wait for the receipt, if you have erased the person; else: stream-dp person erase {name}",
        "for life": f"it stays, because the promise is for life, or: stream-dp person erase {name} --forget",
        "late": "a worker erases it when no more rows come to that phase",
        "erasing": "a worker erases it next; check again in a minute",
        "erased": "the broker has not compacted it yet; it "
        f"{when('blocks', 'max.compaction.lag.ms')}",
        "unnamed": "a worker died before it named it; another one erases it with one of the next sweeps",
        "behind": "Redis follows the workers within a minute; if it does not: stream-dp doctor",
        "batch": "a worker deletes it after the next sweep; the broker "
        f"{when('batches', 'retention.ms')}",
    }[state]
