"""The table of a number on a grid next to what else opening a phase measures."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Aim
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.looks.table_looks import TablesLook
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.proposed_bounds import WantedBounds
from stream_dp.core.rows.universe import Universe
from stream_dp.number_grid import grid_edges
from tests.core.residual.host import Host

CITY, AGE = Category("city", ("Bonn", "Graz")), Number("age", (30.0, 45.0))
N = 20_000


def made(share: float, *others: Any, **settings: Any) -> Calibrated:
    amount = Number("amount", grid_edges(), wanted=WantedBounds(12, share))
    return Host(Universe((*others, amount)), **settings).mechanism


def opened(mechanism: Calibrated) -> TablesLook:
    (look,) = mechanism.open_phase(N)
    assert isinstance(look, TablesLook)
    return look


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"base_share": 0.0},
        {"base_share": 0.97},
        {"queries_per_phase": 10**6},
        {"aim": Aim(0.1)},
    ],
)
@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
def test_a_line_has_room_for_it_whatever_else_is_measured(
    share: float, settings: dict[str, Any]
) -> None:
    mechanism = made(share, CITY, AGE, **settings)
    look = opened(mechanism)
    (charge,) = look.charges
    assert charge.rho == mechanism.opening_units(N) <= mechanism.openings.most_measured <= UNITS
    alone = [part for part in look.parts if 2 in part.attributes]
    assert [part.attributes for part in alone] == [(2,)], "no other table has it"
    price = mechanism.state.prices.units(alone[0].step, mechanism.state.prices.table)
    assert 0.9 * share <= price / UNITS <= share
    if settings.get("base_share") != 0.0:
        assert len(look.parts) > 1


def test_what_else_is_measured_is_as_if_there_were_no_such_number() -> None:
    """A plan that has 403 cells more would measure less of all others."""
    other = Host(Universe((CITY, AGE))).mechanism
    with_it, without = opened(made(0.05, CITY, AGE)), opened(other)
    assert with_it.parts[:-1] == without.parts


def test_an_attribute_may_be_alone() -> None:
    look = opened(made(0.05))
    assert [part.attributes for part in look.parts] == [(0,)]


def test_only_its_first_phase_measures_it() -> None:
    mechanism = made(0.05, CITY, base_share=0.1)
    first, second = opened(mechanism), opened(mechanism)
    assert [part.attributes for part in first.parts] == [(0,), (1,)]
    assert [part.attributes for part in second.parts] == [(0,)]
