"""One data set as its owner holds it: the private rows, the public engine, and the next commit.

Everything that a record changes goes into ``draft``, whose ``commit`` the journal takes as a whole. A look at
the rows goes through ``looks``, which has the journal take its charge first.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from time import monotonic
from typing import Final

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.budget.parameters import erased_blocks
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState, InvalidDefinition
from stream_dp.messages import (
    ChangeAnalysts,
    ChangeSchema,
    Definition,
    Reason,
    large_delta,
    standing_key,
)
from stream_dp.pipeline.datasets.draft import Draft
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.datasets.paid_looks import PaidLooks
from stream_dp.pipeline.datasets.phases import Phases
from stream_dp.pipeline.datasets.tools import Tools
from stream_dp.pipeline.datasets.transcript import (
    GONE,
    PHASE,
    Gone,
    given_up,
    gone_entry,
    late_rows,
    opening,
    schema_entry,
)
from stream_dp.pipeline.intake.records import Outgoing
from stream_dp.pipeline.journal.chain import JournalChain
from stream_dp.pipeline.queries.known_replies import KnownReplies
from stream_dp.pipeline.queries.standing_queries import Moment, StandingQueries
from stream_dp.pipeline.rows.private_rows import PrivateRows
from stream_dp.pipeline.spending.line_accounts import LineAccounts, WindowFacts
from stream_dp.profiles.builder import line_of, rows_that_open
from stream_dp.profiles.share_settings import check_opening
from stream_dp.state.schema import StateTable

_ROTATED: Final = "answers rotated"  # when the answers did last, in milliseconds since 1970

_DAY_MS: Final = 86_400_000

NOT_NEXT_SCHEMA: Final = InvalidDefinition(
    "schema_version",
    "it is not one more than there are, or it is another change under the number of the newest version",
    "read the newest version from the catalog, and change that",
)

_log = logging.getLogger(__name__)


class Dataset:
    """A data set that this worker owns: one that the journal has, or one that ``define`` creates.

    Attributes:
        engine: What follows from its definition: the universe and the mechanism.
        draft: Its state, and the next commit.
        rows: Its rows, and what else is private of it.
        accounts: What its lines have paid, and who may charge them.
        looks: Takes looks at its rows.
        phases: Its phases.
        standing_queries: The queries that are answered again in each phase.
        known_replies: Repeats that were given, for those who ask the same again.
        used_at: When a record of it was in hand last, by a clock that only goes forward, in seconds.

    Args:
        chain: What is durable of the data set. Empty for one that is to be defined.
        definition: The definition of the data set. ``define`` makes a new definition durable.
        tools: What it is held with.

    Raises:
        InvalidDefinition: No mechanism can be built from the definition.
        CorruptState: What is durable of it does not fit together.
    """

    def __init__(self, chain: JournalChain, definition: Definition, tools: Tools) -> None:
        self.name = chain.name
        self._tools = tools
        engine = self.engine = Engine(definition)
        draft = self.draft = Draft(chain, tools.context.fuse, lambda: engine.mechanism.remembered())
        rows = self.rows = PrivateRows(engine, draft, tools)
        accounts = self.accounts = LineAccounts(engine, draft)
        looks = self.looks = PaidLooks(engine, draft, rows, accounts, tools)
        self.phases = Phases(engine, draft, rows, accounts, looks, tools.context.fuse)
        self.standing_queries = StandingQueries(self.name, draft.facts, draft.note)
        self.known_replies = KnownReplies()
        self.used_at = monotonic()
        self._gone = Gone.from_text(draft.facts.get(GONE, ""))
        self._changes_lost: list[str] = []

    @classmethod
    async def stored(
        cls, chain: JournalChain, tools: Tools, *, replays: bool = True, inherited: bool = False
    ) -> Dataset:
        """A data set as the journal has it, for the owner that has just taken it over.

        Args:
            chain: What is durable of it.
            tools: What it is held with.
            replays: Whether to fold what was published and to read the rows. A worker that died of just that
                holds the data set without either, and quarantines it.
            inherited: Whether the last owner died, as one does that does not find all of the rows that wait.

        Raises:
            CorruptState: What is durable of it does not fit together.
            WrongKeyFile: It was defined with another key file.
        """
        definition = Definition.read(json.loads(chain.build().pairs[StateTable.DEFINITION, b""]))
        dataset = cls(chain, definition, tools)
        if replays and not dataset.retired:
            dataset._replay()
            lost, dataset._changes_lost = await dataset.rows.read(whole=inherited)
            dataset._gone = replace(dataset._gone, batches=lost)
        return dataset

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, phase={self.phase})"

    # ------------------------------------------------------------ public facts

    @property
    def definition(self) -> Definition:
        """Its definition."""
        return self.engine.definition

    @property
    def universe(self) -> Universe:
        """The finite set of possible rows."""
        return self.engine.universe

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism that answers the queries."""
        return self.engine.mechanism

    @property
    def phase(self) -> int:
        """Phases opened so far."""
        return len(self.rows.blocks)

    @property
    def retired(self) -> bool:
        """Whether the data set is retired."""
        return self.draft.facts.get("retired") == "1"

    @property
    def quarantined(self) -> str:
        """The record or the take-over that the worker died of again and again. Empty while there is none."""
        return self.draft.facts.get("quarantined", "")

    @property
    def moment(self) -> Moment:
        """What standing queries are answered for by now."""
        return Moment(self.phase, self.phases.ticking.newest_minute)

    def facts_of(self, window: range, analyst: str) -> WindowFacts:
        """Returns the facts about ``window`` that every answer about it to an analyst repeats."""
        known = self.accounts.window_facts
        name = window, analyst if self.accounts.paying.bounds else ""
        if name not in known:
            known[name] = WindowFacts(
                n=self.rows.blocks.n_rows(window),
                budget=self.accounts.budget(window, analyst),
                phase=self.phase,
                window=(window.start + 1, window.stop),
                **self.phases.dates(window),
                **self.phases.late.facts(window),
                **self.phases.sweeps.facts(window),
            )
        return known[name]

    # ------------------------------------------------------------ records

    def begins(self, record_id: str, *, at_most: float | None = None) -> None:
        """Says which record is in hand.

        Args:
            record_id: The record.
            at_most: The largest share of any line that the record may take. None for no limit.
        """
        self.used_at = monotonic()
        self.draft.asked = None
        self.accounts.begins(record_id, at_most)
        self._rotate_answers()  # the first record notes from when on they are kept

    def _rotate_answers(self) -> None:
        """Drafts that old answers and outcomes are dropped, if the record in hand says that it is time.

        Only the times of records decide, so everybody who reads them again does the same. One that is dated
        before the last rotation changes nothing.
        """
        days, dated_ms = self.definition.kept_answers_days, self.draft.dated_ms
        if days is None or dated_ms < 0:
            return
        rotated = self.draft.facts.get(_ROTATED)
        if rotated is None or dated_ms >= int(rotated) + days * _DAY_MS:
            self.draft.note(_ROTATED, str(dated_ms))

    async def keep_waiting(self, before_ms: float) -> None:
        """Keeps rows as private values that wait since before a time, see ``WaitingBatches.keep_apart``."""
        self.draft.commit()
        await self.rows.waiting.keep_apart(before_ms)
        self.draft.commit()

    async def let_clean(self) -> None:
        """Lets the broker clean the private topic of rows that sweeps have erased."""
        if self.definition.erasure is not None:
            await self._tools.keeper.let_clean(self.name)

    async def drop_kept(self) -> None:
        """Erases from the private topic what commits have erased, and drafts a note of it."""
        await self.rows.values.drop(self._tools.appended, retired=self.retired)

    # ------------------------------------------------------------ from its definition to its end

    async def define(self) -> None:
        """Drafts the first commit of a new data set, which makes its definition durable."""
        definition = self.definition
        check_opening(definition, self.mechanism)
        self.draft.put(StateTable.DEFINITION, "", definition.to_bytes())
        await self.rows.waiting.new_secret(self.looks.noise)
        self.draft.write_ledger(
            "dataset",
            {
                "definition": json.loads(definition.to_bytes()),
                "line": line_of(definition),
                **self.phases.sweeps.promised(),
            },
        )
        self.draft.release(Outgoing("catalog", self.name, definition.to_bytes()))
        self.accepted()

    def accepted(self) -> None:
        """Announces that this data set is accepted, also to a client that sends the same definition again."""
        n_rows = rows_that_open(self.mechanism, self.definition)
        note = large_delta(self.definition.privacy.delta, n_rows)
        self.draft.announce("dataset_accepted", note=note)

    def change_analysts(self, rules: ChangeAnalysts) -> None:
        """Drafts what is allowed to whom from now on. What is so already is only announced."""
        self.accounts.change_rules(rules)
        self.draft.announce("analysts_changed")

    async def change_schema(self, change: ChangeSchema) -> None:
        """Drafts that other attributes are in force from the first phase on of which no row has come.

        Phases get their late rows before that. The same change again is only announced.

        Raises:
            InvalidDefinition: It changes what must not change, or is not the next one.
        """
        ahead = change.schema_version - self.definition.schema_version
        if ahead not in (0, 1) or (not ahead and change.attributes != self.definition.attributes):
            raise NOT_NEXT_SCHEMA
        if ahead:
            first_phase = self.phase + self.phases.n_to_come + 1
            await self.phases.late.complete(self.phase)
            while await self.phases.sweeps.take(now=True):
                pass
            self.phases.ticking.stop()
            self.engine.put_in_force(change, first_phase)
            self.draft.publish(schema_entry(change, first_phase))
            self.accounts.changed()
            self.draft.write_ledger(
                "schema",
                {
                    "schema_version": change.schema_version,
                    "phase": first_phase,
                    "attributes": json.loads(change.to_bytes())["attributes"],
                    "indices": list(self.engine.schema.newest.indices),
                },
            )
            self.draft.release(Outgoing("catalog", self.name, self.engine.cataloged.to_bytes()))
        assert self.definition.versions is not None, "there are several by now"
        version = self.definition.versions[-1]
        said = {"schema_version": version.schema_version, "phase": version.first_phase}
        self.draft.announce("schema_changed", **said)

    def retire(self) -> None:
        """Erases the rows for ever; the name, its answers and its ledger stay."""
        self.draft.commit()
        self.draft.note("retired", "1")
        for table in (StateTable.TRANSCRIPT, StateTable.VERIFIED, StateTable.RUNNING):
            for key in self.draft.state.table(table):
                self.draft.put(table, key, None)
        self.engine.restart()
        self.rows.erase_all()
        self.phases.spans.clear()
        self.phases.late.n_complete = 0
        self.phases.sweeps.retire()
        self.accounts.changed()
        self.draft.write_ledger("retired", {})
        self.draft.release(Outgoing("catalog", self.name, b""))
        for entry in list(self.standing_queries):
            self.standing_queries.end(entry)
            listed = standing_key(self.name, entry.analyst, entry.query_id)
            self.draft.release(Outgoing("standing", listed, b""))
        if self.definition.synthetic_rows:
            self.draft.release(Outgoing("synthetic", self.name, b""))

    def gone(self) -> None:
        """Announces that this data set is retired, also to a client that retires it again."""
        self.draft.announce("dataset_retired")

    def quarantine(self, cause: str) -> None:
        """Takes nothing more: the worker died too often of ``cause``, a record or the take-over."""
        _log.error("data set %s is quarantined at %s", self.name, cause)
        self.draft.note("quarantined", cause)
        reason = Reason(
            code="quarantined",
            message=f"the worker died again and again at {cause}; an operator must look",
        )
        self.draft.announce("quarantined", reason=reason)

    # ------------------------------------------------------------ taking over

    def _replay(self) -> None:
        """Folds what was published again."""
        transcript = self.draft.state.numbered(StateTable.TRANSCRIPT)
        opened = [opening(entry) for entry in transcript if entry[:1] == PHASE]
        spent = self.accounts.spent
        if len(spent) != len(opened):
            raise CorruptState(f"{self.name}: more or fewer phases are charged than were opened")
        bare = max((one.phases for one in given_up(transcript)), default=0)
        erased = max(erased_blocks(len(opened), self.definition.kept_phases), bare)
        late = late_rows(transcript)
        self.phases.spans[:] = [span for _, span in opened]
        self.phases.late.n_complete = len(late)
        self.rows.blocks.restart([n_rows for n_rows, _ in opened], erased, bare)
        for index, n_rows in enumerate(late):
            self.rows.blocks.data.add_rows(index, n_rows)
        self.looks.releases = self.engine.fold(transcript)
        self.mechanism.charged(
            tuple(Charge(block, rho, delta) for block, (rho, delta) in enumerate(spent))
        )
        self.mechanism.recall(self.draft.state.table(StateTable.VERIFIED))
        self.phases.ticking.read()

    async def recover(self) -> int:
        """Settles looks that a crash interrupted: their charge stays, another look is charged again.

        Rows that are nowhere any more are given up, in a commit. Runs whose secrets are gone end.

        Returns:
            The number of phases, and of batches that waited, whose rows are given up.
        """
        if self._changes_lost:
            self.phases.sweeps.say_lost(self._changes_lost)
            self._changes_lost = []
        lost = self.looks.settle()
        given_up = self._give_up()
        ended = self.looks.end_runs()
        if lost:
            self.phases.ticking.settled()
        if lost or ended:
            self.rows.drop_secrets()
        if lost and self.phase:
            self.looks.synthesize()
        self.draft.commit()
        await self.drop_kept()
        self.draft.commit()
        return given_up

    def _give_up(self) -> int:
        """Drafts that rows are nowhere any more: the first phases have none from then on."""
        gone, self._gone = self._gone, Gone()
        if self.draft.facts.get(GONE):
            self.draft.note(GONE, "")
        blocks = self.rows.blocks
        had = range(blocks.data.erased, gone.phases)
        if not had and not gone.batches:
            return 0  # nothing is lost, or what is was due to be erased
        self.draft.publish(gone_entry(gone))
        if had:
            blocks.bare = gone.phases
            blocks.erase(gone.phases)
            self.mechanism.rows_gone(gone.phases)
            self.rows.drop_secrets()
        phases = (had.start + 1, had.stop) if had else None
        self.draft.announce("rows_lost", phases=phases, batches=gone.batches)
        return len(had) + gone.batches
