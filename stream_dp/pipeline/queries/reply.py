"""The message that an outcome is published as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from stream_dp.core.budget.accountant import UNITS, Charge, summed
from stream_dp.core.mechanism import Quote, dearest
from stream_dp.core.outcome import (
    Answered,
    Difficulty,
    Outcome,
    Path,
    Recorded,
    RefusalCode,
    Refused,
    use_of_outcome,
    widest_bar,
)
from stream_dp.core.queries.query import EVERYTHING, AnyQuery, KindQuery, LinearQuery, Product
from stream_dp.core.residual.plan.targets import percent
from stream_dp.messages import (
    SERIES,
    Answer,
    BudgetShares,
    NoisyAnswer,
    PeriodSoFar,
    PrivacyLoss,
    QueryFields,
    QuotedAnswer,
    Reason,
    RefusedAnswer,
    SeriesAnswer,
    SeriesPart,
)
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.intake.records import plain
from stream_dp.pipeline.queries.usefulness import Precision, use_fields
from stream_dp.pipeline.rows.waiting.row_times import Dates
from stream_dp.profiles.answer_fields import Released, fields_of_count

_FELL_SHORT: Final = (
    "what the query may take did not suffice for the error that it asks for; the error bar says how far off "
    "the answer may be"
)

_PERSONS: Final = "each row that counts is one person's"

_OF_ALL_ROWS: Final = (
    "the first rows of each person in a period that is open count, and shares are of all rows"
)

_NO_LOSS: Final = PrivacyLoss(share=0.0, blocks=0)


def answer_kind(query: QueryFields, asked: AnyQuery | None = None) -> str:
    """The kind of the answer to a query.

    It is the query's own kind, except where one kind of query has answers of two forms.

    Args:
        query: The query as it was sent.
        asked: The query as it was compiled; None if it cannot be.
    """
    if query.series is not None:
        return SERIES
    if query.kind in ("sum", "share", "quantile", "difference") and query.group_by:
        return f"{query.kind}_by_group"
    if query.kind == "threshold" and (query.where is None or _is_whole(asked)):
        return "threshold_curve"
    return query.kind


def _is_whole(asked: AnyQuery | None) -> bool:
    """Returns whether all rows satisfy the condition, which is the same as having none."""
    return isinstance(asked, KindQuery) and asked.predicate == EVERYTHING


class DatedPart(NamedTuple):
    """One part of a series.

    Attributes:
        window: The first and the last phase of it, counted from 1.
        dates: The stretch of time that it covers.
        answer: What was answered or quoted about it.
    """

    window: tuple[int, int]
    dates: Dates
    answer: Answer

    @property
    def written(self) -> SeriesPart:
        """The part as the message has it."""
        facts: dict[str, Any] = {**self.dates, "answer": self.answer}
        return SeriesPart(window=self.window, **facts)


@dataclass(frozen=True, slots=True)
class ReplyMaker:
    """Makes the replies to one query.

    Attributes:
        dataset: The data set that is asked.
        analyst: The name of the analyst who asks.
        query: The query as it was sent.
    """

    dataset: Dataset
    analyst: str
    query: QueryFields

    def refused(self, refusal: Refused, asked: AnyQuery | None = None) -> Answer:
        """Makes a refusal.

        Args:
            refusal: Why there is no answer.
            asked: The query as it was compiled, if it was. The refusal then reports the remaining budget.
        """
        budget = None if asked is None else self.dataset.accounts.budget(asked.window, self.analyst)
        if asked is not None:
            refusal = in_words(self.dataset, self.analyst, asked, refusal)
        return RefusedAnswer(**self._head(asked), budget=budget, reason=reason_of(refusal))

    def answered(
        self,
        asked: AnyQuery,
        outcome: Outcome,
        charges: tuple[Charge, ...],
        note: str | None,
        growth: tuple[Charge, ...] = (),
    ) -> Answer:
        """Makes the answer of its kind from an outcome, or a refusal.

        Args:
            asked: The query as it was compiled.
            outcome: The outcome that the mechanism released.
            charges: The charges for it.
            note: Anything else that the reader should know.
            growth: What the data set was charged for what it measures more because of it.
        """
        if isinstance(outcome, Refused):
            return self.refused(outcome, asked)
        alike, of = self.dataset.known_replies.alike(self.dataset.accounts.changes), None
        recorded = self.dataset.mechanism.recorded(asked)
        if (
            not recorded.at_most
            and isinstance(outcome, Answered)
            and not charges
            and not growth
            and self._is_plain(outcome)
        ):
            # It has all but its id and its numbers in common with others.
            of = asked.window, self.analyst, outcome.path, outcome.confidence, note
            if of in alike:
                own = {"query_id": self.query.query_id, **fields_of_count(outcome)}
                return alike[of].model_copy(update=own)
        fell_short = _FELL_SHORT if _fell_short(asked, outcome.path, charges) else None
        of_persons = _PERSONS if self._counts_persons(asked) else None
        useful, why = self._use(asked, outcome, self._budget(asked))
        note = "; ".join(filter(None, (note, fell_short, of_persons, why))) or None
        facts = {**self._facts(asked, outcome.path, charges, note, growth), **useful}
        facts["least_cell"] = self.dataset.definition.least_cell
        universe = self.dataset.engine.universe_for(asked)
        released = Released(universe, self.query, facts, recorded)
        made = released.answer(answer_kind(self.query, asked), outcome)
        if of is not None:
            alike[of] = made
        return made

    def _is_plain(self, outcome: Answered) -> bool:
        """Whether it is a count in a data set where all rows count and that does not say what it aims at."""
        aim = self.dataset.accounts.unasked.aim
        return self.query.kind == "predicate" and outcome.among is None and aim is None

    def quoted(self, asked: AnyQuery, quote: Quote, note: str | None) -> Answer:
        """Makes a quote, or the refusal that an answer would be.

        Args:
            asked: The query as it was compiled.
            quote: The quote of the mechanism.
            note: Anything else that the reader should know.
        """
        if isinstance(quote.outcome, Refused):
            return self.refused(quote.outcome, asked)
        path, notes = Path.MEASURED, [note, quote.note]
        if quote.outcome is not None:
            path = quote.outcome.path
            useful, why = self._use(asked, quote.outcome, self._budget(asked))
            notes += [why, useful.get("suggestion")]
        note = "; ".join(filter(None, notes)) or None
        return QuotedAnswer(
            **self._facts(asked, path, quote.charges, note, quote.growth),
            error_bar=quote.error_bar,
            expected=quote.expected or None,
            most=None if quote.most is None else quote.most / UNITS,
        )

    def so_far(
        self,
        asked: AnyQuery,
        outcome: Outcome,
        facts: Mapping[str, Any],
        recorded: Recorded | None,
    ) -> Answer:
        """Makes the answer or the quote of a query about open periods, which nothing was looked at for.

        Args:
            asked: The query as it was compiled, about the sealed phases of its window if there are any.
            outcome: The outcome that the mechanism released.
            facts: The fields about its window.
            recorded: What older rows do not say of it. None without sealed phases.
        """
        if isinstance(outcome, Refused):
            return self.refused(outcome)
        persons = self.dataset.definition.privacy.unit is not None
        notes = [_until(one) for one in facts["running"]] + [_OF_ALL_ROWS] * persons
        free = {
            **self._head(asked),
            **facts,
            "difficulty": Difficulty.EASY.value,
            "path": Path.CERTIFIED.value,
            "privacy_loss": _NO_LOSS,
            "note": "; ".join(notes) or None,
        }
        if self.query.quote:
            return QuotedAnswer(**free, error_bar=widest_bar(outcome))
        useful, _ = self._use(asked, outcome, facts["budget"])
        free |= {**useful, "least_cell": self.dataset.definition.least_cell}
        universe = self.dataset.engine.universe_for(asked)
        released = Released(universe, self.query, free, recorded)
        return released.answer(answer_kind(self.query, asked), outcome)

    def _budget(self, asked: AnyQuery) -> BudgetShares:
        return self.dataset.facts_of(asked.window, self.analyst)["budget"]

    def _use(
        self, asked: AnyQuery, outcome: Outcome, budget: BudgetShares
    ) -> tuple[dict[str, Any], str | None]:
        """Returns the fields that say how useful an outcome is, and which guard it was kept from."""
        use, aim = use_of_outcome(outcome), self.dataset.accounts.unasked.aim
        if use is None or aim is None:
            return {}, None
        fields = use_fields(
            use,
            aim,
            self.query,
            self.dataset.universe,
            Precision.of(asked, outcome, self.dataset.definition.accuracy.failure_probability),
            more_phases=len(asked.window) < self.dataset.phase,
            left=(budget if budget.yours is None else budget.yours).left,
        )
        if not use.guarded:
            return fields, None
        paid = self.dataset.accounts.in_hand.unasked
        return fields, self.dataset.accounts.unasked.why(
            self.analyst, self.dataset.draft.dated_ms, paid
        )

    def series(
        self,
        window: range,
        parts: Sequence[tuple[range, Answer]],
        charges: tuple[Charge, ...],
        note: str | None,
        growth: tuple[Charge, ...] = (),
    ) -> Answer:
        """Makes the answer or the quote of a series of its parts.

        Args:
            window: The phases of all parts.
            parts: The phases of each part, and what was answered or quoted about them.
            charges: The charges for all parts. Without a frame no two of them are of the same block.
            note: Anything else that the reader should know.
            growth: What the data set was charged for what it measures more because of them.
        """
        dates = self.dataset.phases.dates
        found = [
            DatedPart((phases.start + 1, phases.stop), dates(phases), answer)
            for phases, answer in parts
        ]
        facts = {
            **self.dataset.facts_of(window, self.analyst),
            "privacy_loss": loss_of(summed(charges)),
            "owner_pays": loss_of(summed(growth)) if growth else None,
            "note": note,
        }
        return self._series(found, facts)

    def series_so_far(self, parts: Sequence[DatedPart], facts: Mapping[str, Any]) -> Answer:
        """Makes the answer or the quote of a series which nothing was looked at for.

        Args:
            parts: Its parts.
            facts: The fields about its window.
        """
        notes = "; ".join(_until(one) for one in facts["running"]) or None
        return self._series(parts, {**facts, "privacy_loss": _NO_LOSS, "note": notes})

    def _series(self, parts: Sequence[DatedPart], facts: Mapping[str, Any]) -> Answer:
        assert self.query.series is not None, "only a series has parts"
        answers = [part.answer for part in parts]
        refusals = [answer for answer in answers if isinstance(answer, RefusedAnswer)]
        if len(refusals) == len(answers):
            budget = facts["budget"]
            return RefusedAnswer(**self._head(None), budget=budget, reason=refusals[0].reason)
        looked = any(getattr(answer, "difficulty", None) == "hard" for answer in answers)
        facts = {
            **self._head(None),
            **facts,
            "difficulty": (Difficulty.HARD if looked else Difficulty.EASY).value,
            "path": SERIES,
        }
        quotes = [answer for answer in answers if isinstance(answer, QuotedAnswer)]
        if quotes:
            bars = [quote.error_bar for quote in quotes if quote.error_bar is not None]
            expected = any(quote.expected for quote in quotes) or None
            widest = max(bars) if len(bars) == len(quotes) else None
            each = [quote.most for quote in quotes if quote.most is not None]
            most = max(each, default=None)
            if most is not None and self.query.frame is not None:
                most = min(1.0, sum(each))  # several parts may be paid by one line
            return QuotedAnswer(**facts, error_bar=widest, expected=expected, most=most)
        confidences = [
            answer.confidence
            for answer in answers
            if isinstance(answer, NoisyAnswer) and answer.confidence is not None
        ]
        return SeriesAnswer(
            **facts,
            confidence=min(confidences, default=None),
            series=self.query.series,
            parts=tuple(part.written for part in parts),
        )

    def _counts_persons(self, asked: AnyQuery) -> bool:
        """Whether it counts rows of one phase, of which each is another person's."""
        unit = self.dataset.definition.privacy.unit
        return (
            unit is not None
            and unit.rows_per_phase == 1
            and isinstance(asked, LinearQuery)
            and asked.kind in ("predicate", "table")
            and len(asked.window) == 1
        )

    def _head(self, asked: AnyQuery | None) -> dict[str, Any]:
        """Returns the fields that name the query."""
        return {
            "dataset": self.dataset.name,
            "query_id": self.query.query_id,
            "analyst": self.analyst,
            "kind": answer_kind(self.query, asked),
        }

    def _facts(
        self,
        asked: AnyQuery,
        path: Path,
        charges: tuple[Charge, ...],
        note: str | None,
        growth: tuple[Charge, ...],
    ) -> dict[str, Any]:
        """Returns the fields that quotes and answers of all kinds have."""
        difference = asked.difference if isinstance(asked, LinearQuery) else None
        facts = self.dataset.facts_of(asked.window, self.analyst)
        if difference is not None:  # it is about a window, and the budget is that of both
            about = self.dataset.facts_of(difference[0], self.analyst)
            facts = {**about, "budget": facts["budget"]}
        return {
            **self._head(asked),
            **facts,
            "difficulty": (
                Difficulty.HARD if _fell_short(asked, path, charges) else path.difficulty
            ).value,
            "path": path.value,
            "privacy_loss": loss_of(charges),
            "owner_pays": loss_of(growth) if growth else None,
            "note": note,
        }


