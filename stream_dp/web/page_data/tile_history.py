"""The standing queries of one data set with their answers, phase by phase, from the topics alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeAlias

from stream_dp.client.kafka import topic_documents
from stream_dp.display.answer_cells import AnswerCells, main_figures, newest
from stream_dp.display.answer_words import why
from stream_dp.display.figure_text import text
from stream_dp.display.figures import Figure
from stream_dp.messages import (
    NoisyAnswer,
    RefusedAnswer,
    StandingQuery,
    phase_in_id,
)
from stream_dp.web.page_data.query_words import sql_of, standing_of, words_of_standing

_MOST_SHOWN: Final = 48
_MOST_REMEMBERED: Final = 200
_MOST_PHASES: Final = 60
_MOST_CELLS: Final = 40
_CELLS_OF_A_PHASE: Final = 12


_Cell: TypeAlias = tuple[str, float, float | None, str]
"""The labels of a cell, its number, the half width around it, and both in words."""


@dataclass(slots=True)
class _History:
    """The answers under one name: a number or some cells for each phase, and more cells of the newest."""

    phases: dict[int, dict[str, Any]] = field(default_factory=dict)
    newest: int = 0
    cells: list[_Cell] = field(default_factory=list)
    in_all: int = 0

    def add(self, phase: int, answer: NoisyAnswer | RefusedAnswer, at: int) -> None:
        drawn = newest(answer)
        cells = AnswerCells(drawn) if isinstance(drawn, NoisyAnswer) else None
        unit = cells.unit(cells.main) if cells is not None and cells.main else None
        found = [
            (*one, text(Figure(one.value, one.error_bar or 0.0), unit or "number"))
            for one in islice(main_figures(answer), _MOST_CELLS)
        ]
        named, short = f"phase {phase}", f"{phase}"
        if isinstance(answer, NoisyAnswer) and answer.running and answer.until:
            day, _, hour = answer.until[:16].partition("T")  # at a tick
            named, short = f"until {day} {hour}".strip(), hour or day
        entry: dict[str, Any] = {"phase": phase, "at": at, "unit": unit}
        entry |= {"named": named, "short": short}
        if isinstance(answer, RefusedAnswer):
            entry["refused"] = why(answer.reason)
        else:
            entry |= {"cost": answer.privacy_loss.share, "path": answer.path}
            entry |= {"difficulty": answer.difficulty, "window": answer.window}
        if len(found) == 1 and not found[0][0]:
            entry |= dict(zip(("value", "error_bar", "said"), found[0][1:], strict=True))
        elif found:
            entry["cells"] = found[:_CELLS_OF_A_PHASE]
        self.phases[phase] = entry
        while len(self.phases) > _MOST_PHASES:
            del self.phases[min(self.phases)]
        if phase >= self.newest:
            self.newest, self.cells = phase, [cell for cell in found if cell[0]]
            self.in_all = len(cells.labels) if cells is not None and cells.names else 0


class Tiles:
    """The standing queries that the topic lists, and what was answered under their names."""

    def __init__(self) -> None:
        self._listed: dict[str, StandingQuery] = {}
        self._histories: OrderedDict[tuple[str, str], _History] = OrderedDict()

    def take(self, key: str, value: bytes | None) -> None:
        """Takes a record of the topic ``standing``. An empty record ends a standing query."""
        listed = topic_documents.read(StandingQuery, value) if value else None
        if listed is None:
            self._listed.pop(key, None)
        else:
            self._listed[key] = listed

    def answer(self, answer: NoisyAnswer | RefusedAnswer, at: int) -> None:
        """Takes an answer, which belongs to a standing query if its id ends with a phase."""
        found = phase_in_id(answer.query_id)
        if found is None:
            return
        query_id, phase = found
        name = (answer.analyst, query_id)
        self._histories.setdefault(name, _History()).add(phase, answer, at)
        self._histories.move_to_end(name)
        while len(self._histories) > _MOST_REMEMBERED:
            self._histories.popitem(last=False)

    def words(self, line: Mapping[str, Any]) -> str | None:
        """Returns what an answer was about, if a standing query that is listed asked for it."""
        found = phase_in_id(line["query_id"])
        if found is None:
            return None
        for listed in self._listed.values():
            if (listed.analyst, listed.query_id) == (line["analyst"], found[0]):
                return words_of_standing(listed)
        return None

    def shown(self) -> list[dict[str, Any]]:
        """Returns the tiles as the page shows them, in the order in which they began."""
        some = sorted(self._listed.values(), key=lambda one: (one.since_ms or 0, one.query_id))
        return [self._tile(listed) for listed in some[:_MOST_SHOWN]]

    def _tile(self, listed: StandingQuery) -> dict[str, Any]:
        history = self._histories.get((listed.analyst, listed.query_id), _History())
        phases = [history.phases[phase] for phase in sorted(history.phases)]
        query = standing_of(listed)
        window = None if query is None else query.window
        last = None if window is None else window.last_phases or window.last
        sql = None if query is None or (window is not None and last is None) else sql_of(query)
        return {
            "analyst": listed.analyst,
            "query_id": listed.query_id,
            "words": words_of_standing(listed),
            "sql": sql,
            "last": last,
            "series": None if query is None else query.series,
            "alert": listed.query.get("alert"),
            "since_ms": listed.since_ms,
            "next_loss": None if listed.next_loss is None else listed.next_loss.share,
            "history": phases,
            "cells": history.cells,
            "in_all": history.in_all,
        }
