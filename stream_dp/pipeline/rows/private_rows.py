"""The private side of one data set: its values, the rows that wait, and the sealed blocks."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.attributes import Number
from stream_dp.core.rows.blocks import Block
from stream_dp.core.rows.person_records import Since, folded_rows, of_boolean, phases_since
from stream_dp.core.rows.person_slots import Slots
from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.datasets.tools import Tools
from stream_dp.pipeline.rows.own_values import RUN, OwnValues
from stream_dp.pipeline.rows.person_allowance import CountedInPhases, UsedUnits
from stream_dp.pipeline.rows.private_values import LOOKED
from stream_dp.pipeline.rows.sealed_blocks import SealedBlocks
from stream_dp.pipeline.rows.secret_order import secret_order
from stream_dp.pipeline.rows.waiting.waiting_batches import WaitingBatches

FORGOTTEN: Final = "forgotten"
"""The fact that says through which batch of changes it is forgotten what persons have used."""


class PrivateRows:
    """The rows of one data set, and what else is private of it.

    Attributes:
        values: Its private values.
        waiting: The batches that wait for a phase.
        blocks: The sealed blocks. Their vault has the secrets of runs.
        used: What persons have used, where the promise is for life.
        counted: How many rows of persons count in phases that may still get late ones.
    """

    def __init__(self, engine: Engine, draft: Draft, tools: Tools) -> None:
        self._engine, self._draft = engine, draft
        self.values = OwnValues(draft, tools.keeper, tools.context.fuse)
        self.waiting = WaitingBatches(engine, draft, self.values, tools, lambda: len(self.blocks))
        self.blocks = SealedBlocks(
            draft.dataset,
            engine,
            self.values,
            lambda: self.waiting.secret,
            tools.cache,
            tools.cluster,
        )
        self.used = UsedUnits(self.values)
        self.counted = CountedInPhases(self.values)

    def __repr__(self) -> str:
        return f"PrivateRows({len(self.blocks)} blocks)"

    async def read(self, *, whole: bool) -> tuple[int, list[str]]:
        """Reads all that is private, but for blocks: a look reads those.

        Args:
            whole: What ``WaitingLots.read`` takes.

        Returns:
            What ``WaitingBatches.forget_lost`` returns.

        Raises:
            CorruptState: The secret of its persons, or what they have used, is nowhere any more.
            WrongSetting: It was defined with another key file, or its rows are in another store.
        """
        await self.values.check_store()
        await self.waiting.read(whole=whole)
        lost = self.waiting.forget_lost()
        await self.used.read()
        for run in self.values.named(RUN):
            if (secret := await self.values.find(RUN + run)) is not None:
                self.blocks.data.vault[run] = secret
        return lost

    async def whose(self, times: range) -> Slots | None:
        """Says whose the rows are that wait under some times, in the order in which ``keep`` keeps them.

        None where rows are protected. Private.

        Raises:
            CorruptState: It is nowhere any more.
        """
        if self.waiting.lots.among(times):
            await self.waiting.keep_lot()
            while await self.waiting.change_a_lot(times):
                pass
        return await self.waiting.whose(times)

    async def forget_persons(self) -> None:
        """Forgets what persons have used for life of whom changes that came since then say so.

        It is done before anything more is used, so that it is about what they had used as the changes came.
        """
        through, waiting = int(self._draft.facts.get(FORGOTTEN, "0")), self.waiting
        unit = self._engine.definition.privacy.unit
        if unit is not None and unit.lifetime and through < waiting.n_changed:
            await self.used.forget_persons(waiting.changes.after(through).forgotten)
            self._draft.note(FORGOTTEN, str(waiting.n_changed))

    async def keep(
        self, index: int, times: range, whose: Slots | None, marks: npt.NDArray[np.bool_] | None
    ) -> None:
        """Keeps the rows that wait under some times in a block. If it is there, they come to it.

        Args:
            index: The index of the block.
            times: The times.
            whose: What ``whose`` says.
            marks: Marks those that count, shape (n_slots,). None where rows are protected.
        """
        waiting, in_order = self.waiting, self._engine.mechanism.in_order
        after, since = waiting.n_changed, await self._since(index, whose)
        if lots := waiting.lots.among(times):
            await self.blocks.keep_lots(
                index, lots, marks, whose, since, in_order=bool(in_order), after=after
            )
            return
        universe = self._engine.rows_universe(index)
        rows = folded_rows(universe, waiting.in_memory(times).within(universe), since)
        block = Block.seal(
            universe,
            rows,
            in_order,
            counted=marks,
            order=secret_order,
            owned=self._engine.definition.erasure is not None,
        )
        await self.blocks.keep(index, block, after)

    async def _since(self, index: int, whose: Slots | None) -> Since:
        """How many phases ago the persons of a new block were there before, for attributes that say it.

        Who is erased by a change that waits was not there.
        """
        universe = self._engine.rows_universe(index)
        said = {
            at: one
            for at, one in universe.folded.items()
            if isinstance(one, Number) and one.fold == "since"
        }
        if not said:
            return {}
        assert whose is not None, "it is about the rows of persons"
        booleans = {at: of_boolean(universe, one) for at, one in said.items()}
        longest = max(len(one.edges) for one in said.values())
        before = [
            await self.blocks.persons(block, {*booleans.values()}, self.waiting.changes)
            for block in range(index - 1, max(-1, index - longest - 1), -1)
        ]
        return {
            at: phases_since(one, whose, [some[booleans[at]] for some in before[: len(one.edges)]])
            for at, one in said.items()
        }

    async def keep_secrets(self, secrets: dict[str, bytes]) -> None:
        """Keeps the secrets of runs that a look begins."""
        self.blocks.data.vault.update(secrets)
        await self.values.keep(**{RUN + name: secret for name, secret in secrets.items()})

    def drop_secrets(self) -> None:
        """Drops, with the next commit, the secrets that no run needs any more."""
        for name in self.values.named(RUN).keys() - self._engine.mechanism.secrets:
            self.values.discard(RUN + name)
            self.blocks.data.vault.pop(name, None)  # it may have been lost

    def erase_all(self) -> None:
        """Drafts that all rows are erased, and forgets them. The engine begins again before this."""
        self._draft.note(LOOKED, "")
        self.waiting.retire()
        self.values.discard_all()
        self.used.forget()
        self.blocks.stored.forget()
        self.blocks.restart()

    def let_go(self) -> None:
        """Forgets the rows that this owner has read: the data set is not its own any more."""
        self.blocks.stored.forget()
