from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.slow import rest_is_slow


@pytest.mark.parametrize(
    ("words", "printed"),
    rest_is_slow(
        [
            (["reconstruction"], r"0\.2 +301 "),
            (["tracing"], r"0\.5 +10,000 .* 333\.3 .* 121\.7"),
            (["median-search"], r"65,536 +17 +90 "),
            (["conjecture", "--seeds", "1"], r"stationary +memory, carry-over prior +240 of 240"),
        ],
        first=1,
        unpack=True,
    ),
)
def test_an_experiment_prints_a_table_and_leaves_a_plot_that_names_its_axes(
    run: Run, tmp_path: Path, words: list[str], printed: str
) -> None:
    folder = tmp_path / "new" / "plots"
    ended = run("lab", *words, "--out", folder)
    assert ended.code == 0, ended.err
    assert re.search(printed, ended.out)
    png, svg = (folder / f"{words[0]}.{ending}" for ending in ("png", "svg"))
    assert f"wrote the plot to {png} and {svg}" in ended.out
    assert png.read_bytes().startswith(b"\x89PNG")
    text = " ".join(ET.parse(svg).getroot().itertext())
    assert any(word in text for word in ("queries", "answers", "rows"))
    assert svg.stat().st_size < 200_000


def test_without_matplotlib_it_says_what_to_install_before_it_computes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name)
    )
    ended = run("lab", "tracing", "--out", tmp_path / "plots")
    assert ended.code == 1
    assert "plots need matplotlib; pip install 'stream-dp[lab]'" in ended.err
    assert not (tmp_path / "plots").exists()
