"""The four kinds of attribute: what each knows of a value, and which cell the value counts in."""

from __future__ import annotations

from typing import TypeAlias

from stream_dp.core.rows.attributes.boolean import Boolean
from stream_dp.core.rows.attributes.category import Category
from stream_dp.core.rows.attributes.date import Date
from stream_dp.core.rows.attributes.number import Number

__all__ = ["Attribute", "Boolean", "Category", "Date", "Number", "is_on_grid"]

Attribute: TypeAlias = Category | Number | Boolean | Date


def is_on_grid(attribute: Attribute) -> bool:
    """Whether edges are still to be proposed for an attribute, so that it has those of a fixed grid."""
    return isinstance(attribute, Number) and attribute.wanted is not None