def _until(period: PeriodSoFar) -> str:
    return f"of the period that began on {period.since}, rows count that came until {period.until}"


def _fell_short(asked: AnyQuery, path: Path, charges: tuple[Charge, ...]) -> bool:
    """Whether rows were looked at, and the looks did not suffice for the error that was asked for.

    That happens where the error is a share of the answer, and for a correlation.
    """
    if not isinstance(asked, LinearQuery) or path is not Path.UNVERIFIED or not charges:
        return False
    return asked.target.relative is not None or isinstance(asked.total, Product)


def reason_of(refusal: Refused) -> Reason:
    """Returns the reason of a refusal, as messages say it."""
    return Reason(
        code=refusal.code.value, message=plain(refusal.message), retriable=refusal.retriable
    )


def loss_of(charges: tuple[Charge, ...]) -> PrivacyLoss:
    """Returns the sum of charges as a share of a line."""
    if not charges:
        return _NO_LOSS
    return PrivacyLoss(share=dearest(charges) / UNITS, blocks=len(charges))


def in_words(dataset: Dataset, analyst: str, asked: AnyQuery, refusal: Refused) -> Refused:
    """Returns a refusal of a query with what the data set knows of its reason.

    It says that rows are lost where the definition has not had them erased, and which share is spent.
    """
    if refusal.code is RefusalCode.SHARE_SPENT:
        return _share_spent(dataset, analyst, asked)
    bare = dataset.rows.blocks.bare
    if refusal.code is not RefusalCode.ROWS_ERASED or asked.window.start >= bare:
        return refusal
    phases = "phase 1 are" if bare == 1 else f"phases 1 to {bare:,} are"
    return Refused(
        RefusalCode.ROWS_GONE,
        f"window: the rows of {phases} lost, and what is published does not answer this; ask about later "
        "phases, or what publications already answer",
    )


def _share_spent(dataset: Dataset, analyst: str, asked: AnyQuery) -> Refused:
    payer = dataset.accounts.payer(analyst, asked)
    why = dataset.accounts.paying.why(payer, asked.window)
    whole = dataset.accounts.budget(asked.window).left
    return Refused(
        RefusalCode.SHARE_SPENT,
        f"too little of a phase's budget is left to you for this: {why}; of the whole {percent(whole)} is "
        "left. What publications already answer can still be asked, and later phases have new budget",
        retriable=True,
    )
