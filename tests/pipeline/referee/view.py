"""P17: Redis follows. Where it was there, it has in the end what the journal has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from stream_dp.core.rows.slabs import SlabIndex
from stream_dp.state import private_names
from stream_dp.state.schema import BY_ID, Pair, State, weight
from tests.pipeline.held import Held
from tests.pipeline.world import World


def redis_follows(world: World) -> Iterator[str]:
    """P17: Redis has the state of each data set that was served last, and values that fit their names.

    It is judged where the last worker had time to write it, and no former one has written since: the owner
    writes it again with its next commit, or when it compares. Of another history Redis may have answers that
    nobody believes.
    """
    done = world.followed
    if world.view_away or done is None or done.ends != tuple(map(len, world.journal)):
        return
    for name in sorted(done.datasets):
        held, state = world.held(name), world.view.states.get(name)
        writers = world.wrote.get(name, [])
        if writers and writers[-1] < max(writers):
            continue
        if state is None or (state.pairs != held.pairs and not _is_wrong(world, state)):
            yield f"P17: Redis has another state of {name} than the journal"
        elif (state.number, state.trail, state.sum) != (held.seq, held.trail, held.sum):
            yield f"P17: Redis has the state of {name} as that of another commit"
        parts = world.view.values.get(name, {})
        for field, part in parts.items():
            value_name = field[:16]
            if value_name not in held.names:
                yield f"P8: Redis has a private value of {name} that no commit names any more"
            elif name not in world.spoiled and not _fits(parts, field, part, held):
                yield f"P17: Redis has a private value of {name} that does not fit its name"
        if name not in world.spoiled and any(
            value not in _ever(held)[pair] for pair, value in _answers(world, name)
        ):
            yield f"P17: Redis has an answer of {name} that was never given"


def _fits(parts: Mapping[bytes, bytes], field: bytes, part: bytes, held: Held) -> bool:
    """Whether a part in Redis is the one that its name means."""
    name, number = field[:16], int.from_bytes(field[16:])
    if not number:
        return private_names.name_of(part) == name
    first = (
        parts.get(name) or (held.world.kept.get(f"{held.name}/{name.hex()}".encode()) or [b""])[0]
    )
    return not first or SlabIndex.from_bytes(first).has(number, part)


def _is_wrong(world: World, state: State) -> bool:
    """Whether a state has a wrong byte, so that its sum does not fit and nobody takes it for one."""
    found = sum(weight(pair, value) for pair, value in state.pairs.items()) % 2**128
    return state.dataset in world.spoiled and found != state.sum


def _answers(world: World, name: str) -> Iterator[tuple[Pair, bytes]]:
    for generation in world.view.generations.get(name, ()):
        yield from generation.items()


def _ever(held: Held) -> dict[Pair, set[bytes]]:
    """All that was ever committed under each id."""
    found: dict[Pair, set[bytes]] = defaultdict(set)
    for one in held.said:
        for pair, value in one.puts.items():
            if pair[0] in BY_ID and value is not None:
                found[pair].add(value)
    return found
