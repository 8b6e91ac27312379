"""Standing queries: which there are, beginning one, and ending it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from stream_dp.client.asked_queries import as_message, head_of
from stream_dp.client.kafka.exchange import Rejection
from stream_dp.client.kafka.session import Session
from stream_dp.client.kafka.topic_documents import to_json
from stream_dp.client.published_records import listed
from stream_dp.client.statements.written_query import Condition, Query, packed, query_of
from stream_dp.messages import Rejected, StandingQuery

_PAUSE_S: Final = 0.2


def standing(session: Session, dataset: str | None = None) -> list[StandingQuery]:
    """Returns the standing queries of all analysts, of one data set or of all.

    Args:
        dataset: The name of the data set.
    """
    found = listed(session, "standing", StandingQuery.model_validate_json).values()
    return sorted(
        (one for one in found if dataset in (None, one.dataset)),
        key=lambda one: (one.dataset, one.analyst, one.query_id),
    )


def stand(
    session: Session,
    dataset: str,
    query: Query[Any] | Condition | None = None,
    *,
    query_id: str | None = None,
    last_phases: int | None = None,
    alert: Mapping[str, float] | None = None,
    timeout_s: float = 30.0,
) -> StandingQuery:
    """Asks a query in each phase from now on, and in the newest one. The same one again changes nothing.

    Its answers have the ids ``query_id@phase``. ``ask`` with such an id gets one of them again.

    Args:
        dataset: The name of the data set.
        query: The query, as in ``ask``.
        query_id: The id of the standing query. Default: that of a ``Query``, or a new id.
        last_phases: The number of latest phases to ask about. None asks about all phases.
        alert: ``{"above": x}`` or ``{"below": x}``: an event says when the whole error bar is there.
        timeout_s: The seconds to wait for the worker.

    Raises:
        InvalidQuery: The query does not fit the schema. The error points at the piece.
        Rejection: The worker refuses it, for example because there are too many.
        RequestTimeout: No worker replied.
    """
    item = as_message(session, dataset, query_of(query, (), last_phases, query_id))
    if alert is not None:
        item["alert"] = dict(alert)
    item["standing"] = True
    (found,) = change_standing(session, dataset, [item], timeout_s=timeout_s)
    assert found is not None, "it is listed"
    return found


def end_standing(session: Session, dataset: str, query_id: str, *, timeout_s: float = 30.0) -> None:
    """Ends a standing query of this analyst. If none has this id, nothing changes."""
    item = {"query_id": query_id, "standing": False}
    change_standing(session, dataset, [item], timeout_s=timeout_s)


def change_standing(
    session: Session, dataset: str, items: Sequence[Mapping[str, Any]], *, timeout_s: float = 30.0
) -> list[StandingQuery | None]:
    """Begins and ends several standing queries, and waits until the topic ``standing`` shows it.

    Args:
        dataset: The name of the data set.
        items: The fields of the queries' messages, each with ``standing``.
        timeout_s: The seconds to wait for the worker.

    Returns:
        What is listed of each, in order. None for one that was ended.

    Raises:
        Rejection: The worker refuses one of them. The others are changed.
        RequestTimeout: No worker replied.
    """
    names = [str(item["query_id"]) for item in items]
    wanted = [_as_listed(item) if item["standing"] else None for item in items]
    records = packed(head_of(session, dataset), items)
    with session.send_queries("standing", dataset, records, names, timeout_s=timeout_s) as rejected:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for reply in (future.result() for future in rejected if future.done()):
                if isinstance(reply, Rejected):
                    raise Rejection(reply)
            listed = {
                one.query_id: one
                for one in standing(session, dataset)
                if one.analyst == session.analyst
            }
            found = [listed.get(name) for name in names]
            if [None if one is None else one.query for one in found] == wanted:
                return found
            time.sleep(_PAUSE_S)
    raise session.timeout(f"the standing queries {', '.join(names[:3])}", timeout_s)


def _as_listed(item: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a query as they are listed once it stands."""
    sent: dict[str, Any] = json.loads(to_json(item))
    return {name: value for name, value in sent.items() if name != "standing"}
