"""A view in Redis 7 or Valkey 8, or later. ``apply.lua`` is the one atomic step and says what the keys hold.

A server may evict, and needs no disk. The keys of a data set share a hash tag, hence a Cluster slot. Nothing
has a time to live.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from secrets import token_hex
from typing import Any, Final, NamedTuple

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

from stream_dp.errors import CorruptState
from stream_dp.state.redis_client import connected, nodes, texts, translated
from stream_dp.state.schema import BY_ID, Pair, State, Table, check_sum
from stream_dp.state.view import Change, Usage

__all__ = ["RedisView"]

_SHOWN: Final = frozenset({Table.ANSWER, Table.OUTCOME})
_SUMMED: Final = frozenset(Table) - BY_ID
_LARGEST: Final = 1 << 28  # of a value; a server takes twice as much by default
_STEP_BYTES: Final = 1 << 22
_STEP_WORDS: Final = 7_000  # Lua unpacks fewer than 8,000
_HEAD: Final = re.compile(rb"(\d{1,16}) (\d{1,16}) ([0-9a-f]{64}) ([0-9a-f]{32})")
_FOUND_AT_ONCE: Final = 1_000

_SCRIPT: Final = resources.files("stream_dp.state").joinpath("apply.lua").read_bytes()
_SHA: Final = hashlib.sha1(_SCRIPT, usedforsecurity=False).hexdigest()

_Word = str | int | bytes
_Command = tuple[_Word, ...]


class _Keys(NamedTuple):
    """The keys of a data set, in the order of KEYS in the script."""

    state: str
    rewriting: str
    answers: str
    old: str
    kept: str


class _Step(NamedTuple):
    """A call of the script."""

    keys: Sequence[str]
    owner: int
    before: str
    after: str
    commands: Sequence[_Command]

    def words(self) -> _Command:
        """What follows the script: the number of keys, the keys, the arguments."""
        said: list[_Word] = [len(self.keys), *self.keys, self.owner, self.before, self.after]
        for command in self.commands:
            said += (len(command), *command)
        return tuple(said)


class RedisView:
    """A view behind a redis-py asyncio client, plain, by Sentinels or Cluster, that returns bytes.

    Args:
        client: A client with ``decode_responses=False``. Its creator closes it.
        prefix: First part of every key. Two systems on one server need two.
        journal: The id of the topic ``journal``, so that the view of a former one counts as missing.
    """

    def __init__(self, client: Redis | RedisCluster, *, prefix: str, journal: str) -> None:
        if not prefix or not journal or not {"{", "}"}.isdisjoint(prefix + journal):
            raise ValueError("a key prefix and the id of a topic are not empty and have no braces")
        if client.get_encoder().decode_responses:
            raise ValueError("stored bytes are not text: the client needs decode_responses=False")
        self._client = client
        self._under = prefix
        self._prefix = f"{prefix}:{journal}"
        self._owned = False

    @classmethod
    def from_url(cls, url: str, *, prefix: str, journal: str, cluster: bool = False) -> RedisView:
        """A view with a connection of its own, which ``close`` closes.

        Raises:
            InvalidInput: The address of Sentinels has a fault. The error leaves out what it says.
        """
        view = cls(connected(url, cluster=cluster), prefix=prefix, journal=journal)
        view._owned = True
        return view

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        steps = []
        for change in changes:
            keys = self._keys(change.dataset)
            before = _place(change.number - 1, change.prev)
            after = _place(change.number, change.trail)
            head = _head(keys.state, change.owner, after, change.sum)
            commands = [*_commands(keys, change), head]
            steps.append(_Step(keys, change.owner, before, after, commands))
        done = await self._run(steps)
        # After a lost reply all are sent again, and the last one is in place where the first one is refused.
        last = {change.dataset: put for change, put in zip(changes, done, strict=True)}
        return [last[change.dataset] for change in changes]

    async def rewrite(self, state: State, owner: int, kept: Collection[bytes]) -> bool:
        state = state.copied()
        keys, nonce = self._keys(state.dataset), token_hex(16)
        shared = (keys.answers, keys.old, keys.kept)
        names, *types = await self._send([("HKEYS", keys.kept), *(("TYPE", key) for key in shared)])
        foreign = [
            key for key, found in zip(shared, types, strict=True) if found not in (b"hash", b"none")
        ]
        gone = set(names or ()).difference(kept)
        pairs = _fitting({_field(pair): value for pair, value in state.pairs.items()})
        steps: list[list[_Command]] = [[("UNLINK", keys.rewriting)]]
        steps += ([command] for command in _split("HSET", keys.rewriting, pairs))
        steps.append(
            [
                *(("UNLINK", key) for key in (keys.state, *foreign)),
                ("RENAME", keys.rewriting, keys.state),
                _head(keys.state, owner, _place(state.number, state.trail), state.sum),
                *_split("HDEL", keys.kept, ((name,) for name in gone)),
            ]
        )
        before = ""
        for number, commands in enumerate(steps):
            # It stays after the last step too, so that the step may be repeated.
            after = f"{number} {nonce}"
            commands.append(_head(keys.rewriting, owner, after, 0))
            # The one that must stand there comes first.
            ordered = (keys.rewriting, keys.state, *shared)
            if await self._run([_Step(ordered, owner, before, after, commands)]) != [True]:
                return False
            before = after
        return True

    async def forget(self, dataset: str) -> None:
        await self._send([("UNLINK", *self._keys(dataset))])

    async def state(self, dataset: str) -> State | None:
        (fields,) = await self._send([("HGETALL", self._keys(dataset).state)])
        return _state(dataset, fields or {})

    async def place(self, datasets: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        heads = await self._send([("HGET", self._keys(name).state, "head") for name in datasets])
        found = zip(datasets, map(_read_head, heads), strict=True)
        return {name: head[:2] for name, head in found if head is not None}

    async def answers(self, dataset: str, pairs: Sequence[Pair]) -> dict[Pair, bytes]:
        if not pairs:
            return {}
        keys, fields = self._keys(dataset), [_field(pair) for pair in pairs]
        found: dict[Pair, bytes] = {}
        for values in await self._send([("HMGET", k, *fields) for k in (keys.old, keys.answers)]):
            there = zip(pairs, values or (), strict=bool(values))
            found |= {pair: value for pair, value in there if value is not None}
        return found

    async def owner(self, dataset: str) -> int:
        (head,) = await self._send([("HGET", self._keys(dataset).state, "head")])
        found = _HEAD.fullmatch(head or b"")
        return 0 if found is None else int(found[1])

    async def contents(self, dataset: str) -> AsyncIterator[Mapping[Pair, bytes]]:
        keys = self._keys(dataset)
        for key in (keys.old, keys.answers):
            at = 0
            while True:
                (reply,) = await self._send([("HSCAN", key, at, "COUNT", _FOUND_AT_ONCE)])
                at, fields = (0, {}) if reply is None else (int(reply[0]), reply[1])
                there = {_pair(name): value for name, value in fields.items()}
                yield {pair: value for pair, value in there.items() if pair is not None}
                if not at:
                    break

    async def journals(self) -> set[str]:
        """The ids of the journals of which something is there under this prefix, this one included."""
        glob = re.sub(r"([*?\[\]\\])", r"\\\1", self._under)
        named = re.compile(rf"\{{{re.escape(self._under)}:([^:]+):[^:]+\}}:state")
        found: set[str] = set()
        async with translated():
            for node in await nodes(self._client):
                at = -1
                while at:
                    words = ("MATCH", f"{{{glob}:*:state", "COUNT", _FOUND_AT_ONCE)
                    at, keys = await node.execute_command("SCAN", max(at, 0), *words)
                    found |= {one[1] for key in keys if (one := named.fullmatch(key.decode()))}
                    at = int(at)
        return found

    def of_journal(self, journal: str) -> RedisView:
        """What the same server has of another journal."""
        return RedisView(self._client, prefix=self._under, journal=journal)

    async def kept(self, dataset: str, name: bytes) -> bytes | None:
        (value,) = await self._send([("HGET", self._keys(dataset).kept, name)])
        found: bytes | None = value
        return found

    async def keep(self, dataset: str, name: bytes, value: bytes, owner: int) -> None:
        keys = self._keys(dataset)
        commands = list(_split("HSET", keys.kept, _fitting({name: value})))
        await self._run([_Step(keys, owner, "", "", commands)])

    async def cursors(self, dataset: str, keys: Sequence[str] | None) -> dict[str, int]:
        if keys is None:
            state = await self.state(dataset)
            found = {} if state is None else state.table(Table.CURSOR)
            return {key.decode(): int(value) for key, value in found.items()}
        if not keys:
            return {}
        fields = [_field((Table.CURSOR, key.encode())) for key in keys]
        (values,) = await self._send([("HMGET", self._keys(dataset).state, *fields)])
        there = zip(keys, values or (), strict=bool(values))
        return {key: int(value) for key, value in there if value is not None and value.isdigit()}

    async def ping(self) -> None:
        async with translated():
            for node in await nodes(self._client):
                await node.execute_command("PING")

    async def usage(self) -> Usage:
        async with translated():
            replies = [await node.execute_command("INFO") for node in await nodes(self._client)]
        return max(map(_usage, map(texts, replies)), key=lambda used: used.share)

    async def close(self) -> None:
        if self._owned:
            await self._client.aclose()

    def _keys(self, dataset: str) -> _Keys:
        if not {"{", "}"}.isdisjoint(dataset):
            raise ValueError("the name of a data set has no braces")
        parts = ("state", "rewriting", "answers", "answers-old", "kept")
        return _Keys(*(f"{{{self._prefix}:{dataset}}}:{part}" for part in parts))

    async def _run(self, steps: Sequence[_Step]) -> list[bool]:
        """Runs the script, in order and in one round trip; returns whether each step is done."""
        rest = [step.words() for step in steps]
        replies = await self._send([("EVALSHA", _SHA, *one) for one in rest])
        # A new server, SCRIPT FLUSH, a failover. Nothing of these ran.
        unknown = [
            at for at, reply in enumerate(replies) if isinstance(reply, exceptions.NoScriptError)
        ]
        again = await self._send([("EVAL", _SCRIPT, *rest[at]) for at in unknown])
        for at, reply in zip(unknown, again, strict=True):
            replies[at] = reply
        return [reply == 1 for reply in replies]

    async def _send(self, commands: Sequence[_Command]) -> list[Any]:
        """Replies to commands in one round trip, in order on each server.

        None for one that meets a key of another type: what is there is not ours. NoScriptError may be one.
        """
        if not commands:
            return []
        async with translated():
            pipeline: Any = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            replies = await pipeline.execute(raise_on_error=False)
            for at, reply in enumerate(replies):
                if not isinstance(reply, BaseException):
                    continue
                if str(reply).startswith("WRONGTYPE"):
                    replies[at] = None
                elif not isinstance(reply, exceptions.NoScriptError):
                    raise reply
        return list(replies)


def _commands(keys: _Keys, change: Change) -> Iterator[_Command]:
    """The commands of a change, but for the one that writes the head."""
    if change.rotates:
        yield ("UNLINK", keys.old)
        yield ("RENAME", keys.answers, keys.old)
    for tables, where in ((_SUMMED, (keys.state,)), (_SHOWN, (keys.answers, keys.old))):
        pairs = {_field(pair): value for pair, value in change.pairs.items() if pair[0] in tables}
        yield from _split("HSET", where[0], _fitting(pairs))
        dropped = [(name,) for name, value in pairs.items() if value is None]
        for key in where:
            yield from _split("HDEL", key, dropped)
    yield from _split("HSET", keys.kept, _fitting(change.kept))
    yield from _split("HDEL", keys.kept, ((name,) for name in change.gone))


def _split(command: str, key: str, items: Iterable[tuple[bytes, ...]]) -> Iterator[_Command]:
    """A command on all items, cut so that each one is some megabytes and no more words than Lua unpacks."""
    words: list[bytes] = []
    size = 0
    for item in items:
        weighs = sum(map(len, item))
        if words and (len(words) + len(item) > _STEP_WORDS or size + weighs > _STEP_BYTES):
            yield (command, key, *words)
            words, size = [], 0
        words += item
        size += weighs
    if words:
        yield (command, key, *words)


def _fitting(values: Mapping[bytes, bytes | None]) -> list[tuple[bytes, bytes]]:
    """Those that a server takes. One that is too large is missing in the view, as any one may be."""
    there = ((name, value) for name, value in values.items() if value is not None)
    return [(name, value) for name, value in there if len(value) <= _LARGEST]


def _field(pair: Pair) -> bytes:
    return b"%d %b" % pair


def _place(number: int, trail: bytes) -> str:
    return f"{number} {trail.hex()}"


def _head(key: str, owner: int, place: str, of: int) -> _Command:
    """The command that writes a head."""
    return ("HSET", key, "head", f"{owner} {place} {of:032x}")


def _read_head(head: bytes | None) -> tuple[int, bytes, int] | None:
    """The number, trail and sum that a head says. None if it does not decode."""
    found = _HEAD.fullmatch(head or b"")
    if found is None:
        return None
    _, number, trail, of = found.groups()
    return int(number), bytes.fromhex(trail.decode()), int(of, 16)


def _state(dataset: str, fields: Mapping[bytes, bytes]) -> State | None:
    head = _read_head(fields.get(b"head"))
    if head is None:
        return None
    pairs: dict[Pair, bytes] = {}
    for name, value in fields.items():
        if name != b"head":
            if (pair := _pair(name)) is None or pair[0] in BY_ID:
                return None
            pairs[pair] = value
    try:
        check_sum(pairs, head[2], dataset)
    except CorruptState:
        return None
    return State(dataset, *head, pairs)


def _pair(name: bytes) -> Pair | None:
    """Inverse of ``_field``. None for what is none."""
    table, _, key = name.partition(b" ")
    try:
        return Table(int(table)), key
    except ValueError:
        return None


def _usage(info: Mapping[str, str]) -> Usage:
    limit = int(info.get("maxmemory", 0))
    # The server compares its limit with this difference.
    counted = int(info["used_memory"]) - int(info.get("mem_not_counted_for_evict", 0))
    return Usage(
        memory=counted,
        limit=limit or int(info.get("total_system_memory", 0)),
        limited=limit > 0,
        evicts=info.get("maxmemory_policy", "noeviction") != "noeviction",
    )
