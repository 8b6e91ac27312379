"""The public tables that statements can join."""

from __future__ import annotations

import json

from stream_dp.client.kafka.session import Session
from stream_dp.client.published_records import listed
from stream_dp.errors import InvalidInput
from stream_dp.messages import TOPICS, DimensionTable


def dimensions(session: Session) -> dict[str, DimensionTable]:
    """Returns the public tables that statements can join, by name."""
    return listed(session, "dimensions", lambda value: DimensionTable.read(json.loads(value)))


def dimension(session: Session, name: str) -> DimensionTable:
    """Returns one public table.

    Raises:
        InvalidInput: There is no table of that name. The error lists the existing ones.
    """
    found = dimensions(session)
    if name not in found:
        known = f"choose one of: {', '.join(sorted(found))}" if found else "publish one"
        raise InvalidInput("dimension", f"there is no public table {name!r}", known)
    return found[name]


def put_dimension(session: Session, table: DimensionTable, *, timeout_s: float = 30.0) -> None:
    """Publishes a table that statements can join, in place of an earlier one of its name.

    The table is public: everyone who may ask can read it.

    Args:
        table: The table.
        timeout_s: The seconds to wait for the broker.

    Raises:
        InvalidInput: The table is larger than a record may be.
    """
    value, limit = table.to_bytes(), TOPICS["dimensions"].max_value_bytes
    if len(value) > limit:
        raise InvalidInput(
            "dimension", f"{len(value):,} bytes are more than {limit:,}", "leave columns out"
        )
    session.put("dimensions", table.dimension, value, timeout_s=timeout_s)


def delete_dimension(session: Session, name: str, *, timeout_s: float = 30.0) -> None:
    """Deletes a public table.

    Raises:
        InvalidInput: There is no table of that name.
    """
    dimension(session, name)
    session.put("dimensions", name, None, timeout_s=timeout_s)
