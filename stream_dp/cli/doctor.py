"""``stream-dp doctor``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from importlib import metadata
from time import monotonic
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape

from stream_dp.audit import Report
from stream_dp.broker import Broker
from stream_dp.cli.connection import (
    Connection,
    connected,
    store,
    unreachable,
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
from stream_dp.errors import LedgerBroken, StoreUnavailable, StreamDPError
from stream_dp.messages import (
    INPUTS,
    MIN_INSYNC,
    PRIVATE,
    SAFE_REPLICAS,
    TIMES,
    TOPICS,
    UNCLEAN,
    Definition,
    sources_in,
)
from stream_dp.pipeline.health import MOVED
from stream_dp.settings import WorkerSettings, worker_settings
from stream_dp.state import ledger
from stream_dp.state.store import Usage
from stream_dp.store_address import SentinelAddress

if TYPE_CHECKING:
    from stream_dp.pipeline.rehearsing import Rehearsed
    from stream_dp.state.redis import RedisStore

__all__ = ["command"]

_OLDEST_KAFKA = (3, 0)
_OLDEST_REDIS = 7
_LOW = 0.9
_FULL = 0.8
_PATIENCE_S = 30.0  # brokers alone have ten seconds to say that the journal was cut
_LONG = 1_000_000  # entries of a partition of the journal
_MOST_SHOWN = 5
_DAY_MS = 86_400_000
"""The largest number of faults that are shown of one ledger."""


_LOSES = {
    "cleanup.policy": "Kafka does not keep the records that it must keep",
    "retention.ms": "Kafka deletes records that must be kept for ever",
    "retention.bytes": "Kafka deletes records that must be kept for ever",
    UNCLEAN: "a lost disk could take acknowledged records with it",
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
@click.option(
    "--rehearse",
    is_flag=True,
    help="Also build every data set from the topics in memory, and compare it with Redis. It reads rows.",
)
def command(connection: Connection, as_json: bool, rehearse: bool) -> None:  # noqa: FBT001 - click
    """Check packages, broker, topics, Redis and data sets, and print a fix for each fault.

    The command changes nothing. The exit code is 1 if it finds a fault. A note is not a fault.

    A rehearsal shows that a lost Redis would come back, and how long that takes. Workers may go on meanwhile.
    """
    console = Console(highlight=False, soft_wrap=True)
    with busy("Looking"):
        findings = []
        for finding in _examine(connection, rehearse=rehearse):
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


def _examine(connection: Connection, *, rehearse: bool) -> Iterator[_Finding]:
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
        if settings.blocks == "topic":
            yield _rows_on_topic(topics["blocks"])
        yield from _identity(settings, topics["queries"])
        yield _workers(servers, settings)
    yield from _collected(_redis(connection, settings, topics), _PATIENCE_S)
    if topics and all(topics[role].partitions for role in ("catalog", "ledger")):
        try:
            yield from _datasets(connection, topics["queries"])
        except StreamDPError as error:
            yield _bad(*_split(str(error)))
    if rehearse and topics:
        try:
            yield from _rehearsed(connection, settings, topics)
        except StreamDPError as error:
            yield _bad(f"the rehearsal ended: {error}", "fix that, and rehearse again")


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
            yield _setting(role, state.name, setting, found, wanted, creating)
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
        topics[role].name for role in ("journal", "ledger", "batches") if topics[role].replicas == 1
    ]
    if brokers > 1 and single:
        yield _note(
            f"{', '.join(single)} have one replica on {brokers} brokers: a lost disk loses them",
            "raise their replication with kafka-reassign-partitions.sh",
        )


def _rows_on_topic(state: TopicState) -> _Finding:
    """Says how safe the rows are where no other place has them. Its settings are checked elsewhere."""
    some = f"{state.replicas} replica{'s' * (state.replicas != 1)}"
    text = (
        f"the rows of phases are on {state.name} alone (STREAM_DP_BLOCKS=topic), which has {some}"
    )
    if state.replicas < SAFE_REPLICAS:
        return _note(
            f"{text}: a lost disk can lose them",
            "give it three replicas with kafka-reassign-partitions.sh, and min.insync.replicas=2; or unset "
            "STREAM_DP_BLOCKS",
        )
    return _good(text)


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
    role: str, name: str, setting: str, found: str, wanted: str, creating: str
) -> _Finding:
    fix = f"kafka-configs.sh --alter --topic {name} --add-config {setting}={wanted}"
    text = f"{name} has {setting} {found}, not {wanted}"
    if setting in TOPICS[role].needed():
        stops = ", and no worker runs" if role in PRIVATE else ""
        return _bad(f"{text}: {_LOSES[setting]}{stops}", creating)
    if setting == MIN_INSYNC:
        return _bad(f"{text}: {_LOSES[UNCLEAN]}", fix)
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


def _collected(findings: AsyncIterator[_Finding], patience_s: float | None) -> list[_Finding]:
    collected: list[_Finding] = []

    async def collect() -> None:
        async for finding in findings:
            collected.append(finding)  # noqa: PERF401 - findings stay when time is up

    try:
        asyncio.run(asyncio.wait_for(collect(), patience_s))
    except TimeoutError:
        fault = f"Redis accepted the connection but has not answered for {patience_s:g} seconds"
        collected.append(_bad(fault, "find out what it is doing, then restart it"))
    return collected


async def _redis(
    connection: Connection, settings: WorkerSettings, topics: Mapping[str, TopicState]
) -> AsyncIterator[_Finding]:
    try:
        url = connection.redis_url
    except StreamDPError:
        yield _note("Redis was not checked", "if you are an operator, pass --redis-url to check it")
        return
    opened = store(connection)
    try:
        problems = await opened.problems()
        yield await _redis_version(url)
        for problem in problems:
            yield _bad(*_split(problem))
        if not problems:
            declared = settings.redis_durability == "declared"
            how = "as its operator declares" if declared else "appendonly, noeviction"
            yield _good(f"the settings of Redis are safe ({how})")
        yield _usage(await opened.usage())
        async for finding in _recorded(url, settings, topics):
            yield finding
        async for finding in _journal(connection, opened, topics):
            yield finding
        for finding in await _sizes(opened):
            yield finding
        async for finding in _lengths(connection, url, settings, topics):
            yield finding
    except StoreUnavailable:
        yield _bad(*unreachable(url, cluster=settings.redis_cluster))
    except StreamDPError as error:
        yield _bad(f"Redis refuses: {error}", "fix its access rights, or pass another --redis-url")
    finally:
        await opened.close()


async def _redis_version(url: str) -> _Finding:
    info = await _ask_redis(url, lambda client: client.info("server"))
    compatible = str(info.get("redis_version", "0"))
    valkey = info.get("valkey_version")
    name = f"Valkey {valkey}" if valkey else f"Redis {compatible}"
    if int(compatible.split(".")[0]) < _OLDEST_REDIS:
        return _bad(f"{name} is too old", "run Redis 7 or newer, or Valkey 8 or newer")
    return _good(f"{name} answers at {without_password(url)}")


def _usage(used: Usage) -> _Finding:
    """Says how much of its memory and disk the store has used. Free disk cannot be asked of it."""
    limit = "its limit (maxmemory)" if used.limited else "its host's memory, as it has no maxmemory"
    text = (
        f"Redis uses {_bytes(used.memory)} of memory, {share(used.share)} of {limit}, {_bytes(used.limit)}, "
        f"and {_bytes(used.disk)} of disk; it does not tell how much disk is free"
    )
    if not used.rewritten:
        return _bad(
            f"Redis could not rewrite its append-only file. {text}",
            "free disk space or fix the disk",
        )
    if used.share > _FULL:
        return _note(
            text, "give it more memory before it takes no more writes: see docs/capacity.md"
        )
    return _good(text)


async def _sizes(opened: RedisStore) -> list[_Finding]:
    """Says which data sets and which of their parts take the memory of the store."""
    found = {}
    try:
        for name in await opened.datasets():
            found[name] = await opened.sizes(name)
    except StoreUnavailable:
        raise
    except StreamDPError:  # no right to ask
        return []
    largest = sorted(found, key=lambda name: -sum(found[name].values()))[:_MOST_SHOWN]
    return [_good(_size(name, found[name])) for name in largest]


def _size(name: str, parts: Mapping[str, int]) -> str:
    largest = sorted(parts, key=lambda part: -parts[part])[:_MOST_SHOWN]
    listed = ", ".join(f"{part} {_bytes(parts[part])}" for part in largest)
    return f"{name}: about {_bytes(sum(parts.values()))} of Redis: {listed}"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


async def _recorded(
    url: str, settings: WorkerSettings, topics: Mapping[str, TopicState]
) -> AsyncIterator[_Finding]:
    """Compares the topics with what the first worker found. It only reads, so that a check sets nothing."""
    prefix, cluster = settings.redis_prefix, settings.redis_cluster

    async def noted(part: str) -> Any:
        key = f"{{{prefix}}}:{part}"
        return await _ask_redis(url, lambda client: client.hgetall(key), cluster=cluster)

    from stream_dp.pipeline.ownership import cut_logs

    marks = {name.decode(): int(offset) for name, offset in (await noted("watermarks")).items()}
    for place, read in cut_logs(marks).items():
        yield _bad(
            f"{place} was read to offset {read:,} and was cut, so no worker reads it; all others are served",
            f"put the topic back if you can, and run: {(accept := _accepting(place))} --restored; "
            f"if you cannot, run: {accept}",
        )
    for partition in _unknown_journal(await noted("listed"), topics.get("journal")):
        yield _bad(
            f"partition {partition} of the topic journal is not the one that workers wrote: the topic was "
            "deleted and created again",
            _mending(partition),
        )
    counts, ids = await noted("partitions"), await noted("constants")
    for state in (topics[role] for role in INPUTS if role in topics):
        if state.partitions == 0:
            continue
        name = state.name.encode()
        recorded = int(counts.get(name, state.partitions))
        if recorded != state.partitions:
            yield _bad(
                f"{state.name} has {state.partitions} partitions but had {recorded} when the first worker "
                "started: data sets would change their owner, so no worker serves it",
                "the number can never be lowered: restore the broker from before the change, or start again "
                "under another --topic-prefix and add up both budgets",
            )
        made = ids.get(b"topic " + name)
        if made is not None and made != state.topic_id.encode():
            yield _bad(
                f"{state.name} was deleted and created again since the first worker started: nobody knows "
                "which of its records were read, so no worker serves it",
                "restore it, or start again under another --topic-prefix",
            )


def _unknown_journal(listed: Mapping[bytes, bytes], journal: TopicState | None) -> list[int]:
    """The partitions of the journal of which Redis has notes about another topic, and none about this one."""
    if journal is None:
        return []
    written = {int(name.rpartition(b":")[2]) for name in listed}
    mine = f"{journal.topic_id}:".encode()
    noted = {int(name.rpartition(b":")[2]) for name in listed if name.startswith(mine)}
    return sorted(written & set(range(journal.partitions)) - noted)


def _mending(partition: int) -> str:
    return (
        "put the topic back if you can, or stop all workers and run: stream-dp journal mend --partition "
        f"{partition}"
    )


def _accepting(place: str) -> str:
    return "stream-dp topics accept-cut " + " ".join(place.rsplit(":", 1))


async def _lengths(
    connection: Connection,
    url: str,
    settings: WorkerSettings,
    topics: Mapping[str, TopicState],
) -> AsyncIterator[_Finding]:
    """Says how long the journal is, and which data set keeps it so long."""
    journal = topics.get("journal")
    if journal is None or not journal.partitions:
        return
    from stream_dp.cli.lengths import lengths

    prefix, cluster = settings.redis_prefix, settings.redis_cluster
    names = f"{{{prefix}}}:datasets"
    found = await _ask_redis(url, lambda client: client.smembers(names), cluster=cluster)
    facts: dict[str, dict[str, str]] = {}
    for name in sorted(one.decode() for one in found):
        key = f"{{{prefix}:{name}}}:meta"
        said = await _ask_redis(
            url, lambda client, key=key: client.hget(key, "journal"), cluster=cluster
        )
        facts[name] = {"journal": said.decode()} if isinstance(said, bytes) else {}
    try:
        every = await lengths(connection.broker, journal, facts)
    except StreamDPError as error:
        yield _note(f"the length of {journal.name} is not known: {error}")
        return
    entries = sum(one.entries for one in every)
    longest = max(every, key=lambda one: one.entries, default=None)
    if longest is None:
        return
    said = f"{journal.name} has {entries:,} entries in {len(every)} partitions with entries"
    if not longest.kept_by:
        yield _good(said)
        return
    said += (
        f"; of the {longest.entries:,} of partition {longest.partition}, {longest.kept_by} needs "
        f"{longest.needed:,}"
    )
    if longest.whole and longest.entries > _LONG:
        yield _note(
            f"{said}: all that there are, since its answers are too many for a checkpoint",
            "see docs/operations.md, 'The length of the journal'",
        )
    else:
        yield _good(said)


async def _journal(
    connection: Connection, opened: RedisStore, topics: Mapping[str, TopicState]
) -> AsyncIterator[_Finding]:
    """Compares the ends of the journal with what was read of it. It only reads."""
    state = topics.get("journal")
    if state is None or state.partitions == 0:
        return
    from stream_dp.pipeline.logs import KafkaLog
    from stream_dp.pipeline.repairing import cut_partitions

    log = KafkaLog(connection.broker, state.name, state.partitions, None)
    for partition, why in (await cut_partitions(opened, log, state.topic_id)).items():
        yield _bad(
            f"partition {partition} of {state.name} was cut: {why}, so no data set of it is served",
            _mending(partition),
        )


def _stopped(name: str, why: str) -> _Finding:
    """Says why nobody serves a data set here. That is as it should be if it has moved away."""
    if MOVED in why:
        return _note(f"{name} is stopped: {why}")
    return _bad(f"{name} is stopped: {why}", _way_on(name, why))


def _way_on(name: str, why: str) -> str:
    """What to do next about a data set that is stopped."""
    if "for life" in why:
        return (
            "put the newest copy of Redis or the topic journal back and run: "
            f"stream-dp journal mend --dataset {name}"
        )
    if "dataset close" in why:
        return (
            f"put the newest copy of Redis back and run: stream-dp journal mend --dataset {name}; without "
            f"one, run: stream-dp dataset close {name}"
        )
    if "journal mend" in why:
        return f"put the topic journal back if you can, or run: stream-dp journal mend --dataset {name}"
    return "restore what it names, and start its worker again; the next event of the data set clears this"


async def _ask_redis(url: str, ask: Any, *, cluster: bool = False) -> Any:
    import redis.asyncio
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    from stream_dp.state.sentinel import sentinel_client

    once, sentinels = Retry(NoBackoff(), 0), SentinelAddress.read(url)
    kind: Any = redis.asyncio.RedisCluster if cluster else redis.asyncio.Redis
    client = sentinel_client(sentinels, retry=once) if sentinels else kind.from_url(url, retry=once)
    try:
        return await ask(client)
    except redis.RedisError as error:  # no right to read: then there is less to say
        if isinstance(error, redis.ConnectionError):
            raise StoreUnavailable(str(error)) from error
        return {}
    finally:
        await client.aclose()


# ---------------------------------------------------------------- data sets


def _datasets(connection: Connection, queries: TopicState) -> Iterator[_Finding]:
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
    yield from _collected(_sources(connection, catalog), _PATIENCE_S)
    served = entries.keys() - stopped.keys()  # of the others it was said what they lack
    yield from _collected(_compared(connection, served, holding), patience_s=None)


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


async def _sources(
    connection: Connection, catalog: Mapping[str, Definition]
) -> AsyncIterator[_Finding]:
    """Finds sources whose producers choose which period a message counts for."""
    by_calendar = [name for name in sorted(catalog) if catalog[name].phase.calendar is not None]
    if not by_calendar:
        return
    try:
        opened = store(connection)
    except StreamDPError:
        return  # the note that Redis was not checked is printed already
    try:
        for name in by_calendar:
            for topic in sorted({topic for topic, _ in sources_in(await opened.cursors(name))}):
                source = await asyncio.to_thread(describe_source, connection.broker, topic)
                said = None if source is None else dated_by_producers(topic, source)
                if said is not None:
                    yield _note(f"{name}: {said[0]}", said[1])
    except StreamDPError as error:
        yield _note(f"the sources were not checked: {error}")
    finally:
        await opened.close()


async def _compared(
    connection: Connection, names: Collection[str], holding: Mapping[str, Sequence[bytes]]
) -> AsyncIterator[_Finding]:
    """Compares the sums in Redis with the ledger in Redis, and that ledger with the one on the topic.

    Args:
        connection: The servers that the command was given.
        names: The names of the data sets to compare.
        holding: The ledgers on the topic, for the data sets whose ledger has no fault.
        opened: The store to check.
    """
    try:
        opened = store(connection)
    except StreamDPError:
        return  # the note that Redis was not checked is printed already
    try:
        for name in sorted(names):
            held = await asyncio.wait_for(_held(opened, name), _PATIENCE_S)
            for finding in _differences(name, holding.get(name), *held):
                yield finding
    except TimeoutError:
        yield _note(f"Redis did not give its ledgers within {_PATIENCE_S:g} seconds each")
    except StoreUnavailable:
        return  # printed already, too
    except StreamDPError as error:
        yield _bad(f"Redis refuses: {error}", "fix its access rights, or pass another --redis-url")
    finally:
        await opened.close()


async def _held(opened: RedisStore, name: str) -> tuple[list[bytes], dict[int, tuple[int, int]]]:
    """Reads the last entries of the ledger in Redis and the sums that belong to the same moment."""
    while True:
        stored = await opened.ledger(name)
        spent = await opened.spent(name)
        if await opened.ledger(name) == stored:  # otherwise a worker has charged in the meantime
            return stored, spent


def _differences(
    name: str,
    on_topic: Sequence[bytes] | None,
    stored: Sequence[bytes],
    spent: Mapping[int, tuple[int, int]],
) -> Iterator[_Finding]:
    """Finds differences between the sums of one data set in Redis and its ledger.

    Redis has the last entries alone. Those before them are on the topic.
    """
    first = _first(stored)
    for number, entry in enumerate(on_topic or ()):
        if number >= first and stored[number - first : number - first + 1] != [entry]:
            differs = "lacks" if number >= first + len(stored) else "has a different"
            yield _bad(
                f"{name}: Redis {differs} entry {number} of the ledger on the topic, so it has gone back, or "
                "somebody has changed it",
                "start a worker, or start it again: it heals the data set from the journal, if Redis has "
                "gone back. If that changes nothing, stream-dp doctor --rehearse says what was changed",
            )
            return
    if first > 0 and on_topic is None:
        return  # the topic has a fault, which was told already
    chain = ledger.Chain(name)
    try:
        for entry in ledger.joined(on_topic or (), stored, first + len(stored)):
            chain.add(entry)
    except LedgerBroken as error:
        yield _bad(
            f"{name}: the ledger in Redis has a fault: {error}", "restore a whole copy of Redis"
        )
        return
    charged = dict(enumerate(chain.charged))
    wrong = [
        block
        for block in sorted(charged.keys() | spent.keys())
        if charged.get(block, (0, 0)) != spent.get(block, (0, 0))
    ]
    for block in wrong[:_MOST_SHOWN]:
        found, sums = spent.get(block, (0, 0)), charged.get(block, (0, 0))
        both = len(on_topic or ()) == first + len(stored)
        where = "in Redis and on the topic" if both else "in Redis"
        yield _bad(
            f"{name}: Redis says that phase {block + 1} has spent {found[0]:,} units and {found[1]:,} of "
            f"delta, and the charges of its ledger, {where}, come to {sums[0]:,} and {sums[1]:,}",
            "restore a copy of Redis whose sums are right",
        )
    if not wrong and on_topic is not None:
        yield _good(
            f"{name}: the sums in Redis match its ledger, which has every entry of the topic"
        )


def _first(stored: Sequence[bytes]) -> int:
    """Returns the number of the first entry that Redis has; 0 if it does not decode."""
    try:
        number = json.loads(stored[0])["seq"] if stored else 0
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0
    return number if type(number) is int and number > 0 else 0


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


# ---------------------------------------------------------------- rehearsal


def _rehearsed(
    connection: Connection, settings: WorkerSettings, topics: Mapping[str, TopicState]
) -> Iterator[_Finding]:
    if not all(topics[role].partitions for role in PRIVATE):
        yield _bad("nothing was rehearsed: topics are missing", connection.topics.creating())
        return
    from stream_dp.cli.rehearsing import rehearsed  # it loads the mechanisms

    n_good, n_sets, began = 0, 0, monotonic()
    for one in rehearsed(connection, settings, topics):
        n_sets, n_good = n_sets + 1, n_good + one.equal
        yield _outcome(one)
    if n_sets == 0:
        yield _note("nothing was rehearsed: there is no data set yet")
        return
    sets = f"{n_good} of {n_sets} data set{'s' * (n_sets != 1)}"
    said = f"the rehearsal took {monotonic() - began:.1f} s; {sets} would come back as Redis has it now"
    yield _good(said) if n_good == n_sets else _bad(said, "see the lines above")


def _outcome(one: Rehearsed) -> _Finding:
    name, facts = one.dataset, {"rehearsal": {"equal": one.equal, **asdict(one)}}
    how = f"{one.commits:,} commits, {one.seconds:.1f} s, {_bytes(one.bytes_read)} read"
    if one.ahead:
        how += f"; {one.ahead:,} of the commits are not on the journal yet, and a worker puts them there"
    if one.equal:
        return _good(f"{name}: built from the topics, it is what Redis has: {how}", **facts)
    phases = _phases(one.phases)
    if one.problem:
        without = f"; it would lack {phases}" if phases else ""
        return _bad(
            f"{name}: without Redis it could not be built again: {one.problem}{without}",
            "keep this Redis and a copy of it, and see docs/operations.md, 'Rehearse a loss of Redis'",
            **facts,
        )
    parts = ", ".join(f"blocks ({phases})" if part == "blocks" else part for part in one.differs)
    return _bad(
        f"{name}: built from the topics, it is not what Redis has. They differ in: {parts} ({how})",
        "keep a copy of Redis, and see docs/operations.md, 'Rehearse a loss of Redis'",
        **facts,
    )


def _phases(phases: Sequence[int]) -> str:
    """Names phases, the first ones if there are many."""
    if not phases:
        return ""
    shown = ", ".join(map(str, phases[:_MOST_SHOWN]))
    more = len(phases) - _MOST_SHOWN
    rest = f" and {more:,} more" if more > 0 else ""
    return f"phase{'s' * (len(phases) > 1)} {shown}{rest}"
