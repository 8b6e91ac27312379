"""A view in Redis 7 or Valkey 8, or later. ``apply.lua`` is the one atomic step and says what the keys hold.

A server may evict, and needs no disk. The keys of a data set share a hash tag, hence a Cluster slot. Nothing
has a time to live.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import resources
from itertools import chain
from typing import Any, Final, NamedTuple

from stream_dp.state.redis_client import connected, nodes, translated
from stream_dp.state.schema import BY_ID, ROTATED, Pair, State, StateTable, sum_of
from stream_dp.state.view import Usage, ViewChange

_SHOWN: Final = frozenset({StateTable.ANSWER, StateTable.OUTCOME})
_SUMMED: Final = frozenset(StateTable) - BY_ID
_ITEMS: Final = 3_500  # of a command; Lua unpacks fewer than 8,000 words
_HEAD: Final = re.compile(rb"(\d{1,16}) ([0-9a-f]{64}) ([0-9a-f]{32}) (.*)")
_FOUND_AT_ONCE: Final = 1_000

_SCRIPT: Final = resources.files("stream_dp.state").joinpath("apply.lua").read_bytes()

_Command = tuple[str | int | bytes, ...]


class _Keys(NamedTuple):
    """The keys of a data set, in the order of KEYS in the script."""

    state: str
    answers: str
    old: str
    kept: str


class RedisView:
    """A view behind a redis-py asyncio client: plain, by Sentinels or Cluster.

    Args:
        url: The address, see ``redis_client.connected``.
        prefix: First part of every key. Two systems on one server need two.
        journal: The id of the topic ``journal``, where commits are put.
        cluster: Whether it is a node of a Redis Cluster.

    Raises:
        InvalidInput: The address of Sentinels has a fault. The error leaves out what it says.
    """

    def __init__(self, url: str, *, prefix: str, journal: str = "", cluster: bool = False) -> None:
        if not prefix or not {"{", "}"}.isdisjoint(prefix):
            raise ValueError("a key prefix is not empty and has no braces")
        self._client: Any = connected(url, cluster=cluster)
        if self._client.get_encoder().decode_responses:
            raise ValueError("stored bytes are not text: the address needs decode_responses=False")
        self._prefix = prefix
        self._journal = journal.encode()

    async def apply(self, changes: Sequence[ViewChange]) -> Collection[str]:
        steps = []
        for change in changes:
            commit, keys = change.commit, self._keys(change.commit.dataset)
            before = _place(commit.number - 1, commit.prev)
            after = _place(commit.number, change.trail)
            commands = [*_commands(keys, change), self._head(keys, after, commit.sum)]
            steps.append(_step(keys, before, after, commands))
        replies = zip(changes, await self._send(steps), strict=True)
        # After a lost reply all are sent again, and the last one is in place where the first one is refused.
        done = {change.commit.dataset: reply == 1 for change, reply in replies}
        return {name for name, is_done in done.items() if not is_done}

    async def rewrite(self, state: State) -> None:
        keys, rotated = self._keys(state.dataset), state.pairs.get(ROTATED)
        commands: list[_Command] = [
            ("UNLINK", keys.state),
            *_split("HSET", keys.state, [(_field(one), of) for one, of in state.pairs.items()]),
            ("RETAIN", keys.kept, *state.kept()),
            self._head(keys, _place(state.number, state.trail), state.sum),
        ]
        asked = [("HLEN", key) for key in keys[1:]]
        there, *lengths = await self._send([("HMGET", keys.state, "head", _field(ROTATED)), *asked])
        head = _HEAD.fullmatch((there and there[0]) or b"")
        fits = head is not None and (head[4], there[1]) == (self._journal, rotated)
        if not fits or None in lengths:
            commands.insert(0, ("UNLINK", *keys[1:]))
        await self._send([_step(keys, "", "", commands)])

    async def state(self, dataset: str) -> State | None:
        (fields,) = await self._send([("HGETALL", self._keys(dataset).state)])
        head, pairs = _read_head((fields or {}).pop(b"head", None)), dict[Pair, bytes]()
        if head is None:
            return None
        for name, value in fields.items():
            if (pair := _pair(name)) is None or pair[0] in BY_ID:
                return None
            pairs[pair] = value
        return State(dataset, *head, pairs) if sum_of(pairs) == head[2] else None

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

    async def contents(self, dataset: str) -> dict[Pair, bytes]:
        keys, found = self._keys(dataset), dict[Pair, bytes]()
        async with translated():
            for key in (keys.old, keys.answers):
                async for name, value in self._client.hscan_iter(key, count=_FOUND_AT_ONCE):
                    if (pair := _pair(name)) is not None:
                        found[pair] = value
        return found

    async def kept(self, dataset: str, names: Sequence[bytes]) -> list[bytes | None]:
        key, some = self._keys(dataset).kept, range(0, len(names), _ITEMS)
        found = await self._send([("HMGET", key, *names[at : at + _ITEMS]) for at in some])
        parts: list[bytes | None] = []
        for at, values in zip(some, found, strict=True):
            parts += values or [None] * len(names[at : at + _ITEMS])
        return parts

    async def kept_names(self, dataset: str) -> list[bytes]:
        (names,) = await self._send([("HKEYS", self._keys(dataset).kept)])
        return list(names or ())

    async def keep(
        self, dataset: str, parts: Mapping[bytes, bytes], place: tuple[int, bytes]
    ) -> None:
        keys, at = self._keys(dataset), _place(*place)
        put = [*_split("HSET", keys.kept, list(parts.items()))]
        await self._send([_step(keys, at, at, put)])

    async def cursors(self, dataset: str, keys: Sequence[str]) -> dict[str, int]:
        fields = [_field((StateTable.CURSOR, key.encode())) for key in keys]
        (values,) = await self._send([("HMGET", self._keys(dataset).state, *fields)])
        there = zip(keys, values or (), strict=bool(values))
        return {key: int(value) for key, value in there if value is not None and value.isdigit()}

    async def usage(self) -> Usage:
        async with translated():
            replies = [await node.execute_command("INFO") for node in await nodes(self._client)]
        return max(map(_usage, replies), key=lambda used: used.memory / (used.limit or 1))

    async def close(self) -> None:
        await self._client.aclose()

    def _keys(self, dataset: str) -> _Keys:
        if not {"{", "}"}.isdisjoint(dataset):
            raise ValueError("the name of a data set has no braces")
        parts = ("state", "answers", "answers-old", "kept")
        return _Keys(*(f"{{{self._prefix}:{dataset}}}:{part}" for part in parts))

    def _head(self, keys: _Keys, place: str, of: int) -> _Command:
        """The command that writes where the view stands."""
        return ("HSET", keys.state, "head", f"{place} {of:032x} ".encode() + self._journal)

    async def _send(self, commands: Sequence[_Command]) -> list[Any]:
        """Replies to commands in one round trip, in order on each server.

        None for one that meets a key of another type: what is there is not ours.
        """
        if not commands:
            return []
        async with translated():
            pipeline: Any = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            replies = await pipeline.execute(raise_on_error=False)
            for at, reply in enumerate(replies):
                if isinstance(reply, BaseException):
                    if not str(reply).startswith("WRONGTYPE"):
                        raise reply
                    replies[at] = None
        return list(replies)


def _step(keys: _Keys, before: str, after: str, commands: Sequence[_Command]) -> _Command:
    """A call of the script. It takes 2 kB, so a server need not know it by its hash."""
    words = chain.from_iterable((len(command), *command) for command in commands)
    return ("EVAL", _SCRIPT, len(keys), *keys, before, after, *words)


def _commands(keys: _Keys, change: ViewChange) -> Iterator[_Command]:
    """The commands of a commit, but for the one that writes the head."""
    commit = change.commit
    if commit.number == 1:
        # Of a data set that was here before, a server that evicts may have a part.
        yield ("UNLINK", keys.answers, keys.old, keys.kept)
    if commit.rotates:
        yield ("UNLINK", keys.old)
        yield ("RENAME", keys.answers, keys.old)
    for tables, where in ((_SUMMED, (keys.state,)), (_SHOWN, (keys.answers, keys.old))):
        pairs = [(_field(one), of) for one, of in commit.pairs.items() if one[0] in tables]
        put = [(name, value) for name, value in pairs if value is not None]
        dropped = [(name,) for name, value in pairs if value is None]
        yield from _split("HSET", where[0], put)
        for key in where:
            yield from _split("HDEL", key, dropped)
    yield from _split("HSET", keys.kept, list(change.kept.items()))
    gone = chain.from_iterable(named.fields() for named in commit.erased())
    yield from _split("HDEL", keys.kept, [(name,) for name in gone])


def _split(command: str, key: str, items: Sequence[tuple[bytes, ...]]) -> Iterator[_Command]:
    """A command on all items, cut so that each one has no more words than Lua unpacks."""
    for at in range(0, len(items), _ITEMS):
        yield (command, key, *chain.from_iterable(items[at : at + _ITEMS]))


def _field(pair: Pair) -> bytes:
    return b"%d %b" % pair


def _pair(name: bytes) -> Pair | None:
    """Inverse of ``_field``. None for what is none."""
    table, _, key = name.partition(b" ")
    try:
        return StateTable(int(table)), key
    except ValueError:
        return None


def _place(number: int, trail: bytes) -> str:
    return f"{number} {trail.hex()}"


def _read_head(head: bytes | None) -> tuple[int, bytes, int] | None:
    """The number, trail and sum that a head says. None if it does not decode."""
    found = _HEAD.fullmatch(head or b"")
    if found is None:
        return None
    number, trail, of, _ = found.groups()
    return int(number), bytes.fromhex(trail.decode()), int(of, 16)


def _usage(info: Mapping[str, Any]) -> Usage:
    # The server compares its limit with this difference.
    counted = int(info["used_memory"]) - int(info.get("mem_not_counted_for_evict", 0))
    limit = int(info.get("maxmemory", 0)) or int(info.get("total_system_memory", 0))
    return Usage(memory=counted, limit=limit)
