"""The precision of one query: its field ``error``."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Discriminator, Field, Tag

from stream_dp.messages.message_base import Finite, Request


class RelativeError(Request):
    """The largest error as a share of the answer itself.

    Attributes:
        relative: A share of the exact count of a ``predicate``: ``WITHIN 5%``.
    """

    relative: Annotated[Finite, Field(gt=0, lt=1)]


class FixedError(Request):
    """The largest error in the unit of the answer.

    That is rows for counts, the attribute's own unit for sums, and 1 for shares.

    Attributes:
        value: Rows, the unit of a sum, or the share or correlation itself: ``WITHIN 50``.
    """

    value: Annotated[Finite, Field(gt=0)]


class MeanError(Request):
    """The largest error of a mean, in the attribute's own unit.

    Attributes:
        mean: The attribute's own unit, for the mean of a sum without ``count_rows``.
    """

    mean: Annotated[Finite, Field(gt=0)]


_FORMS = ("relative", "value", "mean")


def _form(given: object) -> str | None:
    """Returns which of the forms an error is written in, or None for no form."""
    named = given.model_fields_set if isinstance(given, Request) else given
    if isinstance(named, dict | set):
        return next((form for form in _FORMS if {*named} == {form}), None)
    return "share" if isinstance(given, int | float) and not isinstance(given, bool) else None


ErrorSpec: TypeAlias = Annotated[
    Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False), Tag("share")]
    | Annotated[RelativeError, Tag("relative")]
    | Annotated[FixedError, Tag("value")]
    | Annotated[MeanError, Tag("mean")],
    Discriminator(
        _form,
        custom_error_type="error_form",
        custom_error_message="no form of an error",
    ),
]
"""A share of the rows asked, or an object that says what else it is a share or a number of."""

ShareOfLine: TypeAlias = Annotated[Finite, Field(gt=0, le=1)]
"""A share of a line (the privacy budget of a block)."""
