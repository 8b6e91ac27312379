"""``stream-dp doctor``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from importlib import metadata
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape

from stream_dp.audit import Report
from stream_dp.broker import Broker
from stream_dp.cli.connection import (
    Connection,
    connected,
    unreachable,
    view,
    without_password,
)
from stream_dp.cli.ledger import published, reports
from stream_dp.cli.rendering import busy, share
from stream_dp.client.odometer import Odometer
from stream_dp.client.topics import (
    TopicState,
    dated_by_producers,
    describe_broker,
    describe_source,
    describe_topics,
    workers,
)
from stream_dp.errors import CorruptState, StoreUnavailable, StreamDPError
from stream_dp.messages import (
    FLUSH,
    INPUTS,
    MIN_INSYNC,
    PRIVATE,
    TIMES,
    TOPICS,
    UNCLEAN,
    Definition,
    sources_in,
)
from stream_dp.pipeline.health import MOVED
from stream_dp.settings import WorkerSettings, worker_settings
from stream_dp.state import ledger
from stream_dp.state.schema import State, Table
from stream_dp.state.view import Usage

if TYPE_CHECKING:
    from stream_dp.cli.lengths import Length
    from stream_dp.pipeline.journal import Owned
    from stream_dp.state.redis_view import RedisView

__all__ = ["command"]

_OLDEST_KAFKA = (3, 0)
_OLDEST_REDIS = 7
_LOW = 0.9
_FULL = 0.8
_PATIENCE_S = 30.0
_READING_S = 600.0
_LONG = 1_000_000  # entries of a partition of the journal
_MOST_SHOWN = 5
_DAY_MS = 86_400_000
"""The largest number of faults that are shown of one ledger."""


_LOSES = {
    "cleanup.policy": "Kafka does not keep the records that it must keep",
    "retention.ms": "Kafka deletes records that must be kept for ever",
    "retention.bytes": "Kafka deletes records that must be kept for ever",
    UNCLEAN: "a lost disk could take acknowledged records with it",
    MIN_INSYNC: "a lost disk could take acknowledged records with it",
    FLUSH: "a power failure could take acknowledged records with it",
    TIMES: "Kafka deletes records with old times before anyone reads them",
}
"""setting of a topic -> what a wrong value does."""


class _Health(Enum):
    GOOD = "good"
    NOTE = "note"
    BAD = "bad"


_COLOURS = {_Health.GOOD: "green", _Health.NOTE: "yellow", _Health.BAD: "red"}


@dataclass(frozen=True)
class _Finding:
    health: _Health
    text: str
    fix: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)


def _good(text: str, **facts: object) -> _Finding:
    return _Finding(_Health.GOOD, text, facts=facts)


def _note(text: str, fix: str = "") -> _Finding:
    return _Finding(_Health.NOTE, text, fix)


def _bad(text: str, fix: str, **facts: object) -> _Finding:
    return _Finding(_Health.BAD, text, fix, facts)


def _split(problem: str) -> tuple[str, str]:
    """Splits a sentence into the fault and its fix."""
    fault, _, fix = problem.partition("; ")
    return fault, fix


@click.command()
@connected(operator=True)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document a line for each finding."
)
def command(connection: Connection, as_json: bool) -> None:  # noqa: FBT001 - click
    """Check packages, broker, topics, Redis and data sets, and print a fix for each fault.

    The command changes nothing. The exit code is 1 if it finds a fault. A note is not a fault.
    """
    console = Console(highlight=False, soft_wrap=True)
    with busy("Looking"):
        findings = []
        for finding in _examine(connection):
            findings.append(finding)
            if as_json:
                facts = {
                    "health": finding.health.value,
                    "finding": finding.text,
                    "fix": finding.fix,
                    **finding.facts,
                }
                click.echo(json.dumps(facts))
            else:
                _print(console, finding)
    faults = sum(finding.health is _Health.BAD for finding in findings)
    if not as_json:
        console.print(
            f"[red]{faults} fault{'s' * (faults > 1)} to fix[/red]"
            if faults
            else "[green]all checks passed[/green]"
        )
    sys.exit(1 if faults else 0)


def _print(console: Console, finding: _Finding) -> None:
    colour = _COLOURS[finding.health]
    console.print(f"[{colour}]{finding.health.value:4}[/{colour}]  {escape(finding.text)}")
    if finding.fix:
        console.print(f"      fix: [b]{escape(finding.fix)}[/b]")


def _examine(connection: Connection) -> Iterator[_Finding]:
    yield from _packages()
    settings = worker_settings(topic_prefix=connection.topic_prefix)
    topics: dict[str, TopicState] = {}
    try:
        servers = connection.broker
        broker = describe_broker(servers)
        topics = describe_topics(servers, connection.topics)
    except StreamDPError as error:
        yield _bad(*_split(str(error)))
    else:
        version = ".".join(map(str, broker.version))
        if broker.version < _OLDEST_KAFKA:
            yield _note(f"Kafka at {servers} is {version}, which was never tested", "run Kafka 4")
        else:
            yield _good(f"Kafka {version} answers at {servers}")
        yield from _topics(topics, broker.brokers, connection.topics.creating())
        yield from _identity(settings, topics["queries"])
        yield _workers(servers, settings)
    states: dict[str, State] = {}
    if topics and all(topics[role].partitions for role in PRIVATE):
        yield from _collected(
            _journal(connection, topics, states), _READING_S, "the broker has not given the journal"
        )
    yield from _collected(
        _redis(connection, settings, states),
        _PATIENCE_S,
        "Redis accepted the connection but has not answered",
    )
    if topics and all(topics[role].partitions for role in ("catalog", "ledger")):
        try:
            yield from _datasets(connection, topics["queries"], states)
        except StreamDPError as error:
            yield _bad(*_split(str(error)))


# ---------------------------------------------------------------- what is installed


def _packages() -> Iterator[_Finding]:
    """Checks the packages that are pinned exactly, because we rely on their tested behaviour."""
    wrong = []
    for requirement in metadata.requires("stream-dp") or ():
        name, pinned, version = requirement.partition(";")[0].strip().partition("==")
        if not pinned or "extra" in requirement:
            continue
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = "missing"
        if found != version:
            wrong.append(f"{name} is {found} and must be {version}")
    if wrong:
        yield _bad("; ".join(wrong), "pip install --force-reinstall stream-dp")
    else:
        yield _good(
            f"stream-dp {metadata.version('stream-dp')} has the packages it was tested with"
        )


# ---------------------------------------------------------------- Kafka


def _topics(topics: Mapping[str, TopicState], brokers: int, creating: str) -> Iterator[_Finding]:
    missing = [state.name for state in topics.values() if state.partitions == 0]
    if missing:
        yield _bad(f"topics are missing: {', '.join(missing)}", creating)
    for role, state in topics.items():
        for setting, (found, wanted) in state.wrong.items():
            yield _setting(role, state, setting, found, wanted, creating)
    counts = {topics[role].name: topics[role].partitions for role in INPUTS}
    if not missing and len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in counts.items())
        yield _bad(
            f"the input topics differ in their number of partitions: {shown}",
            "create them again under another --topic-prefix: the number can never be lowered",
        )
    elif not missing:
        count = topics["queries"].partitions
        yield _good(f"all {len(topics)} topics exist; the inputs have {count} partitions each")
        for state in (topics[role] for role in PRIVATE):
            if state.partitions != count:
                yield _bad(
                    f"{state.name} has {state.partitions} partitions and the inputs have {count}, so no "
                    "worker serves them",
                    f"kafka-topics.sh --alter --topic {state.name} --partitions {count}"
                    if state.partitions < count
                    else "create the topics again under another --topic-prefix: the number can never be "
                    "lowered",
                )
    single = [
        topics[role].name
        for role in ("journal", "blocks", "ledger", "batches")
        if topics[role].replicas == 1
    ]
    if brokers > 1 and single:
        yield _note(
            f"{', '.join(single)} have one replica on {brokers} brokers: a lost disk loses them",
            "raise their replication with kafka-reassign-partitions.sh",
        )


def _identity(settings: WorkerSettings, queries: TopicState) -> Iterator[_Finding]:
    """Checks what workers need to tell who asks, where they have to."""
    from stream_dp.pipeline.connecting import verifier_of

    try:
        verifier = verifier_of(settings)
        if verifier is None:
            return
        verifier.load()
    except StreamDPError as error:
        yield _bad(f"no worker starts that asks for signed tokens: {error}", "fix that setting")
    else:
        keys = f"{verifier.n_keys} key{'s' * (verifier.n_keys > 1)}"
        yield _good(
            f"queries need a signed token; they are verified with {keys}", keys=verifier.n_keys
        )
    if TIMES in queries.wrong:
        yield _bad(
            f"senders choose the times of {queries.name}, so a token that has expired would still do, "
            "and no worker starts that asks for tokens",
            "stream-dp topics create",
        )


def _setting(
    role: str, state: TopicState, setting: str, found: str, wanted: str, creating: str
) -> _Finding:
    fix = f"kafka-configs.sh --alter --topic {state.name} --add-config {setting}={wanted}"
    text = f"{state.name} has {setting} {found}, not {wanted}"
    if setting in state.needed(role):
        stops = ", and no worker runs" if role in PRIVATE else ""
        return _bad(f"{text}: {_LOSES[setting]}{stops}", creating)
    if setting == "cleanup.policy":
        return _bad(text, fix)
    if setting == "retention.ms" and role in INPUTS and 0 <= int(found) < int(wanted):
        hours = int(found) / 3_600_000
        return _note(
            f"{text}: records that no worker reads within {hours:g} hours never count", fix
        )
    return _note(text, fix)


def _workers(servers: Broker, settings: WorkerSettings) -> _Finding:
    try:
        found = workers(servers, settings.group_id)
    except StreamDPError as error:
        return _note(f"the broker does not say whether a worker runs: {error}")
    if not found:
        return _note(
            f"no worker runs: nobody has joined the group {settings.group_id}",
            "run `stream-dp worker` or `stream-dp up`",
        )
    return _good(f"{len(found)} worker{'s' * (len(found) > 1)} in the group {settings.group_id}")


# ---------------------------------------------------------------- Redis


def _collected(findings: AsyncIterator[_Finding], patience_s: float, fault: str) -> list[_Finding]:
    collected: list[_Finding] = []

    async def collect() -> None:
        async for finding in findings:
            collected.append(finding)  # noqa: PERF401 - findings stay when time is up

    try:
        asyncio.run(asyncio.wait_for(collect(), patience_s))
    except TimeoutError:
        fault = f"{fault} for {patience_s:g} seconds"
        collected.append(_bad(fault, "find out what it is doing, then restart it"))
    return collected


async def _redis(
    connection: Connection, settings: WorkerSettings, states: Mapping[str, State]
) -> AsyncIterator[_Finding]:
    try:
        url = connection.redis_url
    except StreamDPError:
        yield _note("Redis was not checked", "if you are an operator, pass --redis-url to check it")
        return
    opened = view(connection)
    try:
        used = await opened.usage()
        yield _redis_version(url, used)
        yield _usage(used)
        for name, state in sorted(states.items()):
            yield await _followed(opened, name, state)
    except StoreUnavailable:
        fault, fix = unreachable(url, cluster=settings.redis_cluster)
        yield _bad(
            f"{fault}; workers go on, and read from the topics what they would read there", fix
        )
    except StreamDPError as error:
        yield _bad(f"Redis refuses: {error}", "fix its access rights, or pass another --redis-url")
    finally:
        await opened.close()


def _redis_version(url: str, used: Usage) -> _Finding:
    if used.release < _OLDEST_REDIS:
        return _bad(f"{used.server} is too old", "run Redis 7 or newer, or Valkey 8 or newer")
    return _good(f"{used.server} answers at {without_password(url)}")


def _usage(used: Usage) -> _Finding:
    """Says how much of its memory Redis has used."""
    limit = "its limit (maxmemory)" if used.limited else "its host's memory, as it has no maxmemory"
    text = (
        f"Redis uses {_bytes(used.memory)} of memory, {share(used.share)} of {limit}, "
        f"{_bytes(used.limit)}"
    )
    if used.evicts:
        return _note(f"{text}; it drops keys at its limit, and reads then come from the topics")
    if used.share > _FULL:
        return _note(
            f"{text}; when it is full it takes no more writes, and reads come from the topics",
            "give it more memory, or let it evict: redis-cli CONFIG SET maxmemory-policy allkeys-lru",
        )
    return _good(text)


async def _followed(opened: RedisView, name: str, state: State) -> _Finding:
    """Says how far Redis is behind the journal, and whether what it has is right."""
    if state.pairs.get((Table.FACT, b"moved")):
        return _good(f"{name} was exported, so Redis needs nothing of it")
    place = (await opened.place([name])).get(name)
    if place is None:
        return _note(f"{name}: Redis has nothing of it; a worker that serves it writes it there")
    number, _ = place
    if await opened.state(name) is None:
        return _note(
            f"{name}: what Redis has of it is wrong, and a repair of the journal could not begin with it",
            "delete its key of that name, and a worker writes it again within a minute: redis-cli --scan "
            f"--pattern '*:{name}}}:state'",
        )
    if number < state.number:
        return _note(f"{name}: Redis is {state.number - number:,} commits behind the journal")
    return _good(f"{name}: Redis has the {state.number:,} commits of the journal")


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


# ---------------------------------------------------------------- the journal


async def _journal(
    connection: Connection, topics: Mapping[str, TopicState], states: dict[str, State]
) -> AsyncIterator[_Finding]:
    """Reads the journal as it is now, and says what of it cannot be served. It only reads.

    Args:
        connection: The servers.
        topics: The topics.
        states: Takes what the journal has of each data set.
    """
    from stream_dp.cli.lengths import length_of
    from stream_dp.pipeline.fetching import Fetcher
    from stream_dp.pipeline.fuse import unarmed
    from stream_dp.pipeline.journal import COMPARED, Journal, JournalCut, OtherTopics, facts_of
    from stream_dp.pipeline.logs import KafkaLog
    from stream_dp.pipeline.watchdog import Heartbeat

    def log(role: str) -> KafkaLog:
        return KafkaLog(connection.broker, topics[role].name, topics[role].partitions, None)

    fetcher = Fetcher(connection.broker, topics["journal"].name)
    journal = Journal(
        log("journal"),
        fetcher,
        facts=facts_of(
            topics["queries"].partitions,
            {role: topics[role].topic_id for role in INPUTS if topics[role].partitions},
        ),
        is_held=lambda _: False,
        outputs=[log(role) for role in COMPARED if topics[role].partitions],
        fuse=unarmed,
        heartbeat=Heartbeat(),
    )
    lengths: list[Length] = []
    try:
        for partition in range(journal.partitions):
            for is_last in (False, True):  # a worker may delete entries meanwhile
                try:
                    owned = await journal.look(partition)
                except OtherTopics as error:
                    yield _bad(*str(error).split(". ", 1))
                    return  # all partitions say the same
                cut = ""
                try:
                    await journal.check(owned)
                except JournalCut as error:
                    cut = str(error).partition(" Restore the topic")[0]
                found = {name: _built(owned, name) for name in owned.chains}
                if is_last or not (cut or None in found.values()):
                    break
            if cut:
                yield _bad(cut, _repairing(partition))
            for finding in _cut_inputs(owned):
                yield finding
            for name in sorted(owned.chains):
                if found[name] is None:
                    why = owned.chains[name].problem
                    yield _bad(
                        f"the journal has {name}, and it is not whole: {why}", _way_on(name, why)
                    )
            states |= {name: state for name, state in found.items() if state is not None}
            lengths.append(length_of(owned, found))
    finally:
        await fetcher.close()
    if lengths:
        yield _long(topics["journal"].name, lengths)


def _built(owned: Owned, name: str) -> State | None:
    try:
        return owned.chains[name].build()
    except CorruptState:
        return None


def _cut_inputs(owned: Owned) -> Iterator[_Finding]:
    from stream_dp.pipeline.ownership import cut_logs

    for place, read in cut_logs(owned.marks.watermarks).items():
        way = f"stream-dp journal mend --input {place} --apply"
        yield _bad(
            f"{place} was read to offset {read:,} and was cut, so no worker reads it; all others are served",
            f"put the topic back if you can, and run: {way} --restored; if you cannot, run: {way}",
        )


def _long(name: str, lengths: Sequence[Length]) -> _Finding:
    """Says how long the journal is, and what keeps it so long."""
    entries, longest = (
        sum(one.entries for one in lengths),
        max(lengths, key=lambda one: one.entries),
    )
    said = (
        f"{name} has {entries:,} entries; of the {longest.entries:,} of partition {longest.partition}, a "
        f"worker reads {longest.tail:,} at its start"
    )
    if longest.stopped:
        return _note(
            f"{said}. It grows until {', '.join(longest.stopped[:_MOST_SHOWN])} can be served",
            _repairing(longest.partition),
        )
    if longest.entries > _LONG and longest.kept:
        return _note(
            f"{said}. It is so long because {longest.kept:,} answers and outcomes of batches are kept",
            "see docs/operations.md, 'The length of the journal'",
        )
    return _good(said)


def _repairing(partition: int) -> str:
    return (
        "put the topic back if you can, or stop all workers and run: stream-dp journal mend --partition "
        f"{partition}"
    )


def _stopped(name: str, why: str) -> _Finding:
    """Says why nobody serves a data set here. That is as it should be if it has moved away."""
    if MOVED in why:
        return _note(f"{name} is stopped: {why}")
    return _bad(f"{name} is stopped: {why}", _way_on(name, why))


def _way_on(name: str, why: str) -> str:
    """What to do next about a data set that is stopped."""
    if "journal mend" in why or "commit" in why or "decode" in why:
        return f"stop all workers and run: stream-dp journal mend --dataset {name}"
    return "restore what it names, and start its worker again; the next event of the data set clears this"


# ---------------------------------------------------------------- data sets


def _datasets(
    connection: Connection, queries: TopicState, states: Mapping[str, State]
) -> Iterator[_Finding]:
    with connection.client() as client:
        catalog, entries = published(client)
        stopped = client.stopped()
    for name, why in sorted(stopped.items()):
        yield _stopped(name, why)
    holding = {}
    for report in reports(catalog, entries, sorted(catalog.keys() | entries.keys())):
        name = report.dataset
        yield from _prices(report)
        if not report.faults:
            holding[name] = entries[name]
            if name in catalog:
                yield from _dataset(name, catalog[name], holding[name])
                yield from _answers(name, catalog[name], queries)
    yield from _sources(connection, catalog, states)
    for name, on_topic in sorted(holding.items()):
        if name in states:
            yield _compared(name, on_topic, states[name])


def _prices(report: Report) -> Iterator[_Finding]:
    name = report.dataset
    for finding in report.faults[:_MOST_SHOWN]:
        yield _bad(
            f"{name}: the published ledger has a fault: {finding}",
            f"run `stream-dp ledger verify {name}`, and find out who wrote to the topic",
        )
    if len(report.faults) > _MOST_SHOWN:
        yield _bad(
            f"{name}: {len(report.faults) - _MOST_SHOWN:,} more entries have a fault",
            f"run `stream-dp ledger verify {name}`",
        )
    for finding in report.notes[:_MOST_SHOWN]:
        yield _note(f"{name}: {finding}")


def _sources(
    connection: Connection, catalog: Mapping[str, Definition], states: Mapping[str, State]
) -> Iterator[_Finding]:
    """Finds sources whose producers choose which period a message counts for."""
    by_calendar = [name for name in sorted(catalog) if catalog[name].phase.calendar is not None]
    for name in by_calendar:
        cursors = states[name].table(Table.CURSOR) if name in states else {}
        for topic in sorted({topic for topic, _ in sources_in(map(bytes.decode, cursors))}):
            source = describe_source(connection.broker, topic)
            said = None if source is None else dated_by_producers(topic, source)
            if said is not None:
                yield _note(f"{name}: {said[0]}", said[1])


def _compared(name: str, on_topic: Sequence[bytes], state: State) -> _Finding:
    """Compares what the journal says is spent, and how its ledger goes, with the ledger on the topic."""
    facts = state.table(Table.FACT)
    count, head = int(facts.get(b"ledger", b"0")), facts.get(b"ledger head", b"")
    if len(on_topic) < count:
        return _note(
            f"{name}: {count - len(on_topic):,} entries of its ledger are not on the topic yet",
            "if that does not change, start its worker again, which sends them",
        )
    fix = f"stop all workers and run: stream-dp journal mend --dataset {name}"
    if reduce(ledger.extend, on_topic[:count], ledger.GENESIS) != bytes.fromhex(head.decode()):
        return _bad(f"{name}: its ledger on the topic is not the one of the journal", fix)
    chain = ledger.Chain(name)
    for entry in on_topic[:count]:
        chain.add(entry)
    spent = [tuple(map(int, one.split())) for one in state.numbered(Table.SPENT)]
    if list(chain.charged) != spent:
        return _bad(f"{name}: what the journal says is spent is not what its ledger charges", fix)
    return _good(
        f"{name}: the sums on the journal match its ledger, which has every entry of the topic"
    )


def _answers(name: str, definition: Definition, queries: TopicState) -> Iterator[_Finding]:
    days = definition.kept_answers_days
    found, _ = queries.wrong.get("retention.ms", (TOPICS["queries"].retention_ms, ""))
    if days is None or 0 <= int(found) <= days * _DAY_MS:
        return
    kept = "for ever" if int(found) < 0 else f"for {int(found) / _DAY_MS:g} days"
    yield _note(
        f"{name}: answers are stored for at least {days} days, and {queries.name} keeps queries {kept}: one "
        "that is read again from there may be a new query, and pay again",
        f"kafka-configs.sh --alter --topic {queries.name} --add-config retention.ms={days * _DAY_MS}",
    )


def _dataset(name: str, definition: Definition, entries: list[bytes]) -> Iterator[_Finding]:
    odometer = Odometer.read([json.loads(entry) for entry in entries])
    if odometer.rows and definition.privacy.delta > 1 / (100 * odometer.rows):
        yield _note(
            f"{name}: delta {definition.privacy.delta:g} is large for {odometer.rows:,} rows; below "
            f"{1 / (100 * odometer.rows):.1g} is usual",
            "choose a smaller privacy.delta for a new data set",
        )
    if odometer.most_spent > _LOW and not definition.mechanism.paid_at_opening:
        spent = [n for n, block in enumerate(odometer.blocks, 1) if block.spent > _LOW]
        yield _note(
            f"{name}: more than {100 * _LOW:.0f}% of the budget is spent on phase "
            f"{', '.join(map(str, spent[:10]))}",
            "ask about windows without these phases, or accept unverified answers and refusals",
        )
    phases, most = len(odometer.blocks), share(odometer.most_spent)
    yield _good(
        f"{name}: {phases} phase{'s' * (phases != 1)}, {odometer.rows:,} rows, at most {most} of a phase's "
        f"budget spent; its ledger is intact ({len(entries):,} entries), and every price is right"
    )
