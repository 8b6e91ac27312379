"""Works out, from the published ledger alone, what each analyst and the owner may still charge."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any, Final, NamedTuple

from stream_dp.messages import AnalystSpec, OwnerSpec, entry_of, is_pattern, kept_for

UNITS: Final = 2**50
"""The number of units in each sum of a full line."""

OWNER: Final = "the owner"
"""The account of the owner, and the part of a line that is kept for the owner. No name has a blank."""

REST: Final = "the rest"
"""The part of a line that is kept for nobody."""


class Parts(NamedTuple):
    """Charges to the two sums of a line, in units of 2^-50 of what each may hold."""

    rho: int = 0
    delta: int = 0

    def plus(self, rho: int, delta: int) -> Parts:
        """Adds a charge."""
        return Parts(self.rho + rho, self.delta + delta)

    def left_of(self, limit: int) -> int:
        """Returns how many units of a limit are left in the sum of which less is left, at least 0."""
        return max(0, limit - max(self.rho, self.delta))


Line = Mapping[str, Parts]
"""What each account has paid of one line, by the name of the analyst or ``OWNER``."""


class Position(NamedTuple):
    """What somebody has spent of one line and may still charge, in units of 2^-50 of the line.

    Attributes:
        spent: The sum of which more is spent.
        own: What is left of the analyst's own share. None where that has no bound.
        pool: What is left of the part of the line that this is taken from, of which others may take too.
        whole: What is left of the line.
    """

    spent: int
    own: int | None
    pool: int
    whole: int

    @property
    def left(self) -> int:
        """The most that may still be charged. What pacing keeps for later phases is not taken off."""
        return min(self.pool, self.whole, self.pool if self.own is None else self.own)


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who may charge a line, or a part of the line: one line in a table of shares.

    Attributes:
        who: ``OWNER``, an entry of ``analysts``, an analyst who has paid, or ``REST``.
        entry: The entry that applies. Of an analyst who may not ask any more, and of ``OWNER`` and ``REST``,
            it is empty.
        share: The share of each line that one analyst may charge, as written. None without a bound.
        kept: The share of each line that is kept for the holder. Of ``REST``, what is kept for nobody.
        pays_as_owner: Whether the owner pays for these queries.
        first: The number of the first phase of ``positions``.
        positions: What was spent of each phase, and what is left of it.
    """

    who: str
    entry: str
    share: float | None
    kept: float | None
    pays_as_owner: bool
    first: int
    positions: Sequence[Position]

    @property
    def worst(self) -> int | None:
        """The index of the phase of which least is left, the newest among equals. None without a phase."""
        phases = reversed(range(len(self.positions)))
        return min(phases, key=lambda index: self.positions[index].left, default=None)

    def document(self) -> dict[str, Any]:
        """Returns the line as the HTTP API and the command line show it, with shares of a line."""

        def at(index: int) -> dict[str, float]:
            position = self.positions[index]
            spent, left = position.spent / UNITS, position.left / UNITS
            return {"phase": self.first + index, "spent": spent, "left": left}

        worst = self.worst
        facts = {
            "who": self.who,
            "entry": self.entry or None,
            "share": self.share,
            "kept": self.kept,
            "newest": None if worst is None else at(len(self.positions) - 1),
            "worst": None if worst is None else at(worst),
        }
        found = {name: value for name, value in facts.items() if value is not None}
        return {**found, "owner": True} if self.pays_as_owner else found


class AccountRule(NamedTuple):
    """What applies to an account.

    Attributes:
        entry: The entry that applies. Empty for the owner, and for who may not ask.
        pool: What it takes from: what is kept for an entry, what is kept for the owner, or the rest. What
            somebody has charged who may not ask any more is taken from the rest.
        share: The share in units. None without a bound.
    """

    entry: str
    pool: str
    share: int | None


class _Phase(NamedTuple):
    """What each account has paid of a line, what that takes of its parts, and what anybody has charged."""

    paid: Line
    taken: Mapping[str, Parts]
    whole: Parts


