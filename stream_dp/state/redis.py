"""A store in Redis 7 or Valkey 8, or later. One Lua script is one atomic step; see ``scripts/``.

The server keeps an append-only file and never evicts: ``problems`` says whether it does. It may still go back
to an earlier state, since the journal heals that. All keys of a data set share a hash tag, hence a Cluster
slot. Nothing has a time to live.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff

from stream_dp.core.lifetimes import Numbers
from stream_dp.core.persons import Digests
from stream_dp.errors import (
    CorruptState,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from stream_dp.state import codec, persons
from stream_dp.state.ledger import GENESIS, HEAD_BYTES
from stream_dp.state.looking import Seen
from stream_dp.state.sentinel import sentinel_client
from stream_dp.state.store import (
    ORIGIN,
    TRAIL_BYTES,
    Counts,
    Note,
    Outcomes,
    Place,
    Released,
    Reservation,
    Snapshot,
    Transition,
    Usage,
    check_asked,
    check_name,
    refusal,
)
from stream_dp.state.taken import COUNT, TAKEN, fields_of, found_in, in_fields, taken_id
from stream_dp.store_address import SentinelAddress

DEFAULT_PREFIX = "stream-dp"
_RETRIES = 8  # about two seconds; every step may be repeated

# In the order of KEYS in the scripts.
PARTS = (
    "control",
    "meta",
    "cursor",
    "answers",
    "batches",
    "pending",
    "blocks",
    "spent",
    "transcript",
    "verified",
    "intents",
    "ledger",
    "outbox",
    "vault",
    "previous",
    "previous_batches",
    "taken",
)

_ERASED_ASIDE = ("pending", "blocks", "vault", "transcript", "verified")
"""What a commit that erases also erases of a history that was set aside, in the order of ``commit.lua``."""

_ROTATED = ("previous", "previous_batches")
_OUTCOMES = ("answers", "batches", *_ROTATED)

# Elements read at once: a reply stays at some megabytes, and the server is not held up for long.
_PAGE = {"pending": 64, "transcript": 5_000}


class _Script:
    """One file of ``scripts/``, sent whole only to a server that does not know it yet."""

    def __init__(self, name: str) -> None:
        self.source = resources.files("stream_dp.state").joinpath("scripts", name).read_bytes()
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest()


_ACQUIRE = _Script("acquire.lua")
_COMMIT = _Script("commit.lua")
_BLOCK = _Script("block.lua")
_RELEASED = _Script("released.lua")
_ADVANCE = _Script("advance.lua")
_HOLD = _Script("hold.lua")
_NOTE = _Script("note.lua")
_LISTED = _Script("listed.lua")
_PERSONS = _Script("persons.lua")
_RESERVE = _Script("reserve.lua")
_FORGET = _Script("forget.lua")
_REBUILD = _Script("rebuild.lua")

_FORGOTTEN_AT_ONCE = 4_000  # buckets; with 10^8 persons each holds a hundred of them

_LOOKS = 20

_Command = tuple[str | int | bytes, ...]
_Step = tuple[_Script, Sequence[str], Sequence[bytes]]
"""A script, its keys, its arguments."""


class RedisStore:
    """A store behind a redis-py asyncio client, plain, by Sentinels or Cluster, that returns bytes.

    Args:
        client: A client with ``decode_responses=False``. Its creator closes it.
        prefix: First part of every key. Two systems on one server need two.
        durability_declared: The operator vouches for a server that does not let us read its settings.
    """

    def __init__(
        self,
        client: Redis | RedisCluster,
        *,
        prefix: str = DEFAULT_PREFIX,
        durability_declared: bool = False,
    ) -> None:
        if not prefix or "{" in prefix or "}" in prefix:
            raise ValueError("a key prefix is not empty and has no braces")
        if client.get_encoder().decode_responses:
            raise ValueError("stored bytes are not text: the client needs decode_responses=False")
        self._client = client
        self._prefix = prefix
        self._declared = durability_declared
        self._owned = False
        self._aof: Literal["unknown", "off", "whole"] = "unknown"

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        prefix: str = DEFAULT_PREFIX,
        cluster: bool = False,
        durability_declared: bool = False,
    ) -> RedisStore:
        """A store with a connection of its own, which ``close`` closes.

        Raises:
            InvalidInput: The address of Sentinels has a fault. The error leaves out what it says.
        """
        # Without it redis-py gives up at the first connection that an idle time-out or restart has closed.
        retry = Retry(ExponentialWithJitterBackoff(base=0.01, cap=1.0), _RETRIES)
        client: Redis | RedisCluster
        sentinels = SentinelAddress.read(url)
        if sentinels is not None:
            client = sentinel_client(sentinels, retry=retry, redis_connect_func=_refuse_replica)
        elif cluster:
            client = RedisCluster.from_url(url, retry=retry)
        else:
            client = Redis.from_url(url, retry=retry)
        store = cls(client, prefix=prefix, durability_declared=durability_declared)
        store._owned = True
        return store

    # What the server promises ------------------------------------------------------------------

    async def problems(self) -> tuple[str, ...]:
        found: list[str] = []
        async with _translated():
            for node in await self._nodes():
                found.extend(await self._problems_of(node))
        return tuple(dict.fromkeys(found))

    async def usage(self) -> Usage:
        async with _translated():
            replies = [await node.execute_command("INFO") for node in await self._nodes()]
        return max(map(_usage, map(_texts, replies)), key=lambda used: used.share)

    async def sizes(self, dataset: str, *, samples: int = 20) -> dict[str, int]:
        """Estimates the bytes of memory of each part of a data set, but for what persons have used.

        Args:
            dataset: The name of the data set.
            samples: The elements of each key at which the server looks. 0 for all: then it is exact, and the
                server is held up for the longer the more there are.
        """
        check_name(dataset)
        async with _translated():
            replies = await self._send(
                [("MEMORY USAGE", self._key(dataset, part), "SAMPLES", samples) for part in PARTS]
            )
        return {part: int(size) for part, size in zip(PARTS, replies, strict=True) if size}

    async def _nodes(self) -> list[Any]:
        """Returns the nodes to send a command to so that every server that takes our writes gets it."""
        if isinstance(self._client, RedisCluster):
            await self._client.initialize()
            return list(self._client.get_primaries())
        return [self._client]

    async def _problems_of(self, node: Any) -> list[str]:
        info = _texts(await node.execute_command("INFO"))
        found = []
        if info.get("role") == "slave":
            found.append(
                "this server is a replica and takes no writes; give the address of its primary"
            )
        if info.get("aof_last_write_status", "ok") != "ok":
            found.append(
                "the server could not write its append-only file (aof_last_write_status is not ok); "
                "free disk space or fix the disk, then look again with `redis-cli INFO persistence`"
            )
        if self._incomplete(info):
            found.append(
                "the append-only file was switched on but is not complete yet, so a crash now would leave "
                "the store empty; wait until `redis-cli INFO persistence` says aof_rewrite_in_progress:0"
            )
        try:
            settings = _texts(await node.execute_command("CONFIG GET", *_REQUIRED))
        except exceptions.ResponseError:
            # A managed server. What INFO tells still counts.
            settings = {"maxmemory-policy": info.get("maxmemory_policy", "")}
            if not self._declared:
                found.append(
                    "the server forbids CONFIG (a managed one?), so nobody can see whether it writes to a "
                    "disk; once its provider promises that, and that it never evicts, declare so: "
                    "STREAM_DP_REDIS_DURABILITY=declared"
                )
        for name, (allowed, why) in _REQUIRED.items():
            if name in settings and settings[name] not in allowed:
                wanted = allowed[0]
                found.append(
                    f"{name} is {settings[name] or 'unknown'}: {why}; `redis-cli CONFIG SET {name} {wanted}` "
                    f"now, and `{name} {wanted}` in the server's configuration for the next start"
                )
        return found

    def _incomplete(self, info: Mapping[str, str]) -> bool:
        """Returns whether the append-only file is being written for the first time since it was switched on.

        A server counts such a file as enabled, and forgets it in a crash. It looks like any other rewrite,
        unless we saw the file switched off or it is the very first one.
        """
        if info.get("aof_enabled") == "0":
            self._aof = "off"
            return False
        writing = "1" in (info.get("aof_rewrite_in_progress"), info.get("aof_rewrite_scheduled"))
        suspect = self._aof == "off" or (
            self._aof == "unknown" and info.get("aof_base_size") == "0"
        )
        if writing and suspect:
            return True
        self._aof = "whole"
        return False

    # Data sets ---------------------------------------------------------------------------------

    async def datasets(self) -> tuple[str, ...]:
        async with _translated():
            names = sorted(
                name.decode() for name in await self._command("SMEMBERS", self._shared("datasets"))
            )
            # A name is noted before its data set is created, and a crash may fall between.
            created = [
                await self._command("HEXISTS", self._key(name, "control"), "definition")
                for name in names
            ]
        return tuple(name for name, exists in zip(names, created, strict=True) if exists)

    async def acquire(
        self, dataset: str, *, token: int | None = None, new: bool = True
    ) -> Snapshot:
        check_name(dataset)
        async with _translated():
            wanted = b"" if token is None else b"%d" % token
            arguments = [GENESIS.hex().encode(), b"%d" % new, wanted]
            (reply,) = await self._run([(_ACQUIRE, self._keys(dataset), arguments)])
            taken = _facts(dataset, reply)
            if taken[0] == b"0":
                return _nothing(dataset)
            # Commits of earlier owners are fenced from here on, so what is read now stands still. Only a
            # later owner can move it, and is noticed at the end.
            parts = {part: await self._read(dataset, part) for part in _SNAPSHOT}
            holder = await self._command("HGET", self._key(dataset, "control"), "token")
        if holder != taken[0]:
            raise refusal(dataset, "FENCED")
        try:
            return _snapshot(dataset, int(taken[0]), parts)
        except (KeyError, ValueError):
            raise refusal(dataset, "CORRUPT", self._key(dataset, "control")) from None

    async def missing(self, datasets: Sequence[str]) -> frozenset[str]:
        for name in datasets:
            check_name(name)
        async with _translated():
            found = await self._send([("EXISTS", self._key(name, "control")) for name in datasets])
        return frozenset(name for name, exists in zip(datasets, found, strict=True) if not exists)

    async def look(self, dataset: str) -> Seen | None:
        check_name(dataset)
        lists: dict[str, list[bytes]] = {"transcript": []}
        token = b""
        for _ in range(_LOOKS):
            async with _translated():
                control = await self._command("HGETALL", self._key(dataset, "control"))
                if b"seq" not in control:
                    return Seen(_nothing(dataset), (), 0, 0)
                if control.get(b"token") != token:
                    lists, token = {part: [] for part in lists}, control.get(b"token")
                # They only grow under one owner, so what was read of them stays.
                for part, known in lists.items():
                    known += await self._pages(dataset, part, len(known))
                parts = {part: await self._read(dataset, part) for part in _BETWEEN} | {"vault": {}}
                tail = await self._whole(dataset, "ledger")
                lengths = await self._send(
                    [
                        *(("HLEN", self._key(dataset, part)) for part in ("answers", "batches")),
                        *(("LLEN", self._key(dataset, part)) for part in lists),
                        ("HGET", self._key(dataset, "taken"), COUNT),
                    ]
                )
                parts["control"] = await self._command("HGETALL", self._key(dataset, "control"))
            if lengths[2:-1] != [len(known) for known in lists.values()]:
                lists = {part: [] for part in lists}
            elif all(parts["control"].get(name) == control.get(name) for name in _PLACE):
                try:
                    parts["transcript"] = lists["transcript"]
                    snapshot = _snapshot(dataset, int(control[b"token"]), parts)
                except (KeyError, ValueError):
                    raise refusal(dataset, "CORRUPT", self._key(dataset, "control")) from None
                n_answers, n_batches, *_, n_taken = lengths
                return Seen(snapshot, tuple(tail), n_answers, n_batches, int(n_taken or 0))
        return None

    async def commit(self, transition: Transition) -> None:
        (refused,) = await self.commit_all([transition])
        if refused is not None:
            raise refused

    async def commit_all(self, transitions: Sequence[Transition]) -> list[StoreError | None]:
        created = [one.dataset for one in transitions if one.definition is not None]
        steps = []
        for transition in transitions:
            packed = codec.pack(codec.flatten(transition))
            keys = self._keys(transition.dataset)
            if transition.erase or transition.erased:
                aside = self._key(transition.dataset, "aside")
                keys = [*keys, *(f"{aside}:{part}" for part in _ERASED_ASIDE)]
            steps.append((_COMMIT, keys, [codec.fingerprint(packed), packed]))
        async with _translated():
            if created:
                await self._command("SADD", self._shared("datasets"), *created)
            replies = await self._run(steps)
        return [
            _refused(transition, reply)
            for transition, reply in zip(transitions, replies, strict=True)
        ]

    async def block(self, dataset: str, token: int, index: int) -> bytes:
        check_name(dataset)
        if index < 0:
            raise ValueError("the index of a block is not negative")
        keys = [self._key(dataset, part) for part in ("control", "spent", "blocks")]
        async with _translated():
            (reply,) = await self._run([(_BLOCK, keys, [b"%d" % token, b"%d" % index])])
        (block,) = _facts(dataset, reply)
        return block

    async def answers(self, ids: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], bytes]:
        return await self._found(ids, "answers", "previous")

    async def batches(self, ids: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], bytes]:
        for dataset in ids:
            check_name(dataset)
        asked = {dataset: names for dataset, names in ids.items() if names}
        digests = {dataset: [taken_id(name) for name in names] for dataset, names in asked.items()}
        fields = {dataset: fields_of(those) for dataset, those in digests.items()}
        parts = ("batches", "previous_batches")
        async with _translated():
            replies = iter(
                await self._send(
                    [
                        ("HMGET", self._key(dataset, part), *those)
                        for dataset, names in asked.items()
                        for part, those in (
                            ("taken", fields[dataset]),
                            *((part, [name.encode() for name in names]) for part in parts),
                        )
                    ]
                )
            )
        found: dict[tuple[str, str], bytes] = {}
        for dataset, names in asked.items():
            there = self._lies(dataset, fields[dataset], next(replies), digests[dataset])
            ids_of = zip(names, digests[dataset], strict=True)
            found |= {(dataset, name): TAKEN for name, digest in ids_of if digest in there}
            for _ in parts:
                found |= _stored_under(dataset, names, next(replies))
        return found

    async def taken(self, dataset: str, taken: Sequence[bytes]) -> set[bytes]:
        check_name(dataset)
        if not taken:
            return set()
        fields = fields_of(taken)
        async with _translated():
            values = await self._command("HMGET", self._key(dataset, "taken"), *fields)
        return self._lies(dataset, fields, values, taken)

    def _lies(
        self,
        dataset: str,
        fields: Sequence[bytes],
        values: Sequence[bytes | None],
        taken: Sequence[bytes],
    ) -> set[bytes]:
        try:
            return found_in(dict(zip(fields, values, strict=True)), taken)
        except ValueError:
            raise refusal(dataset, "CORRUPT", self._key(dataset, "taken")) from None

    async def outcomes(self, dataset: str, *, rotated: bool = True) -> Outcomes:
        check_name(dataset)
        async with _translated():
            scanned = [
                await self._scanned(dataset, part) if rotated or part not in _ROTATED else {}
                for part in (*_OUTCOMES, "taken")
            ]
        *texts, fields = scanned
        answers, batches, previous, previous_batches = (
            {name.decode(): content for name, content in part.items()} for part in texts
        )
        try:
            taken = frozenset(in_fields(fields))
            return Outcomes(answers, batches, previous, previous_batches, taken)
        except ValueError:
            raise refusal(dataset, "CORRUPT", self._key(dataset, "taken")) from None

    async def _scanned(self, dataset: str, part: str) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        cursor: bytes | int = 0
        while True:
            key = self._key(dataset, part)
            cursor, flat = await self._command("HSCAN", key, cursor, "COUNT", 1_000)
            pairs = (
                flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
            )
            found |= dict(pairs)
            if int(cursor) == 0:
                return found

    async def counts(self, dataset: str) -> Counts:
        check_name(dataset)
        async with _translated():
            lengths = await self._send(
                [
                    *(("HLEN", self._key(dataset, part)) for part in _OUTCOMES),
                    ("HGET", self._key(dataset, "taken"), COUNT),
                ]
            )
        answers, batches, previous, previous_batches, taken = lengths
        return Counts(answers, batches, previous, previous_batches, int(taken or 0))

    async def ledger(self, dataset: str) -> list[bytes]:
        check_name(dataset)
        async with _translated():
            return await self._whole(dataset, "ledger")

    async def spent(self, dataset: str) -> dict[int, tuple[int, int]]:
        """(rho, delta) spent on each block, as ``Snapshot.spent``; takes nothing over."""
        check_name(dataset)
        async with _translated():
            stored = await self._command("HGETALL", self._key(dataset, "spent"))
        found: dict[int, dict[str, int]] = {}
        try:
            for name, units in stored.items():
                block, _, part = name.decode().partition(":")
                found.setdefault(int(block), {})[part] = int(units)
        except ValueError:
            raise refusal(dataset, "CORRUPT", self._key(dataset, "spent")) from None
        return {block: (line.get("rho", 0), line.get("delta", 0)) for block, line in found.items()}

    # The journal -------------------------------------------------------------------------------

    async def places(self, partition_of: Callable[[str], str]) -> dict[str, Place]:
        async with _translated():
            # Those too that are named and were forgotten.
            named = await self._command("SMEMBERS", self._shared("datasets"))
            names = sorted(name.decode() for name in named)
            found = await self._send(
                [
                    (
                        *("HMGET", self._key(name, "control"), "token", "seq", "trail"),
                        _noted(partition_of(name)),
                    )
                    for name in names
                ]
            )
        return {
            name: Place(
                int(token or 0),
                int(seq or 0),
                ORIGIN if trail is None else bytes.fromhex(trail.decode()),
                _note(note),
            )
            for name, (token, seq, trail, note) in zip(names, found, strict=True)
        }

    async def note(
        self, partition: str, note: Mapping[str, Note], places: Mapping[str, Place]
    ) -> None:
        steps: list[_Step] = []
        for name, noted in note.items():
            check_name(name)
            at = places[name]
            said = [_note_to_bytes(noted), b"%d" % at.seq, at.trail.hex().encode()]
            key = self._key(name, "control")
            steps.append((_NOTE, [key], [_noted(partition).encode(), *said]))
        async with _translated():
            replies = await self._run(steps)
        for name, reply in zip(note, replies, strict=True):
            _facts(name, reply)

    async def listed(self, partition: str) -> Note:
        async with _translated():
            return _note(await self._command("HGET", self._shared("listed"), partition))

    async def note_listed(
        self,
        partition: str,
        note: Note,
        names: Collection[str],
        watermarks: Mapping[str, int] = MappingProxyType({}),
        *,
        since: int | None = None,
    ) -> None:
        keys = [self._shared(part) for part in ("datasets", "listed", "watermarks")]
        before = b"" if since is None else b"%d" % since
        said = [partition.encode(), _note_to_bytes(note), before, b"%d" % len(names)]
        said += [*(name.encode() for name in names), *_raised(watermarks)]
        async with _translated():
            (reply,) = await self._run([(_LISTED, keys, said)])
        _facts(partition, reply)

    async def rebuild(
        self, dataset: str, token: int, *, seq: int, trail: bytes, head: bytes = GENESIS
    ) -> None:
        check_name(dataset)
        keys = [*self._keys(dataset), self._key(dataset, "aside")]
        place = [b"%d" % token, b"%d" % seq, head.hex().encode(), trail.hex().encode()]
        async with _translated():
            await self._command("SADD", self._shared("datasets"), dataset)
            (reply,) = await self._run([(_REBUILD, keys, place)])
        _facts(dataset, reply)

    # Persons -----------------------------------------------------------------------------------

    async def units(self, dataset: str, token: int, phase: int, digests: Digests) -> Numbers:
        check_asked(dataset, phase, digests)
        asked = [b"%d" % token, b"%d" % phase, persons.digests_to_bytes(digests)]
        async with _translated():
            (reply,) = await self._run([(_PERSONS, self._keys_of_persons(dataset), asked)])
        (values,) = _facts(dataset, reply)
        found = persons.units_before(values, phase)
        if found is None:
            raise refusal(dataset, "CORRUPT", self._key(dataset, "persons"))
        return found

    async def reserve(self, reservation: Reservation) -> None:
        entries = persons.entries_to_bytes(reservation)
        numbers = (reservation.token, reservation.phase, reservation.part)
        token, phase, part = (b"%d" % number for number in numbers)
        arguments = [token, phase, entries, part]
        keys = self._keys_of_persons(reservation.dataset)
        async with _translated():
            (reply,) = await self._run([(_RESERVE, keys, arguments)])
        _facts(reservation.dataset, reply)

    async def forget_persons(self, dataset: str, token: int) -> bool:
        check_name(dataset)
        keys = [self._key(dataset, "control"), self._key(dataset, "persons")]
        async with _translated():
            (reply,) = await self._run(
                [(_FORGET, keys, [b"%d" % token, b"%d" % _FORGOTTEN_AT_ONCE])]
            )
        return _facts(dataset, reply) == [b"1"]

    def _keys_of_persons(self, dataset: str) -> list[str]:
        return [self._key(dataset, part) for part in ("control", "spent", "persons")]

    # What belongs to no data set ---------------------------------------------------------------

    async def watermarks(self) -> dict[str, int]:
        async with _translated():
            stored = await self._command("HGETALL", self._shared("watermarks"))
        return {key.decode(): int(offset) for key, offset in stored.items()}

    async def mark(
        self,
        released: Mapping[str, Released] = MappingProxyType({}),
        watermarks: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[str, ...]:
        if any(offset < 0 for offset in watermarks.values()):
            raise ValueError("an offset is not negative")
        steps: list[_Step] = []
        for dataset, done in released.items():
            check_name(dataset)
            keys = [self._key(dataset, "control"), self._key(dataset, "outbox")]
            said = [b"%d" % done.token, b"%d" % max(done.seq, 0)]
            if done.partition:
                said += (_noted(done.partition).encode(), _note_to_bytes(done.note))
            steps.append((_RELEASED, keys, said))
        if watermarks:
            steps.append((_ADVANCE, [self._shared("watermarks")], _raised(watermarks)))
        async with _translated():
            replies = await self._run(steps)
        fenced = []
        for name, reply in zip([*released, "watermarks"], replies, strict=False):
            if reply[0] == b"FENCED":
                fenced.append(name)
            else:
                _facts(name, reply)
        return tuple(fenced)

    async def partitions(self, topic: str, count: int) -> int:
        if count < 1:
            raise ValueError("a topic has at least one partition")
        key = self._shared("partitions")
        async with _translated():
            await self._command("HSETNX", key, topic, count)
            return int(await self._command("HGET", key, topic))

    async def constant(self, name: str, proposed: bytes) -> bytes:
        key = self._shared("constants")
        async with _translated():
            await self._command("HSETNX", key, name, proposed)
            recorded: bytes = await self._command("HGET", key, name)
        return recorded

    async def cursors(self, dataset: str, keys: Sequence[str] | None = None) -> dict[str, int]:
        check_name(dataset)
        key = self._key(dataset, "cursor")
        async with _translated():
            if keys is None:
                stored = await self._command("HGETALL", key)
                return {at.decode(): int(offset) for at, offset in stored.items()}
            offsets = await self._command("HMGET", key, *keys)
        return {key: int(at) for key, at in zip(keys, offsets, strict=True) if at is not None}

    async def hold(self, holder: str, partitions: Collection[int]) -> set[int]:
        arguments = [holder.encode(), *(b"%d" % partition for partition in partitions)]
        async with _translated():
            (reply,) = await self._run([(_HOLD, [self._shared("hands")], arguments)])
        return {int(partition) for partition in _facts("hands", reply)}

    async def attempts(self, task: str) -> int:
        async with _translated():
            return int(await self._command("HINCRBY", self._shared("attempts"), task, 1))

    async def clear_attempts(self, task: str) -> None:
        async with _translated():
            await self._command("HDEL", self._shared("attempts"), task)

    async def close(self) -> None:
        if self._owned:
            await self._client.aclose()

    # ---------------------------------------------------------------------------------------------

    def _key(self, dataset: str, part: str) -> str:
        return f"{{{self._prefix}:{dataset}}}:{part}"

    def _keys(self, dataset: str) -> list[str]:
        return [self._key(dataset, part) for part in PARTS]

    def _shared(self, part: str) -> str:
        return f"{{{self._prefix}}}:{part}"

    async def _command(self, *arguments: str | int | bytes) -> Any:
        return await self._client.execute_command(*arguments)

    async def _run(self, steps: Sequence[_Step]) -> list[list[bytes]]:
        """Runs atomic steps, each in a slot of its own, in one round trip; returns what each says."""
        rest: list[_Command] = [(len(keys), *keys, *arguments) for _, keys, arguments in steps]
        replies = await self._send(
            [("EVALSHA", script.sha, *one) for (script, *_), one in zip(steps, rest, strict=True)]
        )
        # A new server, SCRIPT FLUSH, a failover. Nothing of these ran.
        unknown = [
            at for at, reply in enumerate(replies) if isinstance(reply, exceptions.NoScriptError)
        ]
        again = await self._send([("EVAL", steps[at][0].source, *rest[at]) for at in unknown])
        for at, reply in zip(unknown, again, strict=True):
            replies[at] = reply
        return replies

    async def _send(self, commands: Sequence[_Command]) -> list[Any]:
        """Replies to commands that do not depend on each other; NoScriptError may be one."""
        if not commands:
            return []
        if isinstance(self._client, RedisCluster):
            sent = (self._client.execute_command(*command) for command in commands)
            replies = await asyncio.gather(*sent, return_exceptions=True)
        else:
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            replies = await pipeline.execute(raise_on_error=False)
        for reply in replies:
            if isinstance(reply, BaseException) and not isinstance(reply, exceptions.NoScriptError):
                raise reply
        return replies

    async def _found(
        self, ids: Mapping[str, Sequence[str]], *parts: str
    ) -> dict[tuple[str, str], bytes]:
        for dataset in ids:
            check_name(dataset)
        asked = [
            (dataset, names, part) for dataset, names in ids.items() if names for part in parts
        ]
        async with _translated():
            replies = await self._send(
                [
                    ("HMGET", self._key(dataset, part), *(name.encode() for name in names))
                    for dataset, names, part in asked
                ]
            )
        found: dict[tuple[str, str], bytes] = {}
        for (dataset, names, _), contents in zip(asked, replies, strict=True):
            found |= _stored_under(dataset, names, contents)
        return found

    async def _read(self, dataset: str, part: str) -> Any:
        if part in _PAGE:
            return await self._pages(dataset, part, 0)
        if part == "blocks":
            return await self._command("LLEN", self._key(dataset, part))
        return await self._command("HGETALL", self._key(dataset, part))

    async def _whole(self, dataset: str, part: str) -> list[bytes]:
        """A list that is short, as of one instant: it loses its first items while it grows."""
        read: list[bytes] = await self._command("LRANGE", self._key(dataset, part), 0, -1)
        return read

    async def _pages(self, dataset: str, part: str, start: int) -> list[bytes]:
        key, size = self._key(dataset, part), _PAGE[part]
        read: list[bytes] = []
        while True:
            first = start + len(read)
            page = await self._command("LRANGE", key, first, first + size - 1)
            read.extend(page)
            if len(page) < size:
                return read


async def _refuse_replica(connection: Any) -> None:
    """Looks who is at the other end of a new connection: what Sentinels said may be out of date."""
    await connection.on_connect()
    await connection.send_command("INFO", "replication")
    lines = _decoded(await connection.read_response()).splitlines()
    if dict(line.split(":", 1) for line in lines if ":" in line).get("role") == "slave":
        raise exceptions.ConnectionError("the server is a replica; the Sentinels are asked again")


def _usage(info: Mapping[str, str]) -> Usage:
    limit = int(info.get("maxmemory", 0))
    # The server compares its limit with this difference, which leaves out the buffers of its file.
    counted = int(info["used_memory"]) - int(info.get("mem_not_counted_for_evict", 0))
    return Usage(
        memory=counted,
        limit=limit or int(info.get("total_system_memory", 0)),
        limited=limit > 0,
        disk=int(info.get("aof_current_size", 0)),
        rewritten=info.get("aof_last_bgrewrite_status", "ok") == "ok",
    )


def _noted(partition: str) -> str:
    """The field that keeps what is noted of that partition of the journal."""
    return f"journal {partition}"


def _note(stored: bytes | None) -> Note:
    """Raises ValueError for what does not decode."""
    return Note() if stored is None else Note(*map(int, stored.split()))


def _raised(watermarks: Mapping[str, int]) -> list[bytes]:
    return [part for at, to in watermarks.items() for part in (at.encode(), b"%d" % to)]


def _note_to_bytes(note: Note) -> bytes:
    return b"%d %d %d" % (note.offset, note.epoch, note.seq)


def _stored_under(
    dataset: str, names: Sequence[str], contents: Sequence[bytes | None]
) -> dict[tuple[str, str], bytes]:
    return {
        (dataset, name): content
        for name, content in zip(names, contents, strict=True)
        if content is not None
    }


def _facts(dataset: str, reply: Sequence[bytes]) -> list[bytes]:
    """Returns a script's reply without its OK, and raises the error that it reports."""
    code, *facts = reply
    if code != b"OK":
        raise refusal(dataset, code.decode(), *(fact.decode() for fact in facts))
    return facts


