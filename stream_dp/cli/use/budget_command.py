"""``stream-dp budget``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby

import click
from rich.markup import escape
from rich.table import Table

from stream_dp.cli.server_options import GivenServers, connected
from stream_dp.cli.text.reply_text import (
    bare_table,
    between,
    busy,
    kinds_table,
    output,
    share,
    spending_bar,
)
from stream_dp.cli.text.share_tables import own_table, says_of, shares_table
from stream_dp.client.budget.odometer import Odometer
from stream_dp.client.budget.share_position import UNITS
from stream_dp.errors import InvalidInput
from stream_dp.messages import Definition, KindsSpec


@click.command()
@connected()
@click.argument("dataset")
@click.option(
    "--analyst",
    metavar="NAME",
    help="Show what this analyst has spent and may still spend of each phase.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    connection: GivenServers,
    dataset: str,
    analyst: str | None,
    as_json: bool,  # noqa: FBT001 - click
) -> None:
    """Show what each phase of DATASET has spent of its lifetime budget, from the published ledger.

    Where analysts have shares, the command also shows what each has spent, and what is left to them.
    """
    from stream_dp.profiles.builder import build
    from stream_dp.profiles.line_units import prices_of

    with busy("Reading the ledger"), connection.client() as client:
        definition = client.definition(dataset)
        odometer = Odometer.read(client.ledger(dataset))
    rules = odometer.rules
    if analyst is not None and rules is None:
        raise InvalidInput(
            "--analyst", f"everybody may spend all of each line of {dataset}", "leave it out"
        )
    privacy, profile = definition.privacy, definition.mechanism.profile
    _, mechanism = build(definition)
    constants = mechanism.published_budget
    if as_json:
        phases = [
            {
                "phase": number,
                "rows": block.rows,
                "spent": block.spent,
                "epsilon": epsilon,
                "looks": block.looks,
                **({} if block.since is None else {"since": block.since, "until": block.until}),
                **({} if analyst is None else {"yours": _yours(odometer, analyst, number)}),
            }
            for number, (block, epsilon) in enumerate(
                zip(odometer.blocks, epsilons_of(definition, odometer), strict=True), start=1
            )
        ]
        document: dict[str, object] = {
            "dataset": dataset,
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "profile": profile,
            "looks": odometer.looks,
            "phases": phases,
        }
        if privacy.unit is not None:
            document["unit"] = privacy.unit.model_dump()
            document["in_every_phase"] = in_every_phase(definition, odometer)
        if rules is not None:
            document["shares"] = [holder.document() for holder in odometer.holders()]
        if odometer.memory is not None:
            document["memory"] = vars(odometer.memory)
        if constants is not None:
            document["constants"] = constants
        if definition.kinds != KindsSpec():
            prices = prices_of(definition)
            document["kinds"] = {name: price._asdict() for name, price in prices.items()}
        click.echo(json.dumps(document))
        return
    console = output()
    console.print(f"[b]{dataset}[/b]: {promise(definition, odometer)}")
    if constants is not None:
        console.print(_tau_line(constants))
    if definition.kinds != KindsSpec():
        console.print()
        console.print(kinds_table(definition))
        console.print()
    if not odometer.blocks:
        console.print("no phase is open yet, so nothing is spent")
        return
    if analyst is not None and rules is not None:
        console.print(escape(says_of(rules, analyst)))
        console.print(own_table(analyst, odometer))
        return
    for line in table_lines(definition, odometer):
        console.print(line)
    if rules is not None:
        console.print()
        console.print(shares_table(odometer.holders()))
        console.print("each line shows the phase of which least is left")
    if odometer.memory is not None:
        memory = odometer.memory
        limited = "in all phases so far" if profile == "memory" else "in this phase"
        stage = f" of stage {memory.stage}" if constants and "stage" in constants else ""
        console.print(
            f"{profile} profile: a phase is paid for when it opens. Phase {memory.phase}: "
            f"{memory.asked:,} of {memory.queries:,} queries{stage} asked; up to "
            f"{memory.hard_limit:,} hard answers {limited}, "
            f"each with noise of scale {memory.count_scale:,.0f} rows"
        )


def _yours(odometer: Odometer, analyst: str, phase: int) -> dict[str, float]:
    """What an analyst has spent and may still spend of a phase, as shares of its line."""
    position = odometer.position(analyst, phase)
    return {"spent": position.spent / UNITS, "left": position.left / UNITS}


def promise(definition: Definition, odometer: Odometer) -> str:
    """Says what is promised to whom, and how often the rows were looked at."""
    privacy = definition.privacy
    return (
        f"epsilon {privacy.epsilon:g} at delta {privacy.delta:g} is promised to {privacy.promised_to}; "
        f"{odometer.looks:,} look{'' if odometer.looks == 1 else 's'} at the rows so far"
    )


def epsilons_of(definition: Definition, odometer: Odometer) -> list[float]:
    """Returns the loss in each phase, as epsilon: of a row of it, or of a person with the most rows in it."""
    from stream_dp.profiles.builder import epsilon_spent
    from stream_dp.profiles.line_units import epsilon_of_person

    if definition.privacy.unit is None:
        return [epsilon_spent(definition, block.spent) for block in odometer.blocks]
    return [epsilon_of_person(definition, [block.spent]) for block in odometer.blocks]


def in_every_phase(definition: Definition, odometer: Odometer) -> float:
    """Returns the loss, as epsilon, of a person with the most rows in every phase so far."""
    from stream_dp.profiles.line_units import epsilon_of_person

    return epsilon_of_person(definition, [block.spent for block in odometer.blocks])


def table_lines(definition: Definition, odometer: Odometer) -> Iterator[Table | str]:
    """Yields the spending of each phase, and what a person who was in all of them has lost.

    Phases one after another that have spent the same are one line, with the rows of all of them.
    """
    unit = definition.privacy.unit
    blocks = odometer.blocks
    dated = any(block.since is not None for block in blocks)
    if len(blocks) > 1:
        most = share(max(block.spent for block in blocks))
        yield f"{len(blocks):,} phases are open; none has spent more than {most} of its budget"
    table = bare_table(*(["covers"] if dated else []), numbers=("phase", "rows"))
    table.add_column("spent")
    for name in ("epsilon so far" if unit is None else "epsilon in this phase", "looks"):
        table.add_column(name, justify="right")
    said = [
        (share(block.spent), f"{epsilon:.3f}", f"{block.looks:,}")
        for block, epsilon in zip(blocks, epsilons_of(definition, odometer), strict=True)
    ]
    for (spent, *others), run in groupby(range(len(blocks)), key=said.__getitem__):
        indices = list(run)
        first, last = indices[0], indices[-1]
        table.add_row(
            *([between(blocks[first].since, blocks[last].until)] if dated else []),
            f"{first + 1}" if first == last else f"{first + 1} to {last + 1}",
            f"{sum(block.rows for block in blocks[first : last + 1]):,}",
            spending_bar(blocks[first].spent, width=30) + f" {spent}",
            *others,
        )
    yield table
    if unit is not None:
        yield _of_person(definition, odometer)


def _of_person(definition: Definition, odometer: Odometer) -> str:
    """Says what a person who was in every phase has lost."""
    unit, phases = definition.privacy.unit, len(odometer.blocks)
    assert unit is not None, "it protects persons"
    rows = f"{unit.rows_per_phase:,} row{'' if unit.rows_per_phase == 1 else 's'}"
    lost = (
        f"a person with {rows} in every phase so far has lost at most epsilon "
        f"{in_every_phase(definition, odometer):.3f}"
    )
    if unit.lifetime or phases <= unit.phases:
        return lost
    return f"{lost}: the promise is about any {unit.phases:,} of these {phases:,} phases in a row"


def _tau_line(constants: dict[str, object]) -> str:
    """Explains the failure probability of the papers' mechanism, term by term."""
    whole, concentration, last = (
        _power(constants[name])
        for name in ("log10_tau", "log10_tau_concentration", "log10_tau_last_threshold")
    )
    return (
        f"of its delta the mechanism may use {whole}: {concentration} by too many bad thresholds, {last} by "
        f"drawing the last one too often; some answer is further off than promised with probability "
        f"{constants['failure_probability']:.2g}"
    )


def _power(log10: object) -> str:
    """Formats a probability from its decimal logarithm, even if no float can hold it."""
    if not isinstance(log10, float):
        return "0"
    return f"{10**log10:.2g}" if log10 > -300 else f"10^{log10:,.0f}"
