"""``stream-dp doctor``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import click
from rich.console import Console
from rich.markup import escape

from stream_dp.cli.connection import Connection, connected
from stream_dp.client import Client
from stream_dp.client.odometer import Odometer
from stream_dp.client.topics import TopicState, describe_topics
from stream_dp.errors import StreamDPError
from stream_dp.messages import INPUTS, TOPICS
from stream_dp.settings import WorkerSettings
from stream_dp.state.redis import RedisStore

__all__ = ["command"]


class _Health(Enum):
    GOOD = "[green]good[/green]"
    NOTE = "[yellow]note[/yellow]"
    BAD = "[red]bad [/red]"


@dataclass(frozen=True)
class _Finding:
    health: _Health
    text: str
    fix: str = ""


@click.command()
@connected(operator=True)
def command(connection: Connection) -> None:
    """Check broker, topics, Redis and data sets; each fault with its fix. Exit code 1 if one is found."""
    console = Console(highlight=False)
    bad = False
    for finding in _examine(connection):
        bad |= finding.health is _Health.BAD
        console.print(f"{finding.health.value}  {escape(finding.text)}")
        if finding.fix:
            console.print(f"      fix: [b]{escape(finding.fix)}[/b]")
    if bad:
        sys.exit(1)
    console.print("[green]everything that was checked is as it must be[/green]")


def _examine(connection: Connection) -> Iterator[_Finding]:
    try:
        topics = describe_topics(connection.bootstrap_servers, connection.topics)
    except StreamDPError as error:
        yield _Finding(
            _Health.BAD, str(error), "start it with `stream-dp up`, or pass --bootstrap-servers"
        )
        topics = {}
    else:
        yield _Finding(_Health.GOOD, f"Kafka answers at {connection.bootstrap_servers}")
        yield from _topics(topics)
    yield from asyncio.run(_redis(connection, topics))
    if topics and all(topics[role].partitions for role in ("catalog", "ledger")):
        yield from _datasets(connection)


def _topics(topics: dict[str, TopicState]) -> Iterator[_Finding]:
    missing = [state.name for state in topics.values() if state.partitions == 0]
    if missing:
        yield _Finding(
            _Health.BAD, f"topics are missing: {', '.join(missing)}", "stream-dp topics create"
        )
    for role, state in topics.items():
        for setting, (found, wanted) in state.wrong.items():
            loses = setting != "max.message.bytes" and TOPICS[role].retention_ms == -1
            yield _Finding(
                _Health.BAD if loses else _Health.NOTE,
                f"{state.name} has {setting} {found}, not {wanted}",
                f"kafka-configs.sh --alter --topic {state.name} --add-config {setting}={wanted}",
            )
    counts = {topics[role].name: topics[role].partitions for role in INPUTS}
    if not missing and len(set(counts.values())) > 1:
        yield _Finding(
            _Health.BAD,
            f"the input topics differ in their partitions: {counts}",
            "create them afresh under another --topic-prefix; a count can never be lowered",
        )
    elif not missing:
        yield _Finding(
            _Health.GOOD,
            f"all {len(topics)} topics are there, inputs with {counts[topics['queries'].name]} partitions",
        )


async def _redis(connection: Connection, topics: dict[str, TopicState]) -> list[_Finding]:
    try:
        url = connection.redis_url
    except StreamDPError:
        return [
            _Finding(
                _Health.NOTE,
                "Redis was not checked",
                "pass --redis-url to check it, as an operator",
            )
        ]
    findings = []
    store = RedisStore.from_url(
        url, prefix=WorkerSettings(topic_prefix=connection.topic_prefix).redis_prefix
    )
    try:
        problems = await store.problems()
        findings += [_Finding(_Health.BAD, *_split(problem)) for problem in problems]
        if not problems:
            findings.append(
                _Finding(
                    _Health.GOOD, "Redis keeps every acknowledged commit (AOF always, noeviction)"
                )
            )
        for role in INPUTS:
            state = topics.get(role)
            if state is None or state.partitions == 0:
                continue
            recorded = await store.partitions(state.name, state.partitions)
            if recorded != state.partitions:
                findings.append(
                    _Finding(
                        _Health.BAD,
                        f"{state.name} has {state.partitions} partitions but had {recorded} when the first "
                        "worker started: data sets would change their owner",
                        "create topics with the old count under a new prefix and copy the records over, or "
                        "restore the topic",
                    )
                )
    except StreamDPError as error:
        findings.append(
            _Finding(
                _Health.BAD,
                f"Redis does not answer: {error}",
                "start it, or pass another --redis-url",
            )
        )
    finally:
        await store.close()
    return findings


def _split(problem: str) -> tuple[str, str]:
    """A store's sentence as fault and fix."""
    fault, _, fix = problem.partition("; ")
    return fault, fix


def _datasets(connection: Connection) -> Iterator[_Finding]:
    with Client(connection.bootstrap_servers, topic_prefix=connection.topic_prefix) as client:
        catalog = client.catalog()
        ledgers = client.ledgers()
    for name, definition in sorted(catalog.items()):
        odometer = Odometer.read(ledgers.get(name, []))
        if odometer.rows and definition.privacy.delta > 1 / (100 * odometer.rows):
            yield _Finding(
                _Health.NOTE,
                f"{name}: delta {definition.privacy.delta:g} is large for {odometer.rows:,} rows; below "
                f"{1 / (100 * odometer.rows):.1g} is usual",
                "choose a smaller privacy.delta for a new data set",
            )
        elif odometer.most_spent > 0.9:
            yield _Finding(
                _Health.NOTE,
                f"{name}: {100 * odometer.most_spent:.0f}% of a line is spent",
                "ask windows that leave the spent phases out, or accept unverified answers",
            )
        else:
            yield _Finding(
                _Health.GOOD,
                f"{name}: {len(odometer.blocks)} phases, {odometer.rows:,} rows, "
                f"{100 * odometer.most_spent:.1f}% of the most used line spent",
            )
