"""``stream-dp doctor``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape

from stream_dp.audit import Report
from stream_dp.broker import Broker
from stream_dp.cli.command_options import (
    GivenServers,
    connected,
    json_option,
    unreachable,
    without_password,
)
from stream_dp.cli.operate.doctor_finding import DoctorFinding, bad, fault_of, good, note
from stream_dp.cli.operate.ledger_command import published, reports
from stream_dp.cli.terminal import many
from stream_dp.cli.text.reply_text import busy
from stream_dp.client.budget.odometer import Odometer
from stream_dp.client.kafka.deployment_topics import (
    TopicState,
    describe_broker,
    describe_topics,
    workers,
)
from stream_dp.display.figure_text import share
from stream_dp.errors import CorruptState, StoreUnavailable, StreamDPError, UnsafeTopics
from stream_dp.messages import (
    FLUSH,
    INPUTS,
    MIN_INSYNC,
    PRIVATE,
    TIMES,
    TOPICS,
    UNCLEAN,
    Definition,
)
from stream_dp.pipeline.watch.health import MOVED
from stream_dp.settings import WorkerSettings
from stream_dp.state.schema import State
from stream_dp.state.view import View

if TYPE_CHECKING:
    from stream_dp.pipeline.journal.journal import Journal
    from stream_dp.pipeline.journal.owned_partition import Owned
    from stream_dp.pipeline.repair.offline import Offline

_PATIENCE_S = 30.0
_READING_S = 600.0
_LONG = 1_000_000  # entries of a partition of the journal
_MOST_SHOWN = 5  # faults of one ledger
_DAY_MS = 86_400_000

_ANOTHER = "under another --topic-prefix: the number can never be lowered"
_REPAIR = "stop all workers and run: stream-dp journal repair"
_RESTART = "find out what it is doing, then restart it"
_DELETES = "Kafka deletes records that must be kept for ever"
_DISK = "a lost disk could take acknowledged records with it"
_LOSES = {
    "cleanup.policy": "Kafka does not keep the records that it must keep",
    "retention.ms": _DELETES,
    "retention.bytes": _DELETES,
    UNCLEAN: _DISK,
    MIN_INSYNC: _DISK,
    FLUSH: "a power failure could take acknowledged records with it",
    TIMES: "Kafka deletes records with old times before anyone reads them",
}
"""setting of a topic -> what a wrong value does."""


_COLOURS = {"good": "green", "note": "yellow", "bad": "red"}


@click.command()
@connected(operator=True)
@json_option("Print JSON, a line for each finding.")
def command(connection: GivenServers, as_json: bool) -> None:
    """Check broker, topics, Redis, rows in files and data sets, and print a fix for each fault.

    The command writes one file of its own where STREAM_DP_ROWS says, and deletes it. It changes nothing else.
    The exit code is 1 if it finds a fault.
    """
    console = Console(highlight=False, soft_wrap=True)
    faults = 0
    with busy("Looking"):
        for finding in _examine(connection):
            faults += finding.health == "bad"
            if as_json:
                click.echo(json.dumps(finding._asdict()))
                continue
            colour = _COLOURS[finding.health]
            console.print(f"[{colour}]{finding.health:4}[/{colour}]  {escape(finding.finding)}")
            if finding.fix:
                console.print(f"      fix: [b]{escape(finding.fix)}[/b]")
    if not as_json:
        passed = "[green]all checks passed[/green]"
        console.print(f"[red]{many(faults, 'fault')} to fix[/red]" if faults else passed)
    sys.exit(1 if faults else 0)


def _examine(connection: GivenServers) -> Iterator[DoctorFinding]:
    settings = connection.operator_settings()
    try:
        servers = connection.broker
        brokers, version = describe_broker(servers)
        topics = describe_topics(servers, connection.topics)
    except StreamDPError as error:
        yield fault_of(error)
        return
    yield good(f"Kafka {version} answers at {servers}")
    yield from _topics(topics, brokers, connection.topics.creating())
    yield _workers(servers, settings)
    yield from _rows(settings)
    states: dict[str, State] = {}
    counts = {topics[role].partitions for role in (*INPUTS, *PRIVATE)}
    if len(counts) == 1 and all(state.partitions for state in topics.values()):
        yield from _inside(connection, settings, states)
    if all(topics[role].partitions for role in ("catalog", "ledger")):
        try:
            yield from _datasets(connection, topics["queries"], states)
        except StreamDPError as error:
            yield fault_of(error)


# ---------------------------------------------------------------- Kafka


def _topics(
    topics: Mapping[str, TopicState], brokers: int, creating: str
) -> Iterator[DoctorFinding]:
    if missing := [state.name for state in topics.values() if state.partitions == 0]:
        yield bad(f"topics are missing: {', '.join(missing)}", creating)
    else:
        yield from _partitions(topics)
    for role, state in topics.items():
        yield from _settings_of(role, state, creating)
    kept = (topics[role] for role in ("journal", "blocks", "ledger", "batches"))
    single = [state.name for state in kept if state.replicas == 1]
    if brokers > 1 and single:
        yield note(
            f"{', '.join(single)} have one replica on {brokers} brokers: a lost disk loses them",
            "raise their replication with kafka-reassign-partitions.sh",
        )


def _settings_of(role: str, state: TopicState, creating: str) -> Iterator[DoctorFinding]:
    for setting, (found, wanted) in state.wrong.items():
        text = f"{state.name} has {setting} {found}, not {wanted}"
        if setting in state.needed(role):
            stops = ", and no worker runs" if role in PRIVATE else ""
            yield bad(f"{text}: {_LOSES[setting]}{stops}", creating)
        else:
            kind = bad if setting == "cleanup.policy" else note
            yield kind(text, _set(state, setting, wanted))


def _partitions(topics: Mapping[str, TopicState]) -> Iterator[DoctorFinding]:
    counts = {topics[role].name: topics[role].partitions for role in INPUTS}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in counts.items())
        yield bad(
            f"the input topics differ in their number of partitions: {shown}",
            f"create them again {_ANOTHER}",
        )
        return
    count = topics["queries"].partitions
    yield good(f"all {len(topics)} topics exist; the inputs have {count} partitions each")
    for state in (topics[role] for role in PRIVATE):
        if state.partitions != count:
            more = f"kafka-topics.sh --alter --topic {state.name} --partitions {count}"
            yield bad(
                f"{state.name} has {state.partitions} partitions and the inputs have {count}, so no "
                "worker serves them",
                more if state.partitions < count else f"create the topics again {_ANOTHER}",
            )


def _set(topic: TopicState, setting: str, value: object) -> str:
    """The command that changes a setting of a topic."""
    return f"kafka-configs.sh --alter --topic {topic.name} --add-config {setting}={value}"


def _rows(settings: WorkerSettings) -> Iterator[DoctorFinding]:
    if settings.rows is not None or settings.count_with is not None:
        from stream_dp.cli.operate import row_store

        yield from row_store.findings(settings)


def _workers(servers: Broker, settings: WorkerSettings) -> DoctorFinding:
    try:
        found = workers(servers, settings.group_id)
    except StreamDPError as error:
        return note(f"the broker does not say whether a worker runs: {error}")
    if found:
        return good(f"{many(len(found), 'worker')} in the group {settings.group_id}")
    return note(
        f"no worker runs: nobody has joined the group {settings.group_id}",
        "run `stream-dp worker` or `stream-dp up`",
    )


# ---------------------------------------------------------------- Redis


def _inside(
    connection: GivenServers, settings: WorkerSettings, states: dict[str, State]
) -> list[DoctorFinding]:
    """Checks what operators alone may read: the journal and Redis. It only reads.

    Args:
        connection: The servers.
        settings: Those of a worker.
        states: Takes what the journal has of each data set.
    """
    from stream_dp.cli.operate.stopped_workers import deployment

    findings: list[DoctorFinding] = []  # what there is stays when time is up

    async def read(url: str) -> None:
        async with deployment(connection, idle=False) as tools:
            await _journal(tools, states, findings)
            await _redis(tools.view, url, settings, states, findings)

    try:
        url = connection.redis_url
    except StreamDPError:
        fix = "if you are an operator, pass --redis-url to check them"
        return [note("the journal and Redis were not checked", fix)]
    try:
        asyncio.run(asyncio.wait_for(read(url), _READING_S))
    except TimeoutError:
        fault = f"the broker has not given the journal for {_READING_S:g} seconds"
        findings.append(bad(fault, _RESTART))
    except UnsafeTopics:
        fault = "the journal and Redis were not checked, for a setting of a topic is not safe"
        findings.append(note(fault))
    except StreamDPError as error:
        findings.append(fault_of(error))
    return findings


async def _redis(
    redis: View,
    url: str,
    settings: WorkerSettings,
    states: Mapping[str, State],
    findings: list[DoctorFinding],
) -> None:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await redis.usage()
            findings.append(good(f"Redis answers at {without_password(url)}"))
            for name, state in sorted(states.items()):
                if not state.fact("moved"):
                    findings.append(await _followed(redis, name, state))
    except TimeoutError:
        fault = f"Redis accepted the connection but has not answered for {_PATIENCE_S:g} seconds"
        findings.append(bad(fault, _RESTART))
    except StoreUnavailable:
        fault, fix = unreachable(url, cluster=settings.redis_cluster)
        fault = f"{fault}; workers go on, and read from the topics what they would read there"
        findings.append(bad(fault, fix))
    except StreamDPError as error:
        fix = "fix its access rights, or pass another --redis-url"
        findings.append(bad(f"Redis refuses: {error}", fix))


async def _followed(opened: View, name: str, state: State) -> DoctorFinding:
    """Says how far Redis is behind the journal, and whether what it has is right."""
    place = (await opened.place([name])).get(name)
    if place is None:
        return note(f"{name}: Redis has nothing of it; a worker that serves it writes it there")
    if await opened.state(name) is None:
        return note(
            f"{name}: what Redis has of it is wrong, and a repair of the journal could not begin with it",
            "delete its key of that name, and a worker writes it again within a minute: redis-cli --scan "
            f"--pattern '*:{name}}}:state'",
        )
    if (behind := state.number - place[0]) > 0:
        return note(f"{name}: Redis is {behind:,} commits behind the journal")
    return good(f"{name}: Redis has the {state.number:,} commits of the journal")


# ---------------------------------------------------------------- the journal


async def _journal(tools: Offline, states: dict[str, State], findings: list[DoctorFinding]) -> None:
    """Reads the journal as it is now, and says what of it cannot be served."""
    from stream_dp.pipeline.journal.owned_partition import OtherTopics

    journal = tools.journal()
    for partition in range(journal.partitions):
        try:
            owned, cut, problems = await _looked(journal, partition, states)
        except OtherTopics as error:
            findings.append(bad(*str(error).split(". ", 1)))
            return  # all partitions say the same
        if cut:
            fix = "put the topic back if you can, or stop all workers and run: stream-dp journal repair"
            findings.append(bad(cut, f"{fix} --partition {partition}"))
        findings += _cut_inputs(owned)
        for name, why in problems.items():
            fault = f"the journal has {name}, and it is not whole: {why}"
            findings.append(bad(fault, _way_on(why)))
        findings.append(_length(owned))


async def _looked(
    journal: Journal, partition: int, states: dict[str, State]
) -> tuple[Owned, str, dict[str, str]]:
    """Looks at a partition, twice if something is wrong: a worker may delete entries meanwhile.

    Returns:
        What it holds, why it counts as cut, and what is wrong with each data set.
    """
    from stream_dp.pipeline.journal.owned_partition import JournalCut

    for _ in range(2):
        owned, cut, problems = await journal.look(partition), "", dict[str, str]()
        try:
            await journal.check(owned)
        except JournalCut as error:
            cut = str(error).partition(" Restore the topic")[0]
        for name, chain in sorted(owned.chains.items()):
            try:
                states[name] = chain.build()
            except CorruptState as error:
                problems[name] = str(error)
        if not (cut or problems):
            break
    return owned, cut, problems


def _cut_inputs(owned: Owned) -> Iterator[DoctorFinding]:
    for place, read in owned.marks.cut.items():
        way = f"stream-dp journal repair --input {place} --apply"
        yield bad(
            f"{place} was read to offset {read:,} and was cut, so no worker reads it; all others are served",
            f"put the topic back if you can, and run: {way} --restored; if you cannot, run: {way}",
        )


def _length(owned: Owned) -> DoctorFinding:
    """Says how long a partition of the journal is, and what keeps it so long."""
    entries, tail = owned.expected - owned.first, owned.expected - max(owned.begin, owned.first)
    said = (
        f"partition {owned.partition} of the journal has {entries:,} entries, of which a worker reads "
        f"{tail:,} at its start"
    )
    kept = sum(chain.ids.below(owned.begin) for chain in owned.chains.values())
    if entries > _LONG and kept:
        return note(
            f"{said}. It is so long because {kept:,} answers and outcomes of batches are kept",
            "see docs/operations.md, 'The length of the journal'",
        )
    return good(said)


def _stopped(name: str, why: str) -> DoctorFinding:
    """Says why nobody serves a data set here. That is as it should be if it has moved away."""
    said = f"{name} is stopped: {why}"
    return note(said) if MOVED in why else bad(said, _way_on(why))


def _way_on(why: str) -> str:
    """What to do next about a data set that is stopped."""
    if "journal repair" in why or "commit" in why or "decode" in why:
        return _REPAIR
    return "restore what it names, and start its worker again; the next event of the data set clears this"


# ---------------------------------------------------------------- data sets


def _datasets(
    connection: GivenServers, queries: TopicState, states: Mapping[str, State]
) -> Iterator[DoctorFinding]:
    with connection.client() as client:
        catalog, entries = published(client)
        stopped = client.stopped()
    for name, why in sorted(stopped.items()):
        yield _stopped(name, why)
    for report in reports(catalog, entries, sorted(catalog.keys() | entries.keys())):
        name = report.dataset
        yield from _prices(report)
        if report.faults:
            continue
        if name in catalog:
            yield _spent(name, entries[name])
            yield from _answers(name, catalog[name], queries)
        if name in states:
            yield _compared(entries[name], states[name])


def _prices(report: Report) -> Iterator[DoctorFinding]:
    name = report.dataset
    for finding in report.faults[:_MOST_SHOWN]:
        yield bad(
            f"{name}: the published ledger has a fault: {finding}",
            f"run `stream-dp ledger verify {name}`, which shows all, and find out who wrote to the topic",
        )
    for finding in report.notes[:_MOST_SHOWN]:
        yield note(f"{name}: {finding}")


def _compared(on_topic: Sequence[bytes], state: State) -> DoctorFinding:
    """Compares what the journal says is spent, and how its ledger goes, with the ledger on the topic."""
    from stream_dp.pipeline.repair.write_off import lacking, unlike

    name = state.dataset
    if count := lacking(state, on_topic):
        return note(
            f"{name}: {count:,} entries of its ledger are not on the topic yet",
            "if that does not change, start its worker again, which sends them",
        )
    if why := unlike(state, on_topic):
        return bad(f"{name}: {why}", _REPAIR)
    return good(
        f"{name}: the sums on the journal match its ledger, which has every entry of the topic"
    )


def _answers(name: str, definition: Definition, queries: TopicState) -> Iterator[DoctorFinding]:
    days = definition.kept_answers_days
    found, _ = queries.wrong.get("retention.ms", (TOPICS["queries"].retention_ms, ""))
    if days is None or 0 <= int(found) <= days * _DAY_MS:
        return
    kept = "for ever" if int(found) < 0 else f"for {int(found) / _DAY_MS:g} days"
    yield note(
        f"{name}: answers are stored for at least {days} days, and {queries.name} keeps queries {kept}: one "
        "that is read again from there may be a new query, and pay again",
        _set(queries, "retention.ms", days * _DAY_MS),
    )


def _spent(name: str, entries: Sequence[bytes]) -> DoctorFinding:
    odometer = Odometer.read([json.loads(entry) for entry in entries])
    phases, most = many(len(odometer.blocks), "phase"), share(odometer.most_spent)
    return good(
        f"{name}: {phases}, {odometer.rows:,} rows, at most {most} of a phase's budget spent; its ledger is "
        f"intact ({len(entries):,} entries), and every price is right"
    )
