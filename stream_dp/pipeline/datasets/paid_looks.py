"""Looks at the rows of one data set: each is charged, and the journal has its charge, before it is taken."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from fractions import Fraction
from time import monotonic
from typing import Any

from stream_dp.core.budget.accountant import Charge, summed
from stream_dp.core.mechanism import Look, Release
from stream_dp.core.queries.query import AnyQuery
from stream_dp.core.randomness.noise_sources import Kind, NoiseSource
from stream_dp.core.running.tick_look import TickRelease
from stream_dp.errors import RowsGone
from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.datasets.tools import Tools
from stream_dp.pipeline.datasets.transcript import ENDED, GONE, LOST, RELEASE, Gone
from stream_dp.pipeline.intake.records import Outgoing
from stream_dp.pipeline.queries.synthetic_rows import synthesized
from stream_dp.pipeline.rows.private_rows import PrivateRows
from stream_dp.pipeline.spending.line_accounts import LineAccounts
from stream_dp.pipeline.spending.payers import OWN, Payer
from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.state.schema import StateTable


class _Counter:
    """Counts what is reserved of a source of noise."""

    def __init__(self, noise: NoiseSource) -> None:
        self._noise = noise
        self.drawn = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._noise, name)

    def reserve(self, kind: Kind, scale: Fraction, size: int) -> None:
        self._noise.reserve(kind, scale, size)
        self.drawn += size


class PaidLooks:
    """Takes the looks of one data set.

    Attributes:
        noise: The source of noise.
        n_taken: The number of paid looks that this owner has taken.
        releases: The number of releases since the newest phase opened.
    """

    def __init__(
        self,
        engine: Engine,
        draft: Draft,
        rows: PrivateRows,
        accounts: LineAccounts,
        tools: Tools,
    ) -> None:
        self._engine, self._draft, self._rows, self._accounts = engine, draft, rows, accounts
        self._appended, self._fuse = tools.appended, tools.context.fuse
        self.noise = tools.noise()
        self.n_taken = 0
        self.releases = 0

    async def take(
        self,
        looks: Sequence[Look],
        payer: Payer | None = None,
        *,
        asked: bool = True,
        unasked: bool = False,
    ) -> list[Release]:
        """Charges, makes the charge durable, and only then looks; folds what was released.

        Between the look and the commit of its release only the crash of the process can intervene; the
        charge stays then, and the look is taken again under another one.

        Args:
            looks: The looks.
            payer: Who pays for them, within what they may spend. None for what opens a phase, which comes
                before all that anybody may spend.
            asked: Whether the record in hand asks for them, so that they count for its limit.
            unasked: Whether the data set has decided what they take, so that they count for its guards.
        """
        # Refuse what reads erased rows, before anything is charged.
        for look in looks:
            look.check(self._rows.blocks.data)
        # Draw the noise, and the secrets of runs: the commit of the charge names these.
        self._reserve(looks)
        await self._draw_secrets(looks)
        # Charge the lines and the payer.
        charges = summed(charge for look in looks for charge in look.charges)
        self._accounts.charge(payer, charges, asked=asked, unasked=unasked)
        number = self._announce(looks, charges, payer or OWN)
        # Have the journal take the charge. From here on it stays, whatever happens.
        self._fuse(CrashPoint.BEFORE_CHARGE)
        await self._commit()
        self._fuse(CrashPoint.AFTER_CHARGE)
        self._engine.mechanism.charged(charges)
        self._accounts.charged(charges)
        # Look at the rows.
        releases = await self._looked(looks)
        self._fuse(CrashPoint.AFTER_LOOK)
        # Publish and fold what was released. The next commit makes it durable, and then it leaves.
        self._fold(releases)
        self._draft.put(StateTable.INTENT, number, None)
        return releases

    def _reserve(self, looks: Sequence[Look]) -> None:
        """Draws what looks need, and counts it for the record in hand."""
        self.noise.discard()
        counter = _Counter(self.noise)
        for look in looks:
            look.reserve(counter)
        in_hand = self._accounts.in_hand
        in_hand.drawn += counter.drawn
        in_hand.seconds += sum(look.seconds for look in looks)
        self.n_taken += len(looks)

    async def _draw_secrets(self, looks: Sequence[Look]) -> None:
        drawn = [look.draw(self.noise) for look in looks]
        await self._rows.keep_secrets({name: one for of in drawn for name, one in of.items()})

    def _announce(self, looks: Sequence[Look], charges: Sequence[Charge], payer: Payer) -> int:
        """Drafts the entry of the ledger, and that the looks are about to be taken; returns its number."""
        number = self._draft.state.number + 1
        descriptions = [look.description for look in looks]
        self._draft.put(StateTable.INTENT, number, json.dumps(descriptions).encode())
        self._draft.write_ledger(
            "charge",
            {
                "looks": descriptions,
                "charges": [[charge.block, charge.rho, charge.delta] for charge in charges],
                # So two looks never have the same entry, not even where a charge was forgotten.
                "nonce": self._draft.nonce.hex(),
                **payer.fields,
            },
        )
        return number

    async def _commit(self) -> None:
        """Commits the draft, and returns once the journal has it."""
        self._draft.commit()
        await self._appended(self._draft.collect())

    async def _looked(self, looks: Sequence[Look]) -> list[Release]:
        """Takes looks that are charged; how long that lasts says nothing about the data."""
        try:
            async with self._rows.blocks.stored.readable():
                started = monotonic()
                # In a thread: how long it lasts is not to show in what the event loop does for others.
                releases = await asyncio.to_thread(
                    lambda: [look.take(self.noise, self._rows.blocks.data) for look in looks]
                )
                self.noise.discard()
                slot = max((look.seconds for look in looks), default=0.0)
                if slot > 0.0:
                    await asyncio.sleep(slot - (monotonic() - started) % slot)
        except RowsGone as error:
            # The next owner gives these rows up. This one ends, and its look stays charged.
            await self.say_gone(error.phase)
            raise
        return releases

    async def say_gone(self, phase: int) -> None:
        """Commits that the rows of a phase are nowhere any more."""
        self._draft.note(GONE, Gone(phases=phase).to_text())
        await self._commit()

    def _fold(self, releases: Sequence[Release]) -> None:
        for release in releases:
            self._keep(release)
            self._engine.absorb(release)
        self._rows.drop_secrets()
        before, self.releases = self.releases, self.releases + len(releases)
        if self.releases.bit_length() > before.bit_length():
            self.synthesize()

    def _keep(self, release: Release) -> None:
        """Drafts what was published: for ever, or until the period of a tick is sealed."""
        if isinstance(release, TickRelease):
            key = f"{release.period} {release.tick}"
            self._draft.put(StateTable.RUNNING, key, release.to_bytes())
        else:
            self._draft.publish(RELEASE + release.to_bytes())

    # ------------------------------------------------------------ looks of its own

    async def was_asked(
        self, query: AnyQuery, charges: Sequence[Charge] = ()
    ) -> tuple[Charge, ...]:
        """Notes that a query was answered or refused, and takes the looks of its own that are due then.

        The data set pays for them, as for those of an opening. They wait if the record in hand may not take
        as much.

        Returns:
            What these looks are charged.
        """
        return await self.grow(self._engine.mechanism.was_asked(query, charges), asked=True)

    async def grow(self, looks: Sequence[Look], *, asked: bool = False) -> tuple[Charge, ...]:
        """Takes looks of its own, if the owner may pay for them. ``asked`` is as in ``take``."""
        charges = summed(charge for look in looks for charge in look.charges)
        passes = asked and self._accounts.in_hand.would_pass_limit(charges)
        if not charges or passes or self._accounts.lacks(OWN, charges):
            return ()
        await self.take(looks, OWN, asked=asked)
        return charges

    def synthesize(self) -> None:
        """Queues synthetic rows, where the data set wants them.

        With each phase, and whenever it has had twice as many looks: the first ones teach most.
        """
        n_rows = self._engine.definition.synthetic_rows
        if n_rows == 0:
            return
        name = self._draft.dataset
        found = synthesized(
            name,
            self._engine.universe,
            self._engine.mechanism,
            phase=len(self._rows.blocks),
            releases=self.releases,
            n_rows=n_rows,
        )
        if found is not None:
            self._draft.release(Outgoing("synthetic", name, found.to_bytes()))

    # ------------------------------------------------------------ after a crash

    def settle(self) -> bool:
        """Drafts that looks which a crash interrupted are lost: their charge stays.

        Returns:
            Whether there were any.
        """
        lost = self._draft.state.table(StateTable.INTENT)
        for number in sorted(lost, key=int):
            for look in json.loads(lost[number]):
                self._engine.mechanism.lost(look)
                self._draft.publish(LOST + json.dumps(look).encode())
            self._draft.put(StateTable.INTENT, int(number), None)
        return bool(lost)

    def end_runs(self) -> bool:
        """Drafts that runs end whose secrets are gone; returns whether there were any."""
        ended = sorted(self._engine.mechanism.secrets - self._rows.blocks.data.vault.keys())
        if ended:
            self._engine.mechanism.end_runs(ended)
            self._draft.publish(ENDED + json.dumps(ended).encode())
        return bool(ended)
