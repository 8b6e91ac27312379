"""The documents that the pages of operators and analysts show, made from public facts."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final, TypeAlias

from stream_dp.attribute_dates import labels_of
from stream_dp.display.phase_words import moment
from stream_dp.messages import AttributeSpec, Definition
from stream_dp.pipeline.watch.health import Health
from stream_dp.profiles.builder import build, epsilon_spent, rows_of_a_phase, rows_that_open
from stream_dp.profiles.line_units import epsilon_of_person
from stream_dp.profiles.opening_price import announced, opening_of
from stream_dp.web.page_data.published_state import PublishedDataset, PublishedState

_MOST_PHASES: Final = 60
_SHOWN_ANSWERS: Final = 25
_SHOWN_EVENTS: Final = 12
_KEPT: Final = 32
_MOST_LABELS: Final = 500

Section: TypeAlias = dict[str, bytes]
"""The documents as JSON, by name."""

_opens_at: Final = lru_cache(maxsize=256)(rows_of_a_phase)
_epsilon: Final = lru_cache(maxsize=256)(epsilon_spent)


class Views:
    """The documents by name, which are rebuilt only after new records.

    The documents of the analyst's view are ``public``: the catalog, the ledger, answers, standing queries,
    running totals and events.
    """

    def __init__(self, published: PublishedState) -> None:
        self._published = published
        self._made: dict[tuple[str, frozenset[str] | None], tuple[int, Section]] = {}

    def public(self, dataset: str, seen: frozenset[str] | None = None) -> Section:
        """Returns the analyst's view, with details of one data set, or of the first one if it is unknown.

        Args:
            dataset: The name of the data set.
            seen: The data sets that may be seen. None for all.
        """
        with self._published.lock:
            version = self._published.version
            name = _chosen(self._published, dataset, seen)
            found = self._made.get((name, seen))
            if found is None or found[0] != version:
                while len(self._made) >= _KEPT:
                    del self._made[next(iter(self._made))]
                found = self._made[name, seen] = version, _public(self._published, name, seen)
        return found[1]

    def operator(self, dataset: str) -> Section:
        """Returns the analyst's view together with the rejections."""
        with self._published.lock:
            rejected = list(self._published.rejected)[:_SHOWN_EVENTS]
        return {**self.public(dataset), "rejected": _bytes(rejected)}


def away(health: Health) -> dict[str, int]:
    """Returns the servers without which nothing is answered and that do not answer themselves.

    With each comes its last answer, in milliseconds since 1970. While Redis is away, service goes on.
    """
    return _since("Kafka", health.broker_away_since)


def _since(name: str, at: float | None) -> dict[str, int]:
    return {} if at is None else {name: round(1000 * at)}


def health_document(health: Health) -> bytes:
    """Returns a worker's health in the form that the page reads."""
    return _bytes(
        {
            "ready": health.ready,
            "partitions": health.partitions,
            "behind": health.behind,
            "away": away(health) | _since("Redis", health.store_away_since),
            "waiting": dict(health.waiting),
            "quarantined": dict(health.quarantined),
            "stopped": dict(health.stopped),
            "deleted": dict(health.deleted),
        }
    )


def _chosen(published: PublishedState, name: str, seen: frozenset[str] | None) -> str:
    """Returns the data set of that name, or else the first one. Empty if there is none."""
    known = published.known(seen)
    return name if name in known else next((n for n, d in known.items() if not d.retired), "")


def _answers(published: PublishedState, name: str) -> list[dict[str, Any]]:
    """The latest answers of a data set, with the question of each as far as it is known.

    What was refused may be a row that was sent to the wrong topic, so nothing of it is shown.
    """
    dataset = published.datasets[name]
    found = []
    for one in list(dataset.answers)[:_SHOWN_ANSWERS]:
        sound = one["status"] == "answered"
        asked = published.asked.get((name, one["analyst"], one["query_id"])) if sound else None
        words = dataset.tiles.words(one) or asked
        found.append({**one, "question": words} if words else one)
    return found