def _refused(transition: Transition, reply: Sequence[bytes]) -> StoreError | None:
    """Returns why a transition was not committed. None if it was."""
    if reply[0] == b"DUPLICATE":
        # An id is any text; what comes back is its position, from 1.
        what = reply[1].decode()
        known = {
            "answer": list(transition.answers),
            "batch": list(transition.batches),
            "taken": [one.hex() for one in transition.taken],
        }
        return refusal(transition.dataset, "DUPLICATE", what, known[what][int(reply[2]) - 1])
    try:
        _facts(transition.dataset, reply)
    except StoreError as error:
        return error
    return None


_SNAPSHOT = (
    "control",
    "meta",
    "cursor",
    "pending",
    "blocks",
    "spent",
    "transcript",
    "verified",
    "intents",
    "outbox",
    "vault",
)

# What `look` reads between two looks at the place, but for the lists that only grow, and for secrets.
_BETWEEN = [part for part in _SNAPSHOT if part not in ("control", "transcript", "vault")]
_PLACE = (b"token", b"seq", b"head", b"trail")

# An older state is healed from the journal, so a server may forget its last commits. It may neither forget
# all of them at each restart nor lose single keys. The first value is the one that is advised.
_REQUIRED = {
    "appendonly": (
        ("yes",),
        "after a restart the store would be empty, and all of it would have to come from the journal",
    ),
    "appendfsync": (
        ("everysec", "always"),
        "a crash could take minutes of commits along, all to be healed from the journal",
    ),
    "maxmemory-policy": (
        ("noeviction",),
        "a full server would drop single answers, ids and charges, which the journal cannot heal",
    ),
}


