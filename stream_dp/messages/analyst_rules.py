"""Who may ask about a data set, how much of each line, and how fast."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    StrictBool,
    StringConstraints,
    model_serializer,
    model_validator,
)

from stream_dp.messages.message_base import (
    ID_PATTERN,
    DatasetName,
    Finite,
    Request,
    Unchanging,
)

_Share = Annotated[Finite, Field(ge=0, le=1)]


class AnalystSpec(Request):
    """What is allowed to one analyst, or to each whose name matches a pattern.

    Attributes:
        share: The largest share of any line (a block's privacy budget) that one analyst may charge. For a
            name it is kept. Default: what is kept for nobody.
        together: The share kept for all who match a pattern, to charge together. Default: what is kept for
            nobody.
        owner: Whether the owner's share pays for their queries.
        queries_per_minute: The most queries of one analyst. Default: no limit.
        spending_per_minute: The largest share of any line that one analyst may charge in a minute. Default:
            no limit.
    """

    share: _Share | None = None
    together: _Share | None = None
    owner: StrictBool = False
    queries_per_minute: Annotated[int, Field(ge=1, le=2**31)] | None = None
    spending_per_minute: Annotated[Finite, Field(gt=0, le=1)] | None = None

    @model_serializer(mode="plain")
    def _what_was_named(self) -> dict[str, Any]:
        """Leaves out what says nothing."""
        return {
            name: value
            for name in type(self).model_fields
            if (value := getattr(self, name)) is not None and value is not False
        }

    @model_validator(mode="after")
    def _one_account(self) -> AnalystSpec:
        if self.owner and (self.share is not None or self.together is not None):
            raise ValueError(
                "the owner pays for the queries of the owner: remove share and together, or owner"
            )
        if self.share is not None and self.together is not None and self.share > self.together:
            raise ValueError(
                "share is above together, so nobody could spend it: use at most together"
            )
        return self


Analysts = Annotated[
    dict[Annotated[str, StringConstraints(pattern=ID_PATTERN)], AnalystSpec],
    Field(min_length=1, max_length=1_000),
    AfterValidator(Unchanging),
]
"""What is allowed to whom: a name, or a pattern that ends with ``*``. Nobody else may ask."""


class OwnerSpec(Request):
    """The part of each line that is kept for the owner of the data set.

    It pays for what the data set measures on its own account, and for the queries of the owner.

    Attributes:
        share: The share of each line kept for the owner.
    """

    share: _Share


class ChangeAnalysts(Request):
    """Replaces what is allowed to whom from the next query on. What was spent stays spent.

    Attributes:
        change: What is changed.
        analysts: The same as in a definition.
        owner: The same as in a definition.
    """

    version: Literal[1]
    dataset: DatasetName
    change: Literal["analysts"]
    analysts: Analysts
    owner: OwnerSpec | None = None

    @model_validator(mode="after")
    def _within_the_line(self) -> ChangeAnalysts:
        check_shares(self.analysts, self.owner)
        return self

    @classmethod
    def said_in(cls, dataset: str, fields: Mapping[str, Any]) -> ChangeAnalysts:
        """Validates the rules that stand in a definition, in an entry of the ledger, or in a file.

        Raises:
            InvalidMessage: They are not valid. The error names the field and the fix.
        """
        said = {name: fields[name] for name in ("analysts", "owner") if name in fields}
        return cls.read({"version": 1, "dataset": dataset, "change": "analysts", **said})


def is_pattern(name: str) -> bool:
    """Returns whether a name in ``analysts`` stands for every name that begins as it does."""
    return name.endswith("*")


def entry_of(analysts: Mapping[str, AnalystSpec], analyst: str) -> str | None:
    """Returns the name in ``analysts`` that applies to an analyst; None if nothing is allowed to them.

    It is the analyst's own name, or else the longest pattern that matches.
    """
    if analyst in analysts and not is_pattern(analyst):
        return analyst
    matching = (name for name in analysts if is_pattern(name) and analyst.startswith(name[:-1]))
    return max(matching, key=len, default=None)


def kept_for(name: str, spec: AnalystSpec) -> float | None:
    """Returns the share of each line that is kept for an entry of ``analysts``. None if none is."""
    return spec.together if is_pattern(name) else spec.share


def kept_shares(analysts: Mapping[str, AnalystSpec], owner: OwnerSpec | None) -> Fraction:
    """Returns the share of each line that is kept for somebody, as it was written."""
    kept = [kept_for(name, spec) for name, spec in analysts.items()]
    kept.append(None if owner is None else owner.share)
    return sum((Fraction(str(share)) for share in kept if share is not None), Fraction(0))


def bounds_spending(analysts: Mapping[str, AnalystSpec], owner: OwnerSpec | None) -> bool:
    """Returns whether some of the rules are about what queries charge."""
    bounds = ("share", "together", "spending_per_minute", "owner")
    return owner is not None or any(
        getattr(spec, bound) not in (None, False) for spec in analysts.values() for bound in bounds
    )


def check_shares(analysts: Mapping[str, AnalystSpec], owner: OwnerSpec | None) -> None:
    """Checks what no entry can check alone.

    Raises:
        ValueError: More than a line is kept, a single analyst has ``together``, or a * is not at the end.
    """
    for name, spec in analysts.items():
        if "*" in name[:-1]:
            raise ValueError(
                "analysts: a name has a * before its end, which stands for nothing: put one * at the end, "
                "for all names that begin alike"
            )
        if spec.together is not None and not is_pattern(name):
            raise ValueError(
                "analysts: together applies to patterns: write share, or a name that ends with *"
            )
    kept = kept_shares(analysts, owner)
    if kept > 1:
        raise ValueError(
            f"analysts: {float(kept):.4g} of each line would be kept for somebody, and a line is 1: use "
            "smaller shares"
        )
