"""Texts of statements: where they end, and what stands in place of parameters."""

from __future__ import annotations

import pytest
import sqlglot
from hypothesis import example, given
from hypothesis import strategies as st

from stream_dp.gateway.pg_types import OIDS
from stream_dp.gateway.protocol.field_values import Parameter
from stream_dp.gateway.protocol.sql_fault import SqlFault
from stream_dp.gateway.protocol.statement_texts import (
    bound,
    literal,
    parameter_types,
    parameters_in,
    pieces_of,
    tree_of,
)

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        (" ; ;; ", []),
        ("-- nothing\n", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("/* a;b */ SELECT ';' ; -- c;d\nSELECT \"a;b\"", ["SELECT ';'", 'SELECT "a;b"']),
        ("SELECT $$a;b$$; SELECT $x$;$x$", ["SELECT $$a;b$$", "SELECT $x$;$x$"]),
        (r"SELECT 1 LIKE'%\'; SELECT 2", [r"SELECT 1 LIKE'%\'", "SELECT 2"]),
        ("SELECT '; SELECT 2", ["SELECT '; SELECT 2"]),
        (r"SELECT E'\';'; SELECT ''';'", [r"SELECT E'\';'", "SELECT ''';'"]),
    ],
)
def test_statements_end_at_semicolons_outside_of_texts(text: str, pieces: list[str]) -> None:
    found = pieces_of(text)
    assert [piece.text for piece in found] == pieces
    assert all(text[piece.offset :].startswith(piece.text) for piece in found)


@given(TEXTS | st.booleans() | st.none() | st.integers() | st.lists(TEXTS, min_size=1))
@example("it's")
@example(["it's"])
def test_a_literal_is_read_back_as_it_was(value: Parameter) -> None:
    kind = "_text" if isinstance(value, list) else "text"
    written = bound("SELECT $1", [literal(value, kind)])
    (piece,) = pieces_of(written)
    assert piece.text == written.strip()
    (found,) = sqlglot.parse_one(written, read="postgres").expressions
    items = found.expressions if isinstance(value, list) else [found]
    read = [
        None if isinstance(one, sqlglot.exp.Null)
        else one.this if isinstance(one, sqlglot.exp.Boolean) else one.sql("postgres") for one in items
    ]  # fmt: skip
    wanted = [
        one if one is None or isinstance(one, bool)
        else str(one) if isinstance(one, int) else "'" + str(one).replace("'", "''") + "'"
        for one in (value if isinstance(value, list) else [value])
    ]  # fmt: skip
    assert read == wanted


def test_only_parameters_are_replaced() -> None:
    text = "SELECT '$1', $2, \"$1\", a$1, $1::int /* $1 */ -- $1"
    assert [number for _, _, number in parameters_in(text)] == [2, 1]
    assert bound(text, ["7", "'x'"]) == "SELECT '$1',  'x' , \"$1\", a$1,  7 ::int /* $1 */ -- $1"
    with pytest.raises(SqlFault, match=r"\$1 to \$1000"):
        parameters_in("SELECT $0")


@pytest.mark.parametrize(
    ("text", "given_types", "types"),
    [
        ("SELECT COUNT(*) FROM t WHERE age >= $1 AND city = $2", [], ["float8", "text"]),
        ("SELECT COUNT(*) FROM t WHERE city = ANY($1)", [], ["_text"]),
        ("SELECT COUNT(*) FROM t WHERE age BETWEEN $2 AND $1", [], ["float8", "float8"]),
        ("SELECT COUNT(*) FROM t WHERE age IN ($1, $2)", [], ["float8", "float8"]),
        ("SELECT COUNT(*) FROM t WHERE age >= $1::int", [], ["int4"]),
        ("SELECT COUNT(*) FROM t WHERE city = $1::VARCHAR", [], ["varchar"]),
        ("SELECT COUNT(*) FROM t HAVING COUNT(*) > $1 LIMIT $2", [], ["int8", "int8"]),
        ("SELECT COUNT(*) FROM t WHERE age >= $1", [OIDS["numeric"]], ["numeric"]),
        ("SELECT COUNT(*) FROM t WHERE age >= $1", [0], ["float8"]),
        ("SELECT COUNT(*) FROM t WHERE age >= $2", [], ["text", "float8"]),
        ("SHOW $1", [], ["text"]),
    ],
)
def test_a_parameter_has_the_type_of_what_it_is_compared_with(
    text: str, given_types: list[int], types: list[str]
) -> None:
    columns = {"age": "float8", "city": "text"}
    assert list(parameter_types(text, given_types, columns)) == types


def test_a_keyword_after_as_is_a_name() -> None:
    tree = tree_of("SELECT COUNT(*) AS select FROM people")
    assert tree.expressions[0].alias == "select"
    assert tree_of("SELECT COUNT(*) FROM people WITHIN 5%").args["from_"].this.name == "people"
    with pytest.raises(SqlFault, match="cannot be read") as refused:
        tree_of("SELECT 'secret' FROM FROM")
    assert "secret" not in refused.value.message


def test_a_text_of_beginnings_is_read_once() -> None:
    """A reader that looks for the end of each would not come to an end here."""
    for text in (
        "".join(f"$a{n}$ " for n in range(20_000)),
        "/* " * 20_000,
        "E'\\" * 20_000,
        "$" * 50_000,
    ):
        assert parameters_in(f"SELECT {text}") == ()
    with pytest.raises(SqlFault, match="more than 20,000 characters"):
        pieces_of("SELECT 1; SELECT " + "1" * 30_000)


def test_a_value_cannot_begin_a_comment() -> None:
    written = bound(
        "SELECT 1 -$1 AND x = $2", [literal(-1, "int4"), literal("\n OR 1=1 --", "text")]
    )
    assert "--" not in written.split("'")[0]
    tree = sqlglot.parse_one(written, read="postgres")
    assert tree.find(sqlglot.exp.Or) is None
    assert tree.find(sqlglot.exp.And) is not None


def test_parameters_may_stand_close_together() -> None:
    assert parameter_types("SELECT COUNT(*) FROM t WHERE age IN ($1,$2)", [], {"age": "int8"}) == (
        "int8",
        "int8",
    )