@dataclass(frozen=True)
class ShareRules:
    """What is allowed to whom: ``analysts`` and ``owner`` of a definition, or of the last change."""

    analysts: Mapping[str, AnalystSpec]
    owner: OwnerSpec | None = None
    _found: dict[str, AccountRule] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def rule_of(self, account: str) -> AccountRule:
        """Returns the entry of an account, what it takes from, and its share."""
        if account not in self._found:
            entry = "" if account == OWNER else entry_of(self.analysts, account) or ""
            holder, share = account, None if account == OWNER else 0.0  # nobody may ask without one
            if entry:
                spec = self.analysts[entry]
                holder, share = OWNER if spec.owner else entry, spec.share
            pool = holder if holder in self._limits else REST
            units = None if share is None else math.floor(Fraction(str(share)) * UNITS)
            self._found[account] = AccountRule(entry, pool, units)
        return self._found[account]

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """The entries of ``analysts``: names first, then patterns, the longest first."""
        patterns = sorted(filter(is_pattern, self.analysts), key=lambda name: (-len(name), name))
        return *sorted(self.analysts.keys() - set(patterns)), *patterns

    def kept_for(self, entry: str) -> float | None:
        """Returns the share of each line that is kept for an entry, as written. None if none is."""
        return kept_for(entry, self.analysts[entry])

    @cached_property
    def _kept(self) -> dict[str, Fraction]:
        """The parts of each line that are kept for somebody, as written."""
        kept = {entry: self.kept_for(entry) for entry in self.analysts}
        if self.owner is not None:
            kept[OWNER] = self.owner.share
        return {who: Fraction(str(share)) for who, share in kept.items() if share is not None}

    @property
    def rest(self) -> float:
        """The share of each line that is kept for nobody."""
        return float(1 - sum(self._kept.values()))

    @cached_property
    def _limits(self) -> dict[str, int]:
        """The size of each part of a line that is kept, and of the rest, in units."""
        limits = {who: math.floor(share * UNITS) for who, share in self._kept.items()}
        return {**limits, REST: UNITS - sum(limits.values())}

    def position(self, account: str, line: Line, whole: Parts) -> Position:
        """Returns what an account has spent of a line and may still charge.

        Args:
            account: The name of the analyst, or ``OWNER``.
            line: What each account has paid of the line.
            whole: What anybody has charged to the line, with or without an account.
        """
        return self._position(self.rule_of(account), [account], self._phase(line, whole))

    def _phase(self, line: Line, whole: Parts) -> _Phase:
        by_pool: dict[str, list[Parts]] = {}
        for account, paid in line.items():
            by_pool.setdefault(self.rule_of(account).pool, []).append(paid)
        return _Phase(line, {pool: _sum(paid) for pool, paid in by_pool.items()}, whole)

    def _position(self, rule: AccountRule, accounts: Iterable[str], phase: _Phase) -> Position:
        """Returns what accounts have spent together, and what is left to those of their rule."""
        paid = _sum(phase.paid.get(account, Parts()) for account in accounts)
        own = None if rule.share is None else paid.left_of(rule.share)
        pool = phase.taken.get(rule.pool, Parts()).left_of(self._limits[rule.pool])
        return Position(max(paid), own, pool, phase.whole.left_of(UNITS))

    def holders(
        self, lines: Sequence[Line], wholes: Sequence[Parts], *, first: int = 1
    ) -> Iterator[Holder]:
        """Yields the owner, each entry with the analysts who have paid under it, others, and the rest.

        Args:
            lines: What each account has paid, for each phase.
            wholes: What anybody has charged, for each phase.
            first: The number of the first of these phases.
        """
        phases = [self._phase(line, whole) for line, whole in zip(lines, wholes, strict=True)]
        accounts = sorted({name for line in lines for name in line})
        paid_under: dict[str, list[str]] = {}
        for name in accounts:
            paid_under.setdefault(self.rule_of(name).entry, []).append(name)

        def holder(who: str, rule: AccountRule, kept: float | None, *names: str) -> Holder:
            spec = self.analysts.get(rule.entry)
            as_owner = who == OWNER or (spec is not None and spec.owner)
            share = None if spec is None else spec.share
            positions = [self._position(rule, names, phase) for phase in phases]
            return Holder(who, rule.entry, share, kept, as_owner, first, positions)

        kept_for_owner = None if self.owner is None else self.owner.share
        yield holder(OWNER, self.rule_of(OWNER), kept_for_owner, OWNER)
        for entry in self.entries:
            rule, kept = self.rule_of(entry), self.kept_for(entry)
            if not is_pattern(entry):
                yield holder(entry, rule, kept, entry)
                continue
            payers = paid_under.get(entry, [])
            yield holder(entry, rule._replace(share=None), kept, *payers)
            yield from (holder(name, self.rule_of(name), None, name) for name in payers)
        for name in paid_under.get("", []):
            if name != OWNER:
                yield holder(name, self.rule_of(name), None, name)
        of_rest = (name for name in accounts if self.rule_of(name).pool == REST)
        yield holder(REST, AccountRule("", REST, None), self.rest, *of_rest)


def _sum(parts: Iterable[Parts]) -> Parts:
    return reduce(lambda whole, part: whole.plus(*part), parts, Parts())
