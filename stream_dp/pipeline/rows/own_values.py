"""The private values that the state of one data set names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from stream_dp.core.rows.slabs import Slab, SlabIndex
from stream_dp.errors import CorruptState
from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.intake.records import Releasable
from stream_dp.pipeline.rows.private_values import LOOKED, Keeper, Looked
from stream_dp.pipeline.watch.crash_points import CrashPoint, Fuse
from stream_dp.state.private_names import Named, new_salt, salted, unsalted
from stream_dp.state.schema import ERASED, StateTable

# What private values are kept for, see ``StateTable.KEPT``. Of those that are to be erased, the names stay
# until they are.
PERSON, RUN, USED, COUNTED = "person", "run ", "used ", "counted "
WAITING, WHOSE, ARRIVED, SAID = "waiting ", "whose ", "arrived ", "said "
CAME_WHEN = "came "
BLOCK, WEIGHT, ORDERED, TEXT, FOUND = "block ", "weight ", "ordered ", "text ", "found "
OWNER = "owner "

Veil = Callable[[bytes, Slab], Slab]
"""Hides the columns of a slab, and shows them again, by a salt of 16 bytes."""


class OwnValues:
    """The private values of one data set, by what they are kept for.

    Args:
        draft: The next commit, which names them.
        keeper: Keeps them.
        fuse: Called at each crash point.
    """

    def __init__(self, draft: Draft, keeper: Keeper, fuse: Fuse) -> None:
        self._draft, self._keeper, self._fuse = draft, keeper, fuse
        self._named = {
            what.decode(): Named.from_bytes(named)
            for what, named in draft.state.table(StateTable.KEPT).items()
        }

    async def keep(self, **secrets: bytes) -> None:
        """Keeps secrets, and drafts their names. They may be read from then on."""
        await self._keep({what: [salted(secret)] for what, secret in secrets.items()})

    async def keep_slabs(self, slabs: Mapping[str, Slab]) -> list[Named]:
        """Keeps slabs, and drafts their names. They may be read from then on."""
        return await self._keep({what: slab.stored(new_salt()) for what, slab in slabs.items()})

    async def keep_veiled(self, what: str, slab: Slab, veil: Veil) -> None:
        """Keeps a slab of which no look needs anything, veiled and on the private topic alone."""
        salt = new_salt()
        await self._keep({what: veil(salt, slab).stored(salt)}, viewed=False)

    async def veiled(self, what: str, veil: Veil) -> Slab | None:
        """Reads what ``keep_veiled`` has kept. None if it is nowhere. Private."""
        parts = await self._keeper.whole(self._draft.dataset, self._named[what], viewed=False)
        if parts is None:
            return None
        return veil(SlabIndex.from_bytes(parts[0]).salt, Slab.of_stored(parts))

    def has(self, what: str) -> bool:
        """Whether anything is kept for this."""
        return what in self._named

    async def _keep(
        self, values: Mapping[str, Sequence[bytes]], *, viewed: bool = True
    ) -> list[Named]:
        kept = await self._keeper.keep(self._draft.dataset, [*values.values()])
        for (what, parts), named in zip(values.items(), kept, strict=True):
            self.discard(what)
            self._name(what, named)
            if viewed and not named.store:
                for field, part in zip(named.fields(), parts, strict=True):
                    self._draft.keep(field, part)
        return kept

    def _name(self, what: str, named: Named) -> None:
        self._named[what] = named
        self._draft.put(StateTable.KEPT, what, named.to_bytes())

    def rename(self, what: str, other: str) -> Named:
        """Drafts that a value is kept for something else from now on."""
        named = self._named.pop(what)
        self._draft.put(StateTable.KEPT, what, None)
        self._name(other, named)
        return named

    def discard(self, what: str) -> None:
        """Drafts that a value is to be erased."""
        named = self._named.pop(what, None)
        if named is not None:
            self._draft.put(StateTable.KEPT, what, None)
            self._name(f"{ERASED}{what.partition(' ')[0]} {named.name.hex()}", named)

    def discard_all(self) -> None:
        """Drafts that all values are to be erased."""
        for what in [*self._named]:
            if not what.startswith(ERASED):
                self.discard(what)

    def named(self, prefix: str) -> dict[str, Named]:
        """The values of a kind, by what follows the prefix."""
        return {
            what.removeprefix(prefix): named
            for what, named in self._named.items()
            if what.startswith(prefix)
        }

    async def check_store(self) -> None:
        """Checks that they are where this worker looks for them, see ``Keeper.check_store``."""
        await self._keeper.check_store(self._draft.dataset, self._named.values())

    async def find(self, what: str) -> bytes | None:
        """Reads a secret. None if it is nowhere, or was never kept. Private."""
        first = await self._first(what)
        return None if first is None else unsalted(first)

    async def index(self, what: str) -> SlabIndex | None:
        """Reads the index of a slab. None if it is nowhere, or was never kept."""
        first = await self._first(what)
        return None if first is None else SlabIndex.from_bytes(first)

    async def _first(self, what: str) -> bytes | None:
        named = self._named.get(what)
        return None if named is None else await self._keeper.find(self._draft.dataset, named)

    async def slab(self, what: str) -> Slab | None:
        """Reads a slab with all its columns. None if it is nowhere, or was never kept. Private."""
        if (named := self._named.get(what)) is None:
            return None
        parts = await self._keeper.whole(self._draft.dataset, named)
        return None if parts is None else Slab.of_stored(parts)

    async def parts(
        self, places: Sequence[tuple[Named, int]], *, on_topic: bool = False
    ) -> list[bytes | None]:
        """Reads parts of values, see ``Keeper.parts``. Private."""
        return await self._keeper.parts(self._draft.dataset, places, on_topic=on_topic)

    def nowhere(self, said: str) -> CorruptState:
        """The error for a value without which the data set cannot go on.

        Args:
            said: What it is, as the beginning of a sentence.
        """
        return CorruptState(
            f"{self._draft.dataset}: {said} on no topic any more. Restore the topic of blocks, or the store "
            "of rows"
        )

    async def drop(
        self, appended: Callable[[Releasable], Awaitable[None]], *, retired: bool
    ) -> None:
        """Erases from the private topic what commits have erased, and drafts a note of it.

        Args:
            appended: Returns when the journal has the commit that erases it: else what was before would lack
                it.
            retired: Whether the data set is retired. It names nothing again, and is looked through once more
                even if it names nothing now: a worker may have died and left rows.
        """
        gone = self.named(ERASED)
        is_to_end = retired and not self._draft.facts.get(LOOKED)
        if self._draft.dirty or not (gone or is_to_end):
            return
        await appended(self._draft.collect())
        await self._keeper.drop(self._draft.dataset, gone.values())
        self._fuse(CrashPoint.IN_ERASURE)
        for what in gone:
            del self._named[ERASED + what]
            self._draft.put(StateTable.KEPT, ERASED + what, None)
        if is_to_end or any(what.startswith(BLOCK) for what in gone):
            looked = await self._drop_unnamed(at_once=retired)
            self._draft.note(LOOKED, looked.to_text())

    async def drop_again(self) -> None:
        """Erases what a former worker has written since the data set was retired."""
        await self._drop_unnamed(at_once=True)

    async def _drop_unnamed(self, *, at_once: bool) -> Looked:
        named, looked = self._draft.state.kept(), Looked.of(self._draft.facts)
        return await self._keeper.drop_unnamed(self._draft.dataset, named, looked, at_once=at_once)
