"""Public tables are read from files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.cli.automate.dimension_command import TableFile
from stream_dp.errors import InvalidInput
from stream_dp.messages import DimensionTable, DimensionType


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "cities.csv"
    file.write_text(text, "utf-8")
    return file


def guess(file: Path, **types: DimensionType) -> DimensionTable:
    """The table of a file with the types that are guessed."""
    read = TableFile.read(file, key="city")
    return read.table("cities", read.guessed(types))


def test_a_column_has_the_narrowest_type_of_its_entries(tmp_path: Path) -> None:
    text = "\ufeffcity;rank;share;coast;code;empty;big\n7;1;0.5;true;1a;;1\n\n Bonn ;; 2 ;False;3;;1e400\n"
    read = TableFile.read(written(tmp_path, text), key="city", delimiter=";")
    guessed = read.guessed({"big": "text"})
    assert guessed == {
        "rank": "integer", "share": "real", "coast": "boolean", "code": "text", "empty": "text"
    }  # fmt: skip
    found = read.table("cities", {**guessed, "big": "text"})
    assert found.columns == ("city", "rank", "share", "coast", "code", "empty", "big")
    assert found.types == ("text", "integer", "real", "boolean", "text", "text", "text")
    assert found.rows == (
        ("7", 1, 0.5, True, "1a", None, "1"),
        ("Bonn", None, 2.0, False, "3", None, "1e400"),
    )
    assert DimensionTable.read({"version": 1, **found.model_dump(mode="json")}) == found
    assert found.lines()["Bonn"]["share"] == 2.0
    text = "city,zip,month\nBonn,53111,01\nDresden,01067,12\n"
    read = TableFile.read(written(tmp_path, text), key="city")
    assert read.guessed({}) == {"zip": "text", "month": "text"}, "a zero stands before a number"
    months = read.table("cities", {"zip": "text", "month": "integer"})
    assert months.lines()["Bonn"] == {"zip": "53111", "month": 1}


@pytest.mark.parametrize("odd", ["330,000", "NaN", "-", "N/A", "1_000", "inf", "\u0663", "1e400"])
def test_one_odd_entry_is_listed_and_does_not_make_numbers_a_text(tmp_path: Path, odd: str) -> None:
    text = f'city,people\nBonn,"{odd}"\nGraz,300000\n\nLyon,520000\nUlm,\n'
    with pytest.raises(InvalidInput) as caught:
        guess(written(tmp_path, text))
    assert str(caught.value) == (
        f"cities.csv, column people: 1 of 3 entries do not fit the type integer: line 2: {odd!r}; fix them, "
        "leave them empty, or pass --type 'people=text'"
    )
    read = TableFile.read(tmp_path / "cities.csv", key="city")
    assert read.table("cities", {"people": "text"}).lines()["Graz"] == {"people": "300000"}


@pytest.mark.parametrize(
    ("text", "types", "words"),
    [
        ("city,n\n7,1\n", {"town": "text"}, "cities.csv has no column town; name one of city, n"),
        ("city,n\n7,1\n", {"city": "integer"}, "city is the key, which is a text"),
        ("city,n\n" + "".join(f"c{n},{'?' if n % 2 else n}\n" for n in range(31)), {},
         r"15 of 31 entries do not fit the type integer: line 3: '\?', line 5:.*line 21: '\?' and 5 more;"),
        ("town\nBonn\n", {}, "cities.csv has no column city"),
        ("", {}, "cities.csv has no column city"),
        ("city,n\n\nBonn\n", {}, "cities.csv, line 3: it has 1 fields, and the first line has 2"),
        ("city\nBonn\nBonn\n", {}, "two rows have the same key"),
        ("city,City\nBonn,x\n", {}, "two columns have the same name"),
        ("city\nM\xfcnster\n", {}, "not CSV in UTF-8"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_public_table_is_refused(
    tmp_path: Path, text: str, types: dict[str, DimensionType], words: str
) -> None:
    file = tmp_path / "cities.csv"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput, match=words):
        guess(file, **types)


def test_a_table_is_published_when_its_types_are_confirmed(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    file = written(tmp_path, "city,zip,people\nDresden,01067,560000\nBonn,53111,330000\n")
    nowhere = ("--bootstrap-servers", "127.0.0.1:1")
    ended = run("dimension", "put", file, "--key", "city", *nowhere)
    assert "nothing was published: nobody is at a terminal to confirm the types" in ended.err
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert lines[1:] == [
        "city text Dresden, Bonn", "zip text 01067, 53111", "people integer 560000, 330000"
    ]  # fmt: skip
    for given in (["--yes"], ["--type", "zip=text", "--type", "people=real"]):
        ended = run("dimension", "put", file, "--key", "city", *given, *nowhere)
        assert "127.0.0.1:1" in ended.err, "it went on, and there is no broker"
    ended = run("dimension", "put", file, "--key", "city", "--type", "zip=zipcode", *nowhere)
    assert "with one of the types text, integer, real, boolean" in ended.err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"types": ["text"]}, "there is not one type for each column"),
        ({"types": ["integer", "text"]}, 'the key is not a "text"'),
        ({"rows": [["Bonn", True]]}, "an entry of n does not fit the type integer"),
        ({"rows": [["Bonn", 1.5]]}, "an entry of n does not fit the type integer"),
        ({"types": ["text", "text"], "rows": [["Bonn", 1]]}, "does not fit the type text"),
        ({"key": "town"}, "no column has the name of the key"),
        ({"rows": [["Bonn"]]}, "a row has not one entry for each column"),
        ({"rows": [[7, 1]]}, "a key is not a text"),
        ({"dimension": "No Name"}, "characters that are not allowed"),
    ],
)
def test_a_table_that_is_not_one_is_refused(changes: dict[str, object], words: str) -> None:
    document = {
        "dimension": "cities", "key": "city", "columns": ["city", "n"], "types": ["text", "integer"],
        "rows": [],
    }  # fmt: skip
    assert DimensionTable.read(document).lines() == {}
    nulls: dict[str, object] = {"rows": [["Bonn", None], ["Graz", 7]]}
    assert DimensionTable.read({**document, **nulls}).lines()["Bonn"] == {"n": None}
    with pytest.raises(InvalidInput, match=words):
        DimensionTable.read({**document, **changes})
