"""Files of queries."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_dp.cli.files.statement_files import read_statements, statements
from stream_dp.cli.text.reply_text import answer_line, bundle_lines
from stream_dp.errors import InvalidInput, InvalidQuery
from stream_dp.messages import QuotedBundle, read_answer
from tests.cli.conftest import printed

GOLDEN = Path(__file__).parents[1] / "golden/bundles/quote-v1.json"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("smoker\n\n  age >= 30  \n", [(1, "smoker"), (3, "age >= 30")]),
        ("-- people\nsmoker -- and others\nage >= 30", [(2, "smoker"), (3, "age >= 30")]),
        ("smoker; age >= 30", [(1, "smoker"), (1, "age >= 30")]),
        ("\nSELECT *\nWHERE smoker;\n\nage >= 3;\n", [(2, "SELECT *\nWHERE smoker"), (5, "age >= 3")]),
        ("city = 'a;b'\ncity = 'it''s -- so'", [(1, "city = 'a;b'"), (2, "city = 'it''s -- so'")]),
        ('"a;b" >= 3\n"--" < 2', [(1, '"a;b" >= 3'), (2, '"--" < 2')]),
        ("smoker -- yes; or no\nage >= 30", [(1, "smoker"), (2, "age >= 30")]),
        ("city = 'Bonn\ncity = 'Graz'", [(1, "city = 'Bonn"), (2, "city = 'Graz'")]),
        ("smoker /* a; b */;\nage >= 30", [(1, "smoker"), (2, "age >= 30")]),
        ("/* tiles;\nof 2026 */\nsmoker\n/* old */ age >= 30", [(3, "smoker"), (4, "age >= 30")]),
        ("age >= 30 /* one;\ntwo */ AND smoker", [(1, f"age >= 30{' ' * 8}\n{' ' * 7}AND smoker")]),
        ("`a;b` >= 3\n`/*` < 2", [(1, "`a;b` >= 3"), (2, "`/*` < 2")]),
        (" ;\n;", []),
        ("", []),
    ],
)  # fmt: skip
def test_a_file_holds_a_query_a_line_or_queries_between_semicolons(
    text: str, found: list[tuple[int, str]]
) -> None:
    assert [(each.line, each.text) for each in statements(text)] == found


def test_an_error_names_the_file_and_the_line_and_points_at_the_piece() -> None:
    first, second = statements("smoker;\nSELECT COUNT(*)\nWHERE agee >= 30")
    error = InvalidQuery("line 2, column 7", "there is no agee", "did you mean age?")
    said = str(second.fault(Path("tiles.sql"), error))
    assert said.startswith("tiles.sql, line 3: there is no agee; did you mean age?\n")
    assert said.endswith("\n  WHERE agee >= 30\n        ^^^^")
    other = InvalidQuery("attribute", "the conditions are about two", "ask about one")
    assert str(first.fault(Path("tiles.sql"), other)).startswith("tiles.sql, line 1: attribute: ")


def test_a_file_without_a_query_or_in_another_encoding_is_named(tmp_path: Path) -> None:
    file = tmp_path / "tiles.sql"
    file.write_text("-- nothing yet\n")
    with pytest.raises(InvalidInput, match=r"tiles\.sql holds no query"):
        read_statements(file)
    file.write_bytes("city = 'Köln'".encode("latin-1"))
    with pytest.raises(InvalidInput, match=r"tiles\.sql is not in UTF-8"):
        read_statements(file)
    file.write_text("\ufeffsmoker", encoding="utf-8")
    assert [each.text for each in read_statements(file)] == ["smoker"]


def test_a_quote_is_a_table_with_the_part_of_each_query() -> None:
    bundle = read_answer(GOLDEN.read_bytes())
    assert isinstance(bundle, QuotedBundle)
    names = [("1", "GROUP BY city"), ("2", "city = '[b]'"), ("3", "age >= 33"), ("4", "?")]
    lines = [" ".join(line.split()) for line in printed(*bundle_lines(bundle, names))]
    assert lines == [
        "line query cost",
        "1 GROUP BY city 0.31% the rows were looked at; the window was clamped to the 3 phases there are",
        "2 city = '[b]' free from what was published",
        "3 age >= 33 refused where.ge: this cuts the bin 30 to 44 of age; ask >= 30 or >= 45",
        "4 ? refused query_id: this field is missing; add it",
        answer_line(bundle),
    ]
    assert lines[-1] == (
        "4 queries together would cost 0.27% to 0.31% of a phase's budget (3 phases would pay); "
        "2 of them cannot be had; 98.38% of the budget left"
    )
    cheap, certain, *rest = bundle.queries
    cheap = cheap.model_copy(update={"expected": True, "most": 0.4, "note": None})
    lacking = certain.model_copy(update={"path": "unverified"})
    changed = {
        "queries": (cheap, lacking, *rest),
        "together": bundle.together.model_copy(update={"most": 0.4}),
    }
    dearer = bundle_lines(bundle.model_copy(update=changed), names)
    lines = [" ".join(line.split()) for line in printed(*dearer)]
    assert lines[1] == "1 GROUP BY city about 0.31%, 40.00% at most the rows were looked at"
    assert "cannot be had no look that it may pay for is precise enough" in lines[2]
    assert lines[-1].startswith(
        "4 queries together would cost about 0.27% to 0.31%, and 40.00% at most, of a phase's budget"
    )
    assert "3 of them cannot be had" in lines[-1]
    free = bundle.model_copy(
        update={"together": bundle.together.model_copy(update={"low": 0, "high": 0})}
    )
    assert answer_line(free) == (
        "4 queries together would take nothing; 2 of them cannot be had; 98.38% of the budget left"
    )
