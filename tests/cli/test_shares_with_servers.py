"""Shares from the command line to the worker and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.kafka


@pytest.fixture
def people(served: Run, served_deployment: Any, definition: dict[str, Any]) -> str:
    """A data set with one phase of 3,000 rows, where ann and bob have shares."""
    name = str(definition["dataset"])
    with served_deployment.client("root") as client:
        shares = {"ann": {"share": 0.4}, "b*": {"share": 0.1, "together": 0.3}}
        client.define({**definition, "mechanism": {"base_share": 0.0}, "analysts": shares})
        cells = [{"city": city, "count": 1000} for city in ("Bonn", "Graz", "Lyon")]
        client.send(name, cells=cells)
    return name


def test_an_owner_sees_changes_and_follows_shares(
    served: Run, served_deployment: Any, people: str, tmp_path: Path
) -> None:
    with served_deployment.client("ann") as client:
        client.ask(people, "FRESH city = 'Bonn'")

    spent = json.loads(served("budget", people, "--analyst", "ann", "--json").out)
    (phase,) = spent["phases"]
    assert 0 < phase["yours"]["spent"] == pytest.approx(phase["spent"])
    assert phase["yours"]["left"] == pytest.approx(0.4 - phase["spent"])
    by_name = {holder["who"]: holder for holder in spent["shares"]}
    assert by_name["b*"]["worst"] == {"phase": 1, "spent": 0.0, "left": pytest.approx(0.3)}

    quoted = served("ask", people, "city = 'Graz'", "--quote", "--analyst", "bob")
    assert "10.00% of the budget left to you" in quoted.out, quoted

    file = tmp_path / "shares.json"
    file.write_text(served("dataset", "analysts", people, "--json").out)
    rules = json.loads(file.read_text())
    assert rules["analysts"]["b*"] == {"share": 0.1, "together": 0.3}
    assert "nothing changes" in served("dataset", "analysts", people, file).out

    rules["analysts"]["ann"]["share"] = 0.0
    file.write_text(json.dumps(rules))
    assert served("dataset", "analysts", people, file).code != 0, "nobody was there to say yes"
    done = served("dataset", "analysts", people, file, "--yes")
    assert done.code == 0, done.err
    assert "- ann        40%\n+ ann        0%\n" in done.out
    assert "in force from the next query on" in done.out
    assert "+ ann        0%" in served("ledger", "show", people).out
    refused = served("ask", people, "FRESH city = 'Lyon'", "--analyst", "ann")
    assert refused.code == 1
    assert "your own share of it is spent" in refused.err + refused.out
    assert served("ledger", "verify", people).code == 0


def test_who_has_no_shares_is_told_so(
    served: Run, served_deployment: Any, definition: dict[str, Any]
) -> None:
    with served_deployment.client() as client:
        name = str(client.define(definition).dataset)
    assert "everybody may ask" in served("dataset", "analysts", name).out
    ended = served("budget", name, "--analyst", "ann")
    assert ended.code == 1
    assert "everybody may spend all of each line" in ended.err
