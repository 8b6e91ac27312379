"""What is said of the records of a source under a definition."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import click

from stream_dp.cli.checks.definition_check import warn_of_others
from stream_dp.cli.command_options import GivenServers
from stream_dp.cli.files.value_survey import Survey, reading_table, warn_of
from stream_dp.cli.terminal import show, warn
from stream_dp.cli.text.progress_bar import bar
from stream_dp.client.kafka import topic_documents
from stream_dp.client.kafka.deployment_topics import dated_by_producers, describe_source
from stream_dp.client.kafka.topic_reader import newest
from stream_dp.errors import InvalidInput, ServerUnavailable
from stream_dp.messages import Definition, Event
from stream_dp.pipeline.intake.source_events import image_of
from stream_dp.pipeline.intake.source_file import TopicSource
from stream_dp.pipeline.intake.source_packing import document_of, is_framed, row_of
from stream_dp.profiles.builder import universe_of

_AT_ONCE: Final = 10_000
_EVENTS: Final = 10_000
"""The newest events among which batches of other data sets are looked for."""


def check_source(
    connection: GivenServers,
    source: TopicSource,
    definition: Definition,
    most: int,
    *,
    created: bool,
) -> None:
    """Shows how the newest records of a source's topic would be counted. Nothing is sent.

    How many messages cannot be read depends on what they hold. So a worker neither counts nor says it.

    Args:
        connection: The servers.
        source: The source.
        definition: The definition.
        most: The largest number of records to read.
        created: Whether the definition is that of a data set, and no file that can still be changed.

    Raises:
        InvalidInput: The source belongs to another data set, or the topic holds no records.
    """
    if source.dataset != definition.dataset:
        problem = f"it belongs to {source.dataset}, not to {definition.dataset}"
        raise InvalidInput("--source", problem, "pass the file that belongs to the definition")
    _warn_of_same_topic(connection, definition, source.topic)
    survey, forms = _surveyed(connection, source, definition, most)
    click.echo(f"read the newest {survey.rows:,} records of {source.topic}; nothing was sent")
    show(reading_table(survey))
    for complaint in forms.complaints():
        warn(complaint)
    warn_of([*survey.complaints(), *survey.proposals()])
    for words in survey.unlisted(definition.dataset if created else None).values():
        click.echo(words)
    if (found := describe_source(connection.broker, source.topic)) is None:
        return
    said = dated_by_producers(source.topic, found)
    if said is not None and definition.phase.calendar is not None:
        warn(said)
    click.echo(f'the id of the topic is {found.topic_id}, which "start" in a source file names')


def _surveyed(
    connection: GivenServers, source: TopicSource, definition: Definition, most: int
) -> tuple[Survey, Forms]:
    """Examines the newest records of a topic."""
    universe = universe_of(definition)
    paths = source.paths(universe, definition.row_keys)
    survey, forms = Survey(universe, can_say=False), Forms()
    with bar() as progress:
        task = progress.add_task(f"Reading {source.topic}", total=most)
        values = newest(connection.broker, source.topic, most)
        while some := list(islice(values, _AT_ONCE)):
            documents: list[Mapping[str, Any] | None] = [document_of(value) for value in some]
            if source.format == "debezium":
                documents = [*map(image_of, documents)]
            forms.take(some, documents)
            rows = zip(*(row_of(document, paths) for document in documents), strict=True)
            columns = dict(zip(paths, map(list, rows), strict=True))
            columns |= {name: [value] * len(some) for name, value in source.constants.items()}
            survey.take(columns, columns)
            progress.update(task, completed=survey.rows)
    if survey.rows == 0:
        problem = f"the topic {source.topic} holds no records"
        raise InvalidInput("--source", problem, "send some records first")
    return survey, forms


def _warn_of_same_topic(connection: GivenServers, definition: Definition, topic: str) -> None:
    """Warns if other data sets read the topic of a source, as the ids of their newest batches say."""
    same: set[str] = set()
    with contextlib.suppress(ServerUnavailable):  # without the topic of events there is no data set
        for value in newest(connection.broker, connection.topics.name("events"), _EVENTS):
            event = topic_documents.read(Event, value) if value else None
            if event is not None and (event.batch_id or "").startswith(f"{topic}@"):
                same.add(event.dataset)
    warn_of_others(definition, same, f"read the topic {topic}")


_FRAMED: Final = "are framed by a schema registry (a byte 0 and the id of a schema come first)"
_EMPTY, _STRANGE = "have no value", "are not JSON objects"
_FIXES: Final = {
    _FRAMED: "write plain JSON objects to a topic, and read that one",
    _STRANGE: "write JSON objects to a topic, and read that one",
    _EMPTY: "leave them out before, or let them be rows without values",
}
"""What is wrong with messages -> what to do."""


class Forms:
    """The forms of a topic's messages."""

    def __init__(self) -> None:
        self._messages, self._found = 0, Counter[str]()

    def take(self, values: Sequence[bytes | None], documents: Sequence[object]) -> None:
        """Examines messages, and the JSON objects that they are: None for those that are none."""
        self._messages += len(values)
        for value, document in zip(values, documents, strict=True):
            if not value:  # such as a tombstone
                self._found[_EMPTY] += 1
            elif document is None:
                self._found[_FRAMED if is_framed(value) else _STRANGE] += 1

    def complaints(self) -> Iterator[str]:
        """Yields what is wrong with the messages, each with its fix."""
        found, messages = self._found, self._messages
        for what, fix in _FIXES.items():
            if count := found[what]:
                yield f"{count:,} of {messages:,} messages {what}, so their values are not read; {fix}"
        if found[_FRAMED] + found[_STRANGE] == messages - found[_EMPTY] > 0:
            yield "no message is a JSON object, so a worker stops at this source; see docs/sources.md"
