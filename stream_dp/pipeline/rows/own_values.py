"""The private values that the state of one data set names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from stream_dp.errors import CorruptState
from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.intake.records import Releasable
from stream_dp.pipeline.rows.private_values import LOOKED, Keeper, Looked
from stream_dp.pipeline.watch.crash_points import CrashPoint, Fuse
from stream_dp.state.private_names import Named
from stream_dp.state.schema import ERASED, StateTable

# What private values are kept for, see ``StateTable.KEPT``. Of those that are to be erased, the names stay
# until they are.
PERSON, WAITING, BLOCK, RUN, USED = "person", "waiting ", "block ", "run ", "used "


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

    async def keep(self, **values: bytes) -> None:
        """Keeps values, and drafts their names. They may be read from then on."""
        kept = await self._keeper.keep(self._draft.dataset, *values.values())
        for what, (named, value) in zip(values, kept, strict=True):
            self.discard(what)
            self._name(what, named)
            self._draft.keep(named.name, value)

    def _name(self, what: str, named: Named) -> None:
        self._named[what] = named
        self._draft.put(StateTable.KEPT, what, named.to_bytes())

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

    async def find(self, what: str) -> bytes | None:
        """Reads a value. None if it is nowhere, or was never kept. Private."""
        named = self._named.get(what)
        return None if named is None else await self._keeper.find(self._draft.dataset, named)

    async def needed(self, what: str, said: str) -> bytes:
        """Reads a value without which the data set cannot go on. Private.

        Args:
            what: What it is kept for.
            said: The same in words, as the beginning of a sentence.

        Raises:
            CorruptState: It is nowhere.
        """
        value = await self.find(what)
        if value is None:
            raise CorruptState(
                f"{self._draft.dataset}: {said} on no topic any more. Restore the topic of blocks"
            )
        return value

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
        await self._keeper.drop_unnamed(
            self._draft.dataset, (), Looked.of(self._draft.facts), at_once=True
        )

    async def _drop_unnamed(self, *, at_once: bool) -> Looked:
        named, looked = self._draft.state.kept(), Looked.of(self._draft.facts)
        return await self._keeper.drop_unnamed(self._draft.dataset, named, looked, at_once=at_once)
