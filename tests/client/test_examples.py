"""The examples in the docstrings of the public names run and print what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest

EXAMPLES = {
    "stream_dp.broker": {"Broker"},
    "stream_dp.client.rows.frames": {"answers_frame"},
    "stream_dp.client.statements.written_query": {
        *("Query", "Query.correlation", "Query.difference"),
        *("Query.quantile", "Query.share", "Query.sum"),
    },
    "stream_dp.contracts": {"schemas"},
    "stream_dp.messages.answers": {"read_answer"},
    "stream_dp.messages.definition.definition": {"Definition.read"},
    "stream_dp.messages.topics": {"Topics"},
    "stream_dp.client.statements.public_tables": {"selected"},
    "stream_dp.sql.reading.attribute_names": {"example"},
    "stream_dp.sql.plan.select_planner": {"names_of", "parse", "plan"},
}


@pytest.mark.parametrize("module", EXAMPLES)
def test_each_example_prints_what_it_says(module: str) -> None:
    loaded = importlib.import_module(module)
    tests = [test for test in doctest.DocTestFinder().find(loaded) if test.examples]
    assert {test.name.removeprefix(f"{module}.") for test in tests} == EXAMPLES[module]
    assert doctest.testmod(loaded).failed == 0
