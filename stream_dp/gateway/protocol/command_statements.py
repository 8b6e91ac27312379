"""Statements that ask no rows: transactions, settings, cursors, EXPLAIN, and those that are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from stream_dp.gateway.protocol.server_messages import Columns
from stream_dp.gateway.protocol.sql_fault import SqlFault
from stream_dp.gateway.protocol.statement_result import (
    PreparedStatement,
    Questions,
    SessionState,
    StatementPortal,
    StatementResult,
    check_room,
)
from stream_dp.gateway.protocol.statement_texts import StatementPiece, pieces_of

ENDS: Final = frozenset({"rollback", "abort", "commit", "end"})
"""The commands that are answered in a transaction that has failed."""

PLAN_COLUMNS: Final = (("QUERY PLAN", "text"),)

_EXPLAIN: Final = re.compile(
    r"explain\s*(?P<options>\([^)]*\)|(?:(?:analyze|verbose)\b\s*)*)\s*(?P<asked>.*)",
    re.IGNORECASE | re.DOTALL,
)
_SET: Final = re.compile(
    r"set\s+(?:session\s+|(?P<local>local\s+))?(?P<name>[\w.]+|\"[\w.]+\")\s*(?:=|\bto\b)\s*(?P<value>.*)",
    re.IGNORECASE | re.DOTALL,
)
_TIME_ZONE: Final = re.compile(
    r"set\s+(?:session\s+|(?P<local>local\s+))?time\s+zone\s+(?P<value>.*)",
    re.IGNORECASE | re.DOTALL,
)
_DECLARE: Final = re.compile(
    r'declare\s+"?(?P<name>[^"\s]{1,128})"?(?=\s)[^\'"]*?\bfor\s+(?P<asked>.*)',
    re.IGNORECASE | re.DOTALL,
)
_FETCH: Final = re.compile(
    r'(?:fetch|move)\s+(?:(?:forward|next)\s+)?(?P<n>\d{1,9}\b|all\b)?\s*(?:(?:from|in)\s+)?"?(?P<name>[^"\s]+)"?',
    re.IGNORECASE,
)
_WRITES: Final = (
    "insert update delete create drop alter truncate merge grant revoke refresh call do import comment "
    "reindex vacuum analyze cluster"
)
_NOTHING: Final = "savepoint release listen unlisten notify lock checkpoint"
_SHOWN: Final = {"transaction isolation level": "transaction_isolation", "time zone": "timezone"}
_BUDGET: Final = "stream_dp.budget"


def columns_of_command(piece: StatementPiece, state: SessionState) -> Columns | None:
    """Returns the columns of a command before it runs; None if it has none."""
    if piece.word == "show":
        name = _name_shown(piece.text)
        names = ("name", "setting", "description") if name == "all" else (name,)
        return tuple((each, "text") for each in names)
    if piece.word == "explain":
        return PLAN_COLUMNS
    if piece.word == "fetch" and (found := _FETCH.match(piece.text)):
        cursor = state.portals.get(found["name"])
        return None if cursor is None or cursor.result is None else cursor.result.columns
    return None


def question_in(piece: StatementPiece) -> StatementPiece | None:
    """Returns the question of DECLARE or EXPLAIN, with its offset in the text of the command.

    None is returned for other commands, and where it cannot be read.
    """
    form = {"declare": _DECLARE, "explain": _EXPLAIN}.get(piece.word)
    found = None if form is None else form.match(piece.text)
    if found is None or not (asked := pieces_of(found["asked"])):
        return None
    return StatementPiece(asked[0].text, found.start("asked") + asked[0].offset)


class CommandStatements:
    """Runs the commands of one connection.

    Args:
        state: What the connection keeps.
        questions: What a question gives, and what it would cost.
        report: Tells the driver of a setting that it follows.
    """

    def __init__(
        self, state: SessionState, questions: Questions, report: Callable[[str, str], None]
    ) -> None:
        self._state = state
        self._questions = questions
        self._report = report
        self._told = dict(state.settings.reported())
        self._work: dict[str, Callable[[StatementPiece], StatementResult]] = {
            "begin": self._begin,
            "start": self._begin,
            "commit": self._commit,
            "end": self._commit,
            "rollback": self._roll_back,
            "abort": self._roll_back,
            "set": self._set,
            "reset": self._reset,
            "discard": self._discard,
            "deallocate": self._deallocate,
            "close": self._close,
            "fetch": self._fetch,
            "move": self._fetch,
        }

    async def run(self, piece: StatementPiece) -> StatementResult:
        """Runs a command.

        Raises:
            SqlFault: It is refused, or the transaction has failed.
        """
        found = await self._result(piece)
        now = dict(self._state.settings.reported())
        for name in now:
            if now[name] != self._told[name]:
                self._report(name, now[name])
        self._told = now
        return found

    async def _result(self, piece: StatementPiece) -> StatementResult:
        word = piece.word
        if self._state.status == "E" and word not in ENDS:
            raise failed_transaction()
        if word in ("show", "explain", "declare"):
            asking = {"show": self._show, "explain": self._explain, "declare": self._declare}
            return await asking[word](piece)
        if word in self._work:
            return self._work[word](piece)
        if word in _NOTHING.split():
            return StatementResult(tag=word.upper())
        if word == "copy":
            raise SqlFault(
                "42501",
                "COPY is not answered: rows are never shown",
                hint="send rows with: stream-dp ingest",
            )
        if word in _WRITES.split():
            raise SqlFault(
                "25006",
                f"cannot execute {word.upper()} in a read-only transaction",
                hint="data sets are defined and filled with stream-dp; see stream-dp --help",
            )
        raise SqlFault(
            "42601" if not word else "0A000", f"{word.upper() or 'this'} is not answered"
        )

    # ------------------------------------------------------------ transactions

    def _begin(self, _: StatementPiece) -> StatementResult:
        if self._state.status == "I":
            self._state.settings.begin()
        self._state.status = "T"
        return StatementResult(tag="BEGIN")

    def _commit(self, _: StatementPiece) -> StatementResult:
        is_kept = self._state.status != "E"
        self._state.end_transaction(is_kept=is_kept)
        return StatementResult(tag="COMMIT" if is_kept else "ROLLBACK")

    def _roll_back(self, piece: StatementPiece) -> StatementResult:
        if re.match(r"\w+\s+(?:work\s+|transaction\s+)?to\b", piece.text, re.IGNORECASE):
            if self._state.status == "I":
                raise SqlFault(
                    "25P01", "ROLLBACK TO SAVEPOINT can only be used in transaction blocks"
                )
            self._state.status = "T"  # to a savepoint, before which nothing was changed
        else:
            self._state.end_transaction(is_kept=False)
        return StatementResult(tag="ROLLBACK")

    # ------------------------------------------------------------ settings

    def _set(self, piece: StatementPiece) -> StatementResult:
        found = _TIME_ZONE.match(piece.text) or _SET.match(piece.text)
        if found is not None:
            name = found.groupdict().get("name", "timezone").strip('"').lower()
            value = found["value"].strip().rstrip(";").strip("'\" ")
            if value.lower() == "default":
                self._state.settings.reset(name)
            else:
                self._state.settings.change(name, value, is_local=bool(found["local"]))
        return StatementResult(tag="SET")

    def _reset(self, piece: StatementPiece) -> StatementResult:
        name = piece.text.split(None, 1)[-1].strip('" ').lower()
        self._state.settings.reset(None if name == "all" else name)
        return StatementResult(tag="RESET")

    async def _show(self, piece: StatementPiece) -> StatementResult:
        name, settings = _name_shown(piece.text), self._state.settings
        columns = columns_of_command(piece, self._state)
        if name == _BUDGET:
            return StatementResult(columns, [(await self._questions.budget(),)], "SHOW")
        if name == "all":
            rows = [(key, value, "") for key, value in sorted(settings.values.items())]
            return StatementResult(columns, rows, "SHOW")
        return StatementResult(columns, [(settings[name],)], "SHOW")

    def _discard(self, piece: StatementPiece) -> StatementResult:
        self._state.prepared.clear()
        self._state.portals.clear()
        self._state.cursors.clear()
        self._state.held.clear()
        if piece.text.lower().endswith("all"):
            self._state.settings.reset()
        return StatementResult(tag=" ".join(piece.text.upper().split()))

    # ------------------------------------------------------------ statements and cursors

    def _deallocate(self, piece: StatementPiece) -> StatementResult:
        name = piece.text.split()[-1].strip('"')
        if name.lower() == "all":
            self._state.prepared.clear()
            return StatementResult(tag="DEALLOCATE ALL")
        self._state.prepared.pop(name, None)
        return StatementResult(tag="DEALLOCATE")

    async def _declare(self, piece: StatementPiece) -> StatementResult:
        """Declares a cursor, which is a portal: drivers describe it."""
        found, asked = _DECLARE.match(piece.text), question_in(piece)
        if found is None or asked is None:
            raise SqlFault(
                "42601",
                "this DECLARE cannot be read",
                hint="write DECLARE name CURSOR FOR SELECT ...",
            )
        head = piece.text[: asked.offset].lower()
        is_held = re.search(r"\bwith\s+hold\b", head) is not None
        if self._state.status == "I" and not is_held:
            raise SqlFault("25P01", "DECLARE CURSOR can only be used in transaction blocks")
        check_room(self._state.portals, found["name"], "cursors")
        result = await self._questions.answer(asked.text, self._state.settings)
        prepared = PreparedStatement(asked, (), result.columns)
        self._state.portals[found["name"]] = StatementPortal(prepared, asked.text, (), result)
        self._state.cursors.add(found["name"])
        (self._state.held.add if is_held else self._state.held.discard)(found["name"])
        return StatementResult(tag="DECLARE CURSOR", notices=result.notices)

    def _fetch(self, piece: StatementPiece) -> StatementResult:
        found = _FETCH.match(piece.text)
        cursor = self._state.portals.get(found["name"]) if found else None
        if found is None or cursor is None or cursor.result is None:
            raise SqlFault("34000", "this cursor does not exist")
        n = found["n"] or "1"
        rows = cursor.result.rows[cursor.sent :][: None if n.lower() == "all" else int(n)]
        cursor.sent += len(rows)
        if piece.word == "move":
            return StatementResult(tag=f"MOVE {len(rows)}")
        return StatementResult(cursor.result.columns, rows, f"FETCH {len(rows)}")

    def _close(self, piece: StatementPiece) -> StatementResult:
        name = piece.text.split()[-1].strip('"')
        for each in list(self._state.cursors) if name.lower() == "all" else [name]:
            self._state.cursors.discard(each)
            self._state.held.discard(each)
            self._state.portals.pop(each, None)
        return StatementResult(tag="CLOSE CURSOR")

    # ------------------------------------------------------------ prices

    async def _explain(self, piece: StatementPiece) -> StatementResult:
        found, asked = _EXPLAIN.match(piece.text), question_in(piece)
        if found is None or asked is None:
            raise SqlFault("42601", "this EXPLAIN cannot be read", hint="write EXPLAIN SELECT ...")
        if re.search(r"\banalyze\b(?!\s+(?:false|off|0))", found["options"], re.IGNORECASE):
            raise SqlFault(
                "0A000",
                "EXPLAIN ANALYZE would ask the statement",
                hint="EXPLAIN says what it would cost, and is free",
            )
        if not asked.is_question:
            raise SqlFault("0A000", "only a question has a price")
        lines = await self._questions.price(asked.text, self._state.settings)
        return StatementResult(PLAN_COLUMNS, [(line,) for line in lines], "EXPLAIN")


def failed_transaction() -> SqlFault:
    """Returns the fault of every statement in a transaction that has failed."""
    return SqlFault(
        "25P02", "current transaction is aborted, commands ignored until end of transaction block"
    )


def _name_shown(text: str) -> str:
    name = " ".join(text.split()[1:]).strip('"; ').lower()
    return _SHOWN.get(name, name)