def _public(published: PublishedState, name: str, seen: frozenset[str] | None) -> Section:
    known = published.known(seen)
    chosen = known.get(name)
    return {
        "datasets": _bytes([_summary(one, dataset) for one, dataset in known.items()]),
        "schema": _schema(name, chosen.definition) if chosen is not None else b"null",
        "dataset": _bytes(_detail(name, chosen) if chosen is not None else None),
        "answers": _bytes(_answers(published, name) if chosen is not None else []),
        "tiles": _bytes(chosen.tiles.shown() if chosen is not None else []),
        "running": _bytes(chosen.running.shown() if chosen and not chosen.retired else None),
        "events": _bytes(list(chosen.events)[:_SHOWN_EVENTS] if chosen is not None else []),
    }


def _summary(name: str, dataset: PublishedDataset) -> dict[str, Any]:
    definition = dataset.definition
    return {
        "name": name,
        "phases": len(dataset.odometer.blocks),
        "rows": dataset.odometer.rows,
        "waiting": dataset.waiting,
        "opens_at": None if definition is None else _opens_at(definition),
        "every": None if definition is None else definition.phase.every,
        "spent": dataset.odometer.most_spent,
        "easy": sum(tally.easy for tally in dataset.tallies.values()),
        "hard": sum(tally.hard for tally in dataset.tallies.values()),
        "state": dataset.state,
    }


@lru_cache(maxsize=_KEPT)
def _schema(name: str, definition: Definition | None) -> bytes:
    if definition is None:
        return _bytes({"name": name, "attributes": []})
    newest = definition.schema_versions[-1]
    return _bytes(
        {
            "name": name,
            "version": newest.schema_version,
            "first_phase": newest.first_phase,
            "attributes": [
                {**attribute.model_dump(exclude_none=True), "labels": _labels(attribute)}
                for attribute in definition.attributes
            ],
            "privacy": definition.privacy.model_dump(exclude_none=True),
            "promised_to": definition.privacy.promised_to,
            "counting": None if (unit := definition.privacy.unit) is None else unit.counting,
            "accuracy": definition.accuracy.model_dump(exclude_none=True),
            "precision": definition.precision,
            "profile": definition.mechanism.profile,
            "kept_phases": definition.kept_phases,
            "kept_answers_days": definition.kept_answers_days,
            "opening": _opening(definition),
            "kinds": [kind for kind, spec in definition.kinds if spec is not None],
        }
    )


def _labels(attribute: AttributeSpec) -> tuple[str, ...]:
    """Returns the periods of a date, which SQL compares it with; the first of them where there are many."""
    if attribute.type != "date":
        return ()
    return labels_of(attribute.by, attribute.first, attribute.until)[:_MOST_LABELS]


def _opening(definition: Definition) -> dict[str, Any] | None:
    """Returns what opening a phase spends and makes free. None if the profile does not say.

    It also says what synthetic rows, if there are any, would say too little about.
    """
    universe, mechanism = build(definition)
    n_rows = rows_that_open(mechanism, definition)
    found, takes = opening_of(mechanism, universe.names, n_rows), announced(mechanism, n_rows)
    if found is None or takes is None:
        return None
    poor = found.blurred if definition.synthetic_rows else None
    return {
        "least": takes.least,
        "most": takes.most,
        "ever": takes.ever,
        "certifies": found.certifies,
        "poor_rows": poor,
    }


def _in_every_phase(dataset: PublishedDataset) -> float | None:
    """Returns the loss, as epsilon, of a person with the most rows in every phase. None where rows lose."""
    definition = dataset.definition
    if definition is None or definition.privacy.unit is None:
        return None
    return epsilon_of_person(definition, [block.spent for block in dataset.odometer.blocks])


def _detail(name: str, dataset: PublishedDataset) -> dict[str, Any]:
    phases = [
        {
            "phase": number,
            "rows": block.rows,
            "opened": opened,
            "spent": block.spent,
            "looks": block.looks,
            "since": block.since and moment(block.since),
            "until": block.until and moment(block.until),
            **{name: getattr(dataset.tallies.get(number), name, 0) for name in ("easy", "hard")},
        }
        for number, block, opened in dataset.phases()
    ]
    return {
        **_summary(name, dataset),
        "epsilon": None
        if dataset.definition is None
        else _epsilon(dataset.definition, dataset.odometer.most_spent),
        "in_every_phase": _in_every_phase(dataset),
        "looks": dataset.odometer.looks,
        "refused": sum(tally.refused for tally in dataset.tallies.values()),
        "phase_list": phases[-_MOST_PHASES:],
        "spending": dataset.spending,
        "shares": dataset.shares(last=_MOST_PHASES),
    }


def _bytes(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