def _nothing(dataset: str) -> Snapshot:
    """Returns the snapshot of a data set that does not exist."""
    empty: dict[str, Any] = {part: [] if part in _PAGE else {} for part in _SNAPSHOT}
    empty["blocks"] = 0
    empty["control"] = {b"seq": b"0", b"head": GENESIS.hex().encode()}
    return _snapshot(dataset, 0, empty)


def _snapshot(dataset: str, token: int, parts: Mapping[str, Any]) -> Snapshot:
    """Raises KeyError or ValueError for what does not decode."""
    control = parts["control"]
    spent = parts["spent"]
    head = bytes.fromhex(control[b"head"].decode())
    trail = bytes.fromhex(control.get(b"trail", ORIGIN.hex().encode()).decode())
    if len(head) != HEAD_BYTES or len(trail) != TRAIL_BYTES:
        raise ValueError("head")
    return Snapshot(
        dataset=dataset,
        token=token,
        seq=int(control[b"seq"]),
        head=head,
        trail=trail,
        definition=control.get(b"definition"),
        meta={name.decode(): value.decode() for name, value in parts["meta"].items()},
        cursor={key.decode(): int(offset) for key, offset in parts["cursor"].items()},
        pending=tuple(parts["pending"]),
        n_blocks=parts["blocks"],
        vault={name.decode(): secret for name, secret in parts["vault"].items()},
        spent=tuple(
            (int(spent[b"%d:rho" % block]), int(spent[b"%d:delta" % block]))
            for block in range(len(spent) // 2)
        ),
        transcript=tuple(parts["transcript"]),
        verified=dict(parts["verified"]),
        intents=dict(sorted((int(seq), look) for seq, look in parts["intents"].items())),
        outbox=tuple(sorted((int(seq), records) for seq, records in parts["outbox"].items())),
    )


def _texts(reply: Mapping[str | bytes, Any]) -> dict[str, str]:
    """A reply of names and values as text, whichever protocol version and client made it."""
    return {_decoded(name): _decoded(value) for name, value in reply.items()}


def _decoded(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    """Turns errors of the client library into ours, without what a server quotes of a command."""
    try:
        yield
    except (exceptions.AuthenticationError, exceptions.AuthorizationError) as error:
        raise StoreRefused(
            "the store's server refuses our user or password; correct them in its address"
        ) from error
    except (
        exceptions.ConnectionError,
        exceptions.TimeoutError,
        exceptions.ClusterDownError,
        exceptions.TryAgainError,
        exceptions.ClusterError,
        exceptions.RedisClusterException,
        OSError,
    ) as error:
        raise StoreUnavailable(
            "the store cannot be reached; whether the last step happened is unknown"
        ) from error
    except exceptions.RedisError as error:
        raise _in_words(error) from None


def _in_words(error: exceptions.RedisError) -> StoreError:
    text = str(error)
    code = text.split(" ", 1)[0]
    for name, kind, words in _WORDS:
        if isinstance(error, kind) or code == name:
            return StoreRefused(words)
    if code == "WRONGTYPE":
        return CorruptState(
            "a key of ours holds something else; restore the store, or give stream_dp a prefix of its own"
        )
    if not code.isupper():
        code = "ERR"
    return StoreError(
        f"the store's server refuses the step ({code}, {type(error).__name__}); is it Redis 7 or Valkey 8, "
        "or later?"
    )


_WORDS: tuple[tuple[str, type[exceptions.RedisError] | tuple[()], str], ...] = (
    (
        "OOM",
        exceptions.OutOfMemoryError,
        (
            "the store's server is out of memory; nothing was written. Raise maxmemory, and never "
            "switch eviction on: answers, ids and charges must stay"
        ),
    ),
    (
        "READONLY",
        exceptions.ReadOnlyError,
        "the store's server is a replica and takes no writes; give the address of its primary",
    ),
    (
        "NOPERM",
        exceptions.NoPermissionError,
        "the store's server denies our user a command or key; grant the prefix, EVALSHA and EVAL",
    ),
    (
        "MISCONF",
        (),
        "the store's server cannot write to its disk and takes no writes; free disk space or fix the disk",
    ),
    (
        "MOVED",
        exceptions.MovedError,
        "the store's server is a node of a Redis Cluster; set STREAM_DP_REDIS_CLUSTER=true",
    ),
    (
        "NOREPLICAS",
        (),
        "the store's server lacks the replicas it must wait for and takes no writes; start them",
    ),
)


__all__ = ["DEFAULT_PREFIX", "RedisStore"]
