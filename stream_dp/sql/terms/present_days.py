"""The present in a statement: ``WHERE day = CURRENT_DATE`` asks about the rows of today so far.

No clock is read here: the window that is sent says ``running``, and the worker knows which day it is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from sqlglot import exp

from stream_dp.sql.reading.faults import Fault
from stream_dp.sql.reading.literals import whole_number
from stream_dp.sql.terms import sql_dates
from stream_dp.sql.terms.time_clauses import conjuncts, period_of

_MIXED: Final = (
    "this window has a beginning twice, or ends before today",
    "leave all other conditions about time out, or write one date that it begins with",
)


class Present(NamedTuple):
    """A window that ends with the present.

    Attributes:
        at: The condition that says so.
        last: The length of time that is asked about, such as "7 days". None if another condition begins it.
    """

    at: Any
    last: str | None

    def window(self, others: dict[str, Any]) -> dict[str, Any]:
        """Returns the field ``window`` of the query's message.

        Args:
            others: The same of the other conditions.

        Raises:
            Fault: They do not go together.
        """
        other = others.get("window", {})
        if not set(other) <= {"since"} or bool(other) == bool(self.last):
            raise Fault(self.at, *_MIXED)
        return {"window": {**other, **({"last": self.last} if self.last else {}), "running": True}}


def take_present(select: Any, attributes: Collection[str]) -> Present | None:
    """Takes the conditions out of a SELECT that compare the time with the present.

    Args:
        select: The statement, as sqlglot reads it. It is changed.
        attributes: The names of the attributes. They never mean a time.

    Returns:
        The window that they say; None if there are none. Other forms of the present stay where they are.
    """
    where = select.args.get("where")
    if where is None:
        return None
    parts = list(conjuncts(where.this))
    bounds = [bound for part in parts for bound in (_bound(part, attributes),) if bound]
    if not bounds:
        return None
    taken = [bound.at for bound in bounds]
    others = [part for part in parts if all(part is not one for one in taken)]
    lasts = {bound.last for bound in bounds if bound.last}
    if len(lasts) > 1:
        raise Fault(bounds[0].at, *_MIXED)
    select.set("where", exp.Where(this=exp.and_(*others, copy=False)) if others else None)
    return Present(bounds[0].at, next(iter(lasts), None))


def _bound(condition: Any, attributes: Collection[str]) -> Present | None:
    """What a condition says; None for any other condition."""
    name = (
        period_of(condition.this, attributes) if isinstance(condition.this, exp.Expression) else ""
    )
    if name not in ("day", "week", "month"):
        return None
    if isinstance(condition, exp.Between):
        low, high = condition.args["low"], condition.args["high"]
        back = _back(low, name) if _back(high, name) == 0 else None
    else:
        back = _back(condition.args.get("expression"), name)
    if back is None:
        return None
    match condition:
        case exp.GT() if back > 0:
            return Present(condition, _length(back, name))
        case exp.GTE() | exp.Between():
            return Present(condition, _length(back + 1, name))
        case exp.EQ() if back == 0:
            return Present(condition, _length(1, name))
        case exp.LTE() if back == 0:
            return Present(condition, None)
    return None


def _length(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _back(node: Any, name: str) -> int | None:
    """How many periods before the present one a piece stands for; None if it stands for something else."""
    node = node.unnest() if isinstance(node, exp.Expression) else node
    if isinstance(node, exp.CurrentDate):
        return 0 if name == "day" else None
    truncated = sql_dates.truncation_of(node)
    if truncated is not None and isinstance(truncated[1], exp.CurrentDate):
        return 0 if truncated[0] == name else None
    if not isinstance(node, exp.Sub):
        return None
    back, taken = _back(node.this, name), node.expression.unnest()
    if isinstance(taken, exp.Interval):
        unit = taken.text("unit").lower().removesuffix("s")
        number = taken.this.name if isinstance(taken.this, exp.Literal) else ""
        days = 7 if (name, unit) == ("day", "week") else 1 if unit == name else 0
        count = int(number) * days if number.isdecimal() and days else None
    else:
        count = whole_number(taken) if name == "day" else None
    return None if back is None or count is None or count < 0 else back + count
