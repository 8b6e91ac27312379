"""Public tables are read from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_dp.cli.dimension import read_dimension
from stream_dp.errors import InvalidInput
from stream_dp.messages import DimensionTable


def test_a_column_has_the_narrowest_type_of_its_entries(tmp_path: Path) -> None:
    file = tmp_path / "cities.csv"
    file.write_text(
        "\ufeffcity;rank;share;coast;code;empty\n7;1;0.5;true;1a;\nBonn;;2;False;3;\n\n", "utf-8"
    )
    found = read_dimension(file, key="city", name="cities", delimiter=";")
    assert found.columns == ("city", "rank", "share", "coast", "code", "empty")
    assert found.rows == (("7", 1, 0.5, True, "1a", None), ("Bonn", None, 2.0, False, "3", None))
    assert DimensionTable.read({"version": 1, **found.model_dump(mode="json")}) == found
    assert found.lines()["Bonn"]["share"] == 2.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("town\nBonn\n", "cities.csv has no column city"),
        ("", "cities.csv has no column city"),
        ("city,n\nBonn\n", "cities.csv, line 2: it has 1 fields, and the first line has 2"),
        ("city\nBonn\nBonn\n", "two rows have the same key"),
        ("city,City\nBonn,x\n", "two columns have the same name"),
        ("city,n\nBonn,nan\nGraz,1e999\n", ""),
    ],
)
def test_a_file_that_is_no_public_table_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "cities.csv"
    file.write_text(text)
    if not words:  # what is no finite number stays a text
        assert read_dimension(file, key="city", name="cities").rows[0] == ("Bonn", "nan")
        return
    with pytest.raises(InvalidInput) as caught:
        read_dimension(file, key="city", name="cities")
    assert words in str(caught.value)


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cities.csv"
    file.write_bytes(b"city\nM\xfcnster\n")
    with pytest.raises(InvalidInput, match="not CSV in UTF-8"):
        read_dimension(file, key="city", name="cities")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": "town"}, "no column has the name of the key"),
        ({"rows": [["Bonn"]]}, "a row has not one entry for each column"),
        ({"rows": [[7, 1]]}, "a key is not a text"),
        ({"dimension": "No Name"}, "characters that are not allowed"),
    ],
)
def test_a_table_that_is_not_one_is_refused(changes: dict[str, object], words: str) -> None:
    document = {"dimension": "cities", "key": "city", "columns": ["city", "n"], "rows": []}
    assert DimensionTable.read(document).lines() == {}
    with pytest.raises(InvalidInput, match=words):
        DimensionTable.read({**document, **changes})
