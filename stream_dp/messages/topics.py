"""The topics that carry messages, and how each is created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of one topic. ``topics create`` applies them and ``doctor`` compares them.

    Attributes:
        max_value_bytes: The largest value that a worker accepts. It refuses a larger one with a reason.
        max_message_bytes: The largest record that the broker accepts. It is larger than ``max_value_bytes``,
            so that the worker can tell a producer why a value is too large.
    """

    role: str
    cleanup: Literal["delete", "compact"]
    retention_ms: int
    max_value_bytes: int
    max_message_bytes: int = 1_048_588

    def config(self, replicas: int = 1) -> dict[str, str]:
        """Returns the settings of the topic at the broker.

        Args:
            replicas: The number of replicas of the topic.
        """
        config = {
            "cleanup.policy": self.cleanup,
            "retention.ms": str(self.retention_ms),
            "max.message.bytes": str(self.max_message_bytes),
        }
        if self.retention_ms == _FOR_EVER:
            config["retention.bytes"] = str(_FOR_EVER)
        if self.role in INPUTS:
            # The worker must read every compression, and compressed zeros must not swell in its memory.
            config["compression.type"] = "uncompressed"
            # Retention counts from a record's time, so a record with an old time would be deleted unread.
            config[TIMES] = "LogAppendTime"
        if self.role in PRIVATE:
            # A replica that lags must not become the truth, and an acknowledged record survives a lost disk.
            config[UNCLEAN] = "false"
            if replicas >= SAFE_REPLICAS:
                config[MIN_INSYNC] = "2"
            else:  # and where no other disk is sure to have it, it is on this one first
                config[FLUSH] = "1"
        if self.role == "journal":
            config[TIMES] = "LogAppendTime"
        if self.role == "blocks":
            config["max.compaction.lag.ms"] = str(COMPACTED_MS)  # then erased rows leave the disk
        return config

    def needed(self, replicas: int = 1) -> dict[str, str]:
        """Returns those settings of ``config`` without which records are lost that somebody relies on.

        ``topics create`` restores them. No worker runs on journal or blocks without them.

        Args:
            replicas: The number of replicas of the topic.
        """
        names: set[str] = {TIMES} if self.role in INPUTS else set()
        if self.retention_ms == _FOR_EVER:
            names |= {"cleanup.policy", "retention.ms", "retention.bytes"}
            names |= {UNCLEAN, MIN_INSYNC, FLUSH}
        return {name: value for name, value in self.config(replicas).items() if name in names}


INPUTS = ("datasets", "batches", "queries")
PRIVATE = ("journal", "blocks")
"""The topics of the workers themselves, which no client reads. They have the partitions of the inputs."""

TIMES = "message.timestamp.type"
MIN_INSYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
FLUSH = "flush.messages"

SAFE_REPLICAS = 3
"""The replicas of a topic, two of them in sync, with which a lost disk loses nothing acknowledged."""

COMPACTED_MS = 4 * 3_600_000
"""After this long the broker closes a segment of the topic of blocks with the next record, and cleans it."""

_DAY_MS = 86_400_000
_FOR_EVER = -1

TOPICS: Mapping[str, TopicSettings] = {
    settings.role: settings
    for settings in (
        TopicSettings("datasets", "delete", _FOR_EVER, 262_144),
        TopicSettings("batches", "delete", 30 * _DAY_MS, 4_194_304, 6_291_456),
        TopicSettings("queries", "delete", 30 * _DAY_MS, 262_144),
        TopicSettings("answers", "delete", 30 * _DAY_MS, 6_291_456, 6_291_456),
        TopicSettings("events", "delete", 30 * _DAY_MS, 262_144),
        TopicSettings("rejected", "delete", 30 * _DAY_MS, 262_144),
        TopicSettings("running", "delete", 30 * _DAY_MS, 6_291_456, 6_291_456),
        TopicSettings("catalog", "compact", _FOR_EVER, 6_291_456, 6_291_456),
        TopicSettings("ledger", "delete", _FOR_EVER, 1_048_576),
        TopicSettings("synthetic", "compact", _FOR_EVER, 6_291_456, 6_291_456),
        TopicSettings("standing", "compact", _FOR_EVER, 262_144),
        TopicSettings("dimensions", "compact", _FOR_EVER, 1_000_000),
        TopicSettings("journal", "delete", _FOR_EVER, 6_291_456, 6_291_456),
        TopicSettings("blocks", "compact", _FOR_EVER, 6_291_456, 6_291_456),
    )
}


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of the topics under one prefix.

    Example:
        >>> from stream_dp.messages import Topics
        >>> Topics("test.").name("answers")
        'test.answers'
    """

    prefix: str = "stream-dp."

    def name(self, role: str) -> str:
        return self.prefix + TOPICS[role].role

    def role(self, name: str) -> str:
        return name.removeprefix(self.prefix)

    def creating(self) -> str:
        """Returns the command that creates these topics, and restores the settings that they need."""
        other = "" if self == Topics() else f" --topic-prefix {self.prefix}"
        return f"stream-dp topics create{other}"


def wrong_settings(
    wanted: Mapping[str, str], found: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Compares settings that the broker tells of a topic with those that it should have.

    Returns:
        The settings that differ, as name -> (found, wanted). A stricter one does not differ.
    """
    return {
        name: (found[name], value)
        for name, value in wanted.items()
        if name in found
        and found[name] != value
        and not (name == MIN_INSYNC and int(found[name]) >= int(value))
    }
