"""``stream-dp budget``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import click
from rich.markup import escape
from rich.table import Table

from stream_dp.cli.command_options import GivenServers, connected, json_option
from stream_dp.cli.terminal import many, show, show_json
from stream_dp.cli.text.reply_text import bare_table, busy, kinds_table, numbers, spending_bar
from stream_dp.cli.text.share_tables import own_table, says_of, shares_table
from stream_dp.client.budget.odometer import Odometer
from stream_dp.client.budget.share_position import UNITS
from stream_dp.display.figure_text import share
from stream_dp.display.phase_words import between
from stream_dp.errors import InvalidInput
from stream_dp.messages import Definition, KindsSpec


@click.command()
@connected("dataset")
@click.option(
    "--analyst",
    metavar="NAME",
    help="Show what this analyst has spent and may still spend of each phase.",
)
@json_option("Print one JSON document.")
def command(connection: GivenServers, dataset: str, analyst: str | None, as_json: bool) -> None:
    """Show what each phase of DATASET has spent of its lifetime budget, from the published ledger.

    Where analysts have shares, the command also shows what each has spent, and what is left to them.
    """
    with busy("Reading the ledger"), connection.client() as client:
        definition = client.definition(dataset)
        odometer = Odometer.read(client.ledger(dataset))
    if analyst is not None and odometer.rules is None:
        problem = f"everybody may spend all of each line of {dataset}"
        raise InvalidInput("--analyst", problem, "leave it out")
    from stream_dp.profiles.builder import build

    constants = build(definition)[1].published_budget
    if as_json:
        show_json([_document(definition, odometer, analyst, constants)])
        return
    show(f"[b]{dataset}[/b]: {promise(definition, odometer)}")
    if constants is not None:
        show(_tau_line(constants))
    if definition.kinds != KindsSpec():
        show("", kinds_table(definition), "")
    if not odometer.blocks:
        show("no phase is open yet, so nothing is spent")
    elif analyst is not None and odometer.rules is not None:
        show(escape(says_of(odometer.rules, analyst)), own_table(analyst, odometer))
    else:
        show(*table_lines(definition, odometer))
        if odometer.rules is not None:
            said = "each line shows the phase of which least is left"
            show("", shares_table(odometer.holders()), said)
        show(*_memory_lines(definition, odometer, constants))


def _document(
    definition: Definition,
    odometer: Odometer,
    analyst: str | None,
    constants: dict[str, object] | None,
) -> dict[str, object]:
    """The same as JSON."""
    from stream_dp.profiles.line_units import prices_of

    privacy, kinds = definition.privacy, {}
    if definition.kinds != KindsSpec():
        kinds = {name: price._asdict() for name, price in prices_of(definition).items()}
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
    document: dict[str, object | None] = {
        "dataset": definition.dataset,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "profile": definition.mechanism.profile,
        "looks": odometer.looks,
        "phases": phases,
        "unit": privacy.unit and privacy.unit.model_dump(),
        "in_every_phase": privacy.unit and in_every_phase(definition, odometer),
        "shares": odometer.rules and [holder.document() for holder in odometer.holders()],
        "memory": odometer.memory and vars(odometer.memory),
        "constants": constants,
        "kinds": kinds or None,
    }
    return {name: value for name, value in document.items() if value is not None}


def _yours(odometer: Odometer, analyst: str, phase: int) -> dict[str, float]:
    """What an analyst has spent and may still spend of a phase, as shares of its line."""
    position = odometer.position(analyst, phase)
    return {"spent": position.spent / UNITS, "left": position.left / UNITS}


def promise(definition: Definition, odometer: Odometer) -> str:
    """Says what is promised to whom, and how often the rows were looked at."""
    privacy = definition.privacy
    return (
        f"epsilon {privacy.epsilon:g} at delta {privacy.delta:g} is promised to {privacy.promised_to}; "
        f"{many(odometer.looks, 'look')} at the rows so far"
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
    unit, blocks = definition.privacy.unit, odometer.blocks
    dated = any(block.since is not None for block in blocks)
    if len(blocks) > 1:
        most = share(max(block.spent for block in blocks))
        yield f"{len(blocks):,} phases are open; none has spent more than {most} of its budget"
    covers = ["covers"] if dated else []
    epsilons = "epsilon so far" if unit is None else "epsilon in this phase"
    looks = numbers(epsilons, "looks")
    table = bare_table(*covers, *numbers("phase", "rows"), "spent", *looks)
    said = [
        (share(block.spent), f"{epsilon:.3f}", f"{block.looks:,}")
        for block, epsilon in zip(blocks, epsilons_of(definition, odometer), strict=True)
    ]
    for (spent, *others), run in groupby(range(len(blocks)), key=said.__getitem__):
        first, *_, last = [*run] * 2
        some = blocks[first : last + 1]
        table.add_row(
            *([between(some[0].since, some[-1].until)] if dated else []),
            f"{first + 1}" if first == last else f"{first + 1} to {last + 1}",
            f"{sum(block.rows for block in some):,}",
            f"{spending_bar(some[0].spent, width=30)} {spent}",
            *others,
        )
    yield table
    if unit is not None:
        lost = (
            f"a person with {many(unit.rows_per_phase, 'row')} in every phase so far has lost at most "
            f"epsilon {in_every_phase(definition, odometer):.3f}"
        )
        covered = unit.lifetime or len(blocks) <= unit.phases
        promised = (
            f"the promise is about any {unit.phases:,} of these {len(blocks):,} phases in a row"
        )
        yield lost if covered else f"{lost}: {promised}"


def _memory_lines(
    definition: Definition, odometer: Odometer, constants: dict[str, object] | None
) -> Iterator[str]:
    """Yields what a profile that pays for a phase when it opens still answers."""
    if (memory := odometer.memory) is not None:
        profile = definition.mechanism.profile
        limited = "in all phases so far" if profile == "memory" else "in this phase"
        stage = f" of stage {memory.stage}" if constants and "stage" in constants else ""
        yield (
            f"{profile} profile: a phase is paid for when it opens. Phase {memory.phase}: "
            f"{memory.asked:,} of {memory.queries:,} queries{stage} asked; up to {memory.hard_limit:,} hard "
            f"answers {limited}, each with noise of scale {memory.count_scale:,.0f} rows"
        )


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
