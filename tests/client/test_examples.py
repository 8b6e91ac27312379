"""The examples in the docstrings of the public names run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import sys

import pytest

EXAMPLES = {
    "stream_dp.broker": {"Broker"},
    "stream_dp.client.rows.frames": {"answers_frame"},
    "stream_dp.client.statements.written_query": {
        "Query",
        "Query.correlation",
        "Query.difference",
        "Query.quantile",
        "Query.share",
        "Query.sum",
    },
    "stream_dp.contracts": {"schemas"},
    "stream_dp.messages.answers": {"read_answer"},
    "stream_dp.messages.definitions": {"Definition.read"},
    "stream_dp.messages.topics": {"Topics"},
    "stream_dp.client.statements.public_tables": {"selected"},
    "stream_dp.sql.reading.attribute_names": {"example"},
    "stream_dp.sql.plan.select_planner": {"names_of", "parse", "plan"},
}


def found(module: str) -> dict[str, doctest.DocTest]:
    """The docstrings of a module that hold an example."""
    tests = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module))
    return {test.name.removeprefix(f"{module}."): test for test in tests if test.examples}


@pytest.mark.parametrize("module", EXAMPLES)
def test_each_example_prints_what_it_says(module: str) -> None:
    if module.endswith("frames"):
        pytest.importorskip("pandas")
    tests = found(module)
    assert tests.keys() == EXAMPLES[module]
    for test in tests.values():
        runner = doctest.DocTestRunner(verbose=False)
        runner.run(test, out=sys.stdout.write)
        assert runner.failures == 0, test.name


def test_an_example_that_is_wrong_is_noticed() -> None:
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=lambda _: None)
    assert runner.failures == 1
