"""The protocol between ``benchmarks/peers.py`` and its drivers, and the scoring, without any of the peers."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="this copy has no benchmarks")

MODULES = ("peers", "tiles", "workloads", "drivers", "drivers.protocol")


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module, which finds its neighbours as it does when it is run."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("peers")
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def protocol(peers: Any) -> Any:
    return importlib.import_module("drivers.protocol")


def toy(protocol: Any, **promise: float) -> Any:
    """Two phases of 400 and 200 rows with a colour and a size; five queries, of which two are one."""
    kept = {"epsilon": 1.0, "delta": 1e-9, "rho": 0.015, "error": 0.25, "failure_probability": 0.01}
    attributes = (protocol.Attribute("colour", 2), protocol.Attribute("size", 3, ordered=True))
    phases = [
        {"colour": [0, 1] * 200, "size": [0, 0, 1, 2] * 100},
        {"colour": [1] * 200, "size": [2] * 200},
    ]
    queries = [
        protocol.Query(0, 0, 0, {"colour": (0,)}),
        protocol.Query(1, 1, 0, {"size": (1, 2)}, ("colour",)),
        protocol.Query(2, 1, 0, {"size": (1, 2)}, ("colour",)),
        protocol.Query(3, 1, 1, {"size": (1, 2)}, ("colour",)),
        protocol.Query(4, 1, 0, {}, ("size", "colour")),
    ]
    made = protocol.Promise(**(kept | promise))
    return protocol.Stream("toy", made, attributes, phases, queries)


class Scripted:
    """A peer that answers what it is told to, and notes what happens to it."""

    def __init__(self, answers: dict[int, Any]) -> None:
        self.answers = answers
        self.happened: list[str] = []

    def open_phase(self, phase: int) -> None:
        self.happened.append(f"phase {phase}")

    def answer(self, query: Any) -> Any:
        self.happened.append(f"query {query.number}")
        answer = self.answers[query.number]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def spent(self) -> float:
        return 0.5


EXACT: dict[int, Any] = {0: [200], 1: [100, 300], 3: [0, 200], 4: [100, 100, 100, 0, 0, 300]}


def answered(protocol: Any, stream: Any, answers: dict[int, Any], file: Path, **about: Any) -> Any:
    peer = Scripted(answers)
    seconds = about.pop("seconds", 60.0)
    made = protocol.About("a peer", {"it": "1"}, "its own", **about)
    protocol.serve(stream, made, peer, file, seconds=seconds)
    return peer


def scored(peers: Any, stream: Any, file: Path) -> Any:
    return peers.score(stream, peers.Truth(stream), file)


def test_a_stream_that_is_written_is_read_again_as_it_was(protocol: Any, tmp_path: Path) -> None:
    stream = toy(protocol)
    stream.write(tmp_path)
    assert protocol.Stream.read(tmp_path) == stream


def test_exact_counts_are_those_of_the_rows(peers: Any, protocol: Any) -> None:
    stream = toy(protocol)
    truth = peers.Truth(stream)
    for number, exact in EXACT.items():
        assert truth.counts(stream.queries[number]).tolist() == exact


def test_phases_open_just_before_the_first_query_about_them_and_repeats_are_not_asked_again(
    peers: Any, protocol: Any, tmp_path: Path
) -> None:
    stream = toy(protocol)
    peer = answered(protocol, stream, EXACT, tmp_path / "answers")
    opened = ["phase 0", "query 0", "phase 1", "query 1", "query 3", "query 4"]
    assert peer.happened == opened
    tally = scored(peers, stream, tmp_path / "answers")
    assert (tally.asked, tally.answered, tally.fresh, tally.within) == (5, 5, 4, 5)
    assert (tally.numbers, tally.outside, tally.spent) == (13, 0, 0.5)


def test_a_peer_with_a_memory_of_its_own_is_asked_every_query_and_says_what_it_paid_for(
    peers: Any, protocol: Any, tmp_path: Path
) -> None:
    stream, answers = toy(protocol), EXACT | {2: EXACT[1]}
    about = {"cache": False, "paid": lambda: 1}
    peer = answered(protocol, stream, answers, tmp_path / "answers", **about)
    assert "query 2" in peer.happened
    assert scored(peers, stream, tmp_path / "answers").fresh == 1


def test_a_number_is_outside_if_it_is_further_off_than_the_error_of_its_window(
    peers: Any, protocol: Any, tmp_path: Path
) -> None:
    stream = toy(protocol)  # the margins are 100, 150 and 50 rows
    off = {0: [300], 1: [251, 300], 3: [50, 149], 4: [100, 100, 100, 0, 0, 451]}
    answered(protocol, stream, off, tmp_path / "answers")
    tally = scored(peers, stream, tmp_path / "answers")
    # The repeat of query 1 gets its number, which counts again.
    assert (tally.numbers, tally.outside, tally.within) == (13, 4, 1)


def test_refusals_are_counted_by_reason_and_are_no_answers(
    peers: Any, protocol: Any, tmp_path: Path
) -> None:
    stream = toy(protocol)
    out, unable = protocol.Exhausted(), protocol.Unable("it has no GROUP BY")
    answers = {0: [200], 1: unable, 2: unable, 3: out, 4: out}
    answered(protocol, stream, answers, tmp_path / "answers")
    tally = scored(peers, stream, tmp_path / "answers")
    assert (tally.asked, tally.answered) == (5, 1)
    assert tally.refused == {"it has no GROUP BY": 2, "budget": 2}


def test_a_peer_without_time_left_is_asked_no_more_and_the_table_says_so(
    peers: Any, protocol: Any, tmp_path: Path
) -> None:
    stream = toy(protocol)
    answered(protocol, stream, EXACT, tmp_path / "answers", seconds=-1.0)
    assert scored(peers, stream, tmp_path / "answers").stopped
    tally = peers.Tally("slow", asked=3, answered=3, stopped=True)
    assert peers.row(tally)[1] == "3 (time)"


def test_answers_without_an_end_or_of_another_stream_are_not_scored(
    peers: Any, protocol: Any, tmp_path: Path
) -> None:
    stream, file = toy(protocol), tmp_path / "answers"
    answered(protocol, stream, EXACT, file)
    lines = file.read_text().splitlines()
    for broken in (
        lines[:-1],
        [*lines[:2], *lines[3:]],
        [lines[0], *reversed(lines[1:-1]), lines[-1]],
    ):
        file.write_text("\n".join(broken))
        with pytest.raises(ValueError, match="answers"):
            scored(peers, stream, file)


def test_an_answer_of_another_shape_ends_the_run(protocol: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got 1 numbers"):
        answered(protocol, toy(protocol), EXACT | {1: [3.0]}, tmp_path / "answers")


def test_the_scales_just_keep_the_error(protocol: Any) -> None:
    promise = toy(protocol).promise
    assert promise.sigma(400) == pytest.approx(100 / 2.5758293035)
    assert promise.laplace_scale(400) == pytest.approx(100 / 4.605170186)


def test_the_shared_ledger_charges_all_phases_or_none(protocol: Any) -> None:
    ledger = protocol.Ledger(1.0)
    ledger.open_phase()
    ledger.charge(range(1), 0.75)
    ledger.open_phase()
    with pytest.raises(protocol.Exhausted):
        ledger.charge(range(2), 0.5)
    assert ledger.spent() == 0.75
    ledger.charge(range(1, 2), 0.5)
    ledger.charge(range(2), 0.25)
    assert ledger.spent() == 1.0


def test_a_driver_runs_on_its_own_and_spends_what_its_noise_costs(
    peers: Any, protocol: Any, tmp_path: Path
) -> None:
    stream = toy(protocol)
    stream.write(tmp_path)
    file = peers.send(peers.Run("plain"), tmp_path, 60.0)
    tally = scored(peers, stream, file)
    assert (tally.asked, tally.fresh, tally.outside) == (5, 4, 0)
    costs = [(50 / 2.5758293035) ** -2 / 2, 2 * (150 / 2.5758293035) ** -2 / 2]
    assert tally.spent == pytest.approx(sum(costs) / 0.015, rel=1e-6)
    assert json.loads(file.read_text().splitlines()[0])["peer"] == "plain Gaussian noise"


def test_the_engine_answers_the_same_stream(peers: Any, protocol: Any, tmp_path: Path) -> None:
    stream = toy(protocol)
    stream.write(tmp_path)
    file = peers.send(peers.Run("stream_dp_engine", option="0"), tmp_path, 60.0)
    tally = scored(peers, stream, file)
    assert (tally.asked, tally.answered, tally.numbers) == (5, 5, 13)
    assert tally.outside < 8  # one number in a hundred may be: 8 of 13 happen once in 1e12 runs


def test_the_orders_have_fifty_tiles_and_the_same_rows_every_time(peers: Any) -> None:
    stream = peers.orders_stream(days=2, n_rows=50, error=0.02)
    again = peers.orders_stream(days=2, n_rows=50, error=0.02)
    assert stream == again
    assert [len(stream.queries), *stream.sizes] == [100, 50, 50]
    assert [a.size for a in stream.attributes] == [12, 13, 301, 5]
