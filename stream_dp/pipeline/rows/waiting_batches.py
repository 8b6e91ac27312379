"""The batches of one data set that wait for a phase."""

from __future__ import annotations

from collections.abc import Iterable

from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.person_slots import Persons, PersonSecret
from stream_dp.core.rows.universe import Rows
from stream_dp.errors import CorruptState
from stream_dp.messages import Batch, Event
from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.datasets.tools import Tools
from stream_dp.pipeline.rows.own_values import PERSON, WAITING, OwnValues
from stream_dp.pipeline.rows.waiting_rows import Waits, read_again, rows_of
from stream_dp.state.schema import StateTable


class WaitingBatches:
    """Rows that were accepted and are not sealed yet, by the numbers of their batches. Private.

    Attributes:
        n_rows: The number of these rows. It is public.
    """

    def __init__(self, engine: Engine, draft: Draft, values: OwnValues, tools: Tools) -> None:
        self._engine, self._draft, self._values, self._tools = engine, draft, values, tools
        self._pending: dict[int, Rows] = {}
        self._secret: bytes | None = None
        self.n_rows = 0

    def __repr__(self) -> str:
        return f"WaitingBatches({self.n_rows} rows)"

    @property
    def _of_persons(self) -> bool:
        return self._engine.definition.privacy.unit is not None

    async def new_secret(self, noise: NoiseSource) -> None:
        """Draws and keeps the secret of the digests of persons, if the definition protects persons."""
        if self._of_persons:
            secret = PersonSecret.new(noise, self._draft.dataset, self._tools.key_file)
            self._secret = secret.value
            await self._values.keep(**{PERSON: secret.to_bytes()})

    # ------------------------------------------------------------ reading

    async def read(self) -> None:
        """Reads the rows that wait, as far as they are anywhere.

        Raises:
            CorruptState: They are rows of another one, or the secret of its persons is nowhere any more.
            WrongKeyFile: The data set was defined with another key file.
        """
        name = self._draft.dataset
        if self._of_persons:
            stored = await self._values.needed(PERSON, "the secret of its digests is")
            self._secret = PersonSecret.from_bytes(stored, name, self._tools.key_file).value
        found = await read_again(
            name, self._waits(), self._tools.rows, self._tools.partitions, self.rows_of
        )
        for key in self._values.named(WAITING):
            if (kept := await self._values.find(WAITING + key)) is not None:
                found[int(key)] = Rows.from_bytes(self._engine.universe, kept)
        for number in sorted(found):
            self.check_unit(of_persons=found[number].whose is not None)
            self._add(number, found[number])

    def forget_lost(self) -> int:
        """Drafts that batches do not wait that were not found again; returns how many these are."""
        lost = [number for number in self._numbers() if number not in self._pending]
        self._forget(lost)
        return len(lost)

    def rows_of(self, batch: Batch) -> Rows:
        """The rows of a batch, encoded.

        Raises:
            InvalidBatch: They are not rows of this data set.
        """
        unit, persons = self._engine.definition.privacy.unit, None
        if unit is not None:
            assert self._secret is not None, "it is there until the data set is retired"
            persons = Persons(unit.key, self._secret, batch.name)
        return rows_of(batch, self._engine.universe, persons, self._engine.mechanism.in_order)

    def check_unit(self, *, of_persons: bool) -> None:
        """Checks that rows say whose they are just when the definition protects persons.

        Raises:
            CorruptState: They are rows of another data set.
        """
        if of_persons is not self._of_persons:
            raise CorruptState(
                f"{self._draft.dataset}: its rows say whose they are, or do not, against its definition"
            )

    def _waits(self) -> dict[int, Waits]:
        """The places of the batches that can be read again, by their numbers."""
        waiting = self._draft.state.table(StateTable.WAITING)
        return {int(number): Waits.from_bytes(stored) for number, stored in waiting.items()}

    def _numbers(self) -> list[int]:
        kept = self._values.named(WAITING)
        return [*map(int, self._draft.state.table(StateTable.WAITING)), *map(int, kept)]

    # ------------------------------------------------------------ waiting

    def join(self, batch: Batch, rows: Rows, record_id: str) -> None:
        """Drafts that a batch waits.

        Args:
            batch: The batch.
            rows: Its rows. Of an empty batch nothing is to be read again.
            record_id: The record that it came in.
        """
        if not rows.n_rows:
            return
        number = next(reversed(self._pending), -1) + 1
        self._add(number, rows)
        place, _, offset = record_id.rpartition(":")
        waits = Waits(place, int(offset or 0), rows.n_rows, self._draft.dated_ms, batch.name)
        self._draft.put(StateTable.WAITING, number, waits.to_bytes())

    def store_outcome(self, event: Event) -> bytes:
        """Announces the outcome of a batch and drafts it under its id, if it has one."""
        assert event.batch is not None, "the event of a batch names it"
        outcome = self._draft.announce(event)
        if event.batch_id is not None:
            self._draft.put(StateTable.OUTCOME, event.batch_id, outcome)
            days = self._engine.definition.kept_answers_days
            if event.event == "batch_accepted" and days is not None:
                self._draft.put(StateTable.TAKEN, event.batch_id, b"")
        return outcome

    async def keep_apart(self, before_ms: float) -> None:
        """Keeps rows as private values that wait since before a time: their batches may be deleted soon.

        Args:
            before_ms: The time, in milliseconds since 1970. Batches without a time are kept as well.
        """
        due = {
            number: self._pending[number].to_bytes()
            for number, one in self._waits().items()
            if one.dated_ms < before_ms and number in self._pending  # in quarantine they may not be
        }
        if due:
            await self._values.keep(**{f"{WAITING}{number}": rows for number, rows in due.items()})
        for number in due:
            self._draft.put(StateTable.WAITING, number, None)

    def together(self) -> Rows:
        """All rows that wait, in the order in which they came. Private."""
        return Rows.concat([*self._pending.values()])

    def sealed(self) -> None:
        """Drafts that no batch waits any more, since all have become a block."""
        self._forget(self._pending)

    def forget_all(self) -> None:
        """Drafts that no batch waits any more, and forgets the secret of the digests."""
        self._forget(self._numbers())
        self._secret = None

    def _add(self, number: int, rows: Rows) -> None:
        self._pending[number] = rows
        self.n_rows += rows.n_rows

    def _forget(self, numbers: Iterable[int]) -> None:
        for number in list(numbers):
            self._draft.put(StateTable.WAITING, number, None)
            self._values.discard(f"{WAITING}{number}")
            self._pending.pop(number, None)
        self.n_rows = sum(rows.n_rows for rows in self._pending.values())
