"""A draft as a definition: its text in a file, and the table of what it says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from stream_dp.cli.draft.column_drafts import ColumnDraft
from stream_dp.cli.draft.phase_drafts import phases_of_a_year
from stream_dp.cli.text.reply_text import bare_table
from stream_dp.core.rows.attributes.attribute_base import COUNT
from stream_dp.core.rows.universe import MAX_ATTRIBUTES
from stream_dp.errors import InvalidDefinition
from stream_dp.messages import Definition
from stream_dp.profiles.builder import universe_of

_PRIVACY: Final = '"epsilon": 1.0, "delta": 1e-9'


@dataclass(frozen=True)
class DefinitionDraft:
    """A draft.

    Attributes:
        dataset: The name of the data set.
        columns: What is drafted of each column.
        phase: When phases open, as in a definition.
        why: Why they open then.
        key: The column that says whose row it is. None protects rows.
    """

    dataset: str
    columns: Sequence[ColumnDraft]
    phase: dict[str, Any]
    why: str
    key: str | None

    @property
    def attributes(self) -> list[dict[str, Any]]:
        """The attributes, as in a definition."""
        return [one.attribute for one in self.columns if one.attribute is not None]

    @property
    def renamed(self) -> dict[str, str]:
        """The attributes with another name than their column has."""
        return {
            one.attribute["name"]: one.column
            for one in self.columns
            if one.attribute is not None and one.attribute["name"] != one.column
        }

    def text(self) -> str:
        """Writes the definition, with one attribute a line."""
        attributes = ",\n   ".join(
            json.dumps(attribute, ensure_ascii=False) for attribute in self.attributes
        )
        unit = "" if self.key is None else f', "unit": {json.dumps(self._unit, ensure_ascii=False)}'
        return (
            f'{{"version": 1, "dataset": {json.dumps(self.dataset)},\n'
            f' "attributes": [\n   {attributes}],\n'
            f' "privacy": {{{_PRIVACY}{unit}}},\n'
            f' "phase": {json.dumps(self.phase)}}}\n'
        )

    @property
    def _unit(self) -> dict[str, Any]:
        return {"key": self.key, "rows_per_phase": 1, "phases": phases_of_a_year(self.phase)}

    def table(self) -> Table:
        """Builds a table of what the definition says, and why."""
        table = bare_table("column", "in the draft", "why")
        for one in self.columns:
            table.add_row(escape(one.column), escape(one.said), escape(one.why))
        rows = f"at {self.phase['min_rows']:,} rows"
        if (every := self.phase.get("every")) is not None:
            rows = f"after {every}, {rows} or more"
        table.add_row("[b]phase[/b]", f"opens {rows}", escape(self.why))
        whom = (
            "every row, for ever"
            if self.key is None
            else f"each {self.key}, in any {self._unit['phases']} phases"
        )
        table.add_row("[b]privacy[/b]", "epsilon 1, delta 1e-9", f"promised to {escape(whom)}")
        return table


def usable(columns: Sequence[ColumnDraft]) -> list[ColumnDraft]:
    """Leaves out what no definition can say, and renames a column whose name is taken."""
    found: list[ColumnDraft] = []
    n_attributes = 0
    for one in columns:
        if one.attribute is not None and one.column == COUNT:
            one = replace(one, attribute={**one.attribute, "name": f"n_{COUNT}"})
        problem = _problem(one.attribute)
        if problem is None and one.attribute is not None and n_attributes == MAX_ATTRIBUTES:
            problem = f"a data set has at most {MAX_ATTRIBUTES} attributes"
        n_attributes += problem is None and one.attribute is not None
        found.append(one if problem is None else ColumnDraft(one.column, None, problem))
    return found


def _problem(attribute: dict[str, Any] | None) -> str | None:
    """Returns why no definition can have an attribute; None if one can."""
    if attribute is None or isinstance(attribute.get("values"), str):
        return None
    try:
        universe_of(
            Definition.read(
                {
                    "version": 1,
                    "dataset": "draft",
                    "attributes": [attribute],
                    "privacy": {"epsilon": 1.0, "delta": 1e-9},
                    "phase": {"min_rows": 1},
                }
            )
        )
    except InvalidDefinition as error:
        return f"{error.problem}: {error.fix}"
    return None
