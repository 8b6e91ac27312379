"""What a statement gives, and what is kept of it between messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from stream_dp.gateway.protocol.server_messages import (
    Columns,
    data_rows,
    formats_of,
    row_description,
)
from stream_dp.gateway.protocol.session_settings import SessionSettings
from stream_dp.gateway.protocol.sql_fault import SqlFault
from stream_dp.gateway.protocol.statement_texts import StatementPiece


@dataclass(frozen=True, slots=True)
class StatementResult:
    """What a statement gives. Several connections may send the same one.

    Attributes:
        columns: Its columns. None for a command that has none.
        rows: Its rows.
        tag: What its end says, such as ``SET``. Empty for ``SELECT`` and the number of rows.
        notices: What the reader should know, each a sentence.
    """

    columns: Columns | None = None
    rows: Sequence[Sequence[Any]] = ()
    tag: str = ""
    notices: Sequence[str] = ()
    _written: dict[frozenset[int], bytes] = field(default_factory=dict, repr=False, compare=False)

    def head(self, formats: Sequence[int]) -> bytes:
        """Returns the description of the columns as a message."""
        return row_description(self.columns or (), formats)

    def all_rows(self, formats: Sequence[int]) -> bytes:
        """Returns all rows as messages, which are written once."""
        forms = frozenset(formats_of(formats, len(self.columns or ())))
        if len(forms) > 1:  # there are too many such ways to keep them
            return data_rows(self.columns or (), self.rows, formats)
        if forms not in self._written:
            self._written[forms] = data_rows(self.columns or (), self.rows, formats)
        return self._written[forms]


class Questions(Protocol):
    """What a connection needs to know of the data sets, for the one who is logged in."""

    def types_of_columns(self, text: str) -> Mapping[str, str]:
        """Returns the type of each column of the tables that a question names, by name in lower case."""

    async def describe(self, text: str, settings: SessionSettings) -> Columns:
        """Returns the columns of a question, in which parameters may stand. It costs nothing."""

    async def answer(self, text: str, settings: SessionSettings) -> StatementResult:
        """Returns what a question gives."""

    async def price(self, text: str, settings: SessionSettings) -> Sequence[str]:
        """Returns what a question would cost, in lines. It costs nothing."""

    async def budget(self) -> str:
        """Returns what is left of the budget of each data set."""


_MOST_NAMED: Final = 500
"""The most prepared statements of a connection, and the most portals."""


@dataclass(slots=True)
class PreparedStatement:
    """A statement that was prepared.

    Attributes:
        piece: The statement. None for an empty text.
        types: The types of its parameters.
        columns: The columns of its result. None if it has none, or if only running it tells.
    """

    piece: StatementPiece | None
    types: tuple[str, ...] = ()
    columns: Columns | None = None


@dataclass(slots=True)
class StatementPortal:
    """A statement with its values, which runs when it is first executed.

    Attributes:
        prepared: The statement.
        text: Its text with the values.
        formats: The formats of its columns.
        result: What it gave, once it has run.
        sent: The number of rows that were sent.
    """

    prepared: PreparedStatement
    text: str
    formats: tuple[int, ...] = ()
    result: StatementResult | None = None
    sent: int = 0


@dataclass(slots=True)
class SessionState:
    """What a connection keeps between messages.

    Attributes:
        settings: Its settings.
        status: ``I`` outside a transaction, ``T`` in one, ``E`` in one that failed.
        prepared: The prepared statements by name.
        portals: The portals by name. A cursor that was declared is one of them.
        cursors: The names of the portals that a statement declared.
        held: Those of them that outlive their transaction.
    """

    settings: SessionSettings
    status: Literal["I", "T", "E"] = "I"
    prepared: dict[str, PreparedStatement] = field(default_factory=dict)
    portals: dict[str, StatementPortal] = field(default_factory=dict)
    cursors: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)

    def end_transaction(self, *, is_kept: bool) -> None:
        """Ends a transaction, and with it its portals but those of cursors that were declared WITH HOLD.

        Args:
            is_kept: Whether its settings are.
        """
        self.status = "I"
        self.settings.end(is_kept=is_kept)
        self.cursors &= self.held
        self.portals = {name: one for name, one in self.portals.items() if name in self.held}


def check_room(known: Mapping[str, object], name: str, what: str) -> None:
    """Checks that a connection may have one more of what it names.

    Raises:
        SqlFault: There are too many.
    """
    if len(known) >= _MOST_NAMED and name not in known:
        raise SqlFault("53400", f"there are more than {_MOST_NAMED:,} {what}", hint="close some")
