"""Who may charge how much of each line, in words and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.table import Table

from stream_dp.cli.terminal import many
from stream_dp.cli.text.reply_text import bare_table, numbers, spending_bar
from stream_dp.client.budget.odometer import Odometer
from stream_dp.client.budget.share_position import OWNER, REST, UNITS, Holder, Position, ShareRules
from stream_dp.display.figure_text import share
from stream_dp.messages import AnalystSpec, is_pattern


def rules_table(rules: ShareRules) -> Table:
    """What is allowed to whom: the share of each line that one may charge, and what is kept."""
    table = bare_table("who", *numbers("may charge of each line", "kept", "a minute"))
    for who, (allowed, kept, pace) in _rows(rules).items():
        table.add_row(escape(who), allowed, kept, pace)
    return table


def _rows(rules: ShareRules) -> dict[str, tuple[str, str, str]]:
    """The cells of a line for each entry, by its name."""
    owner = "" if rules.owner is None else _percent(rules.owner.share)
    rows = {OWNER: (owner or _REST, owner, "")}
    for entry in rules.entries:
        spec = rules.analysts[entry]
        rows[entry] = (_allowed(entry, spec), _kept(rules.kept_for(entry)), _pace(spec))
    return {**rows, REST: ("", _percent(rules.rest), "")}


_REST = "what is kept for nobody"


def _allowed(entry: str, spec: AnalystSpec) -> str:
    if spec.owner:
        return f"as {OWNER}"
    each = " each" if is_pattern(entry) else ""
    if spec.share is not None:
        together = "" if spec.together is None else f", {_percent(spec.together)} together"
        return f"{_percent(spec.share)}{each}{together}"
    return _REST if spec.together is None else f"{_percent(spec.together)} together"


def _pace(spec: AnalystSpec) -> str:
    found = []
    if spec.queries_per_minute is not None:
        found.append(many(spec.queries_per_minute, "query"))
    if spec.spending_per_minute is not None:
        found.append(f"{_percent(spec.spending_per_minute)} of a line")
    return ", ".join(found)


def changes(before: ShareRules | None, after: ShareRules) -> Iterator[str]:
    """Yields the lines of a small diff of rules, in markup. It is empty where nothing changes."""
    old = {"everybody": ("all", "", "")} if before is None else _rows(before)
    new = _rows(after)
    if old == new:
        return
    width = max(map(len, old | new))
    for who in [*(who for who in old | new if who != REST), REST]:
        was, now = old.get(who), new.get(who)
        if was == now is not None:
            yield _line(" ", who, width, now)
            continue
        if was is not None:
            yield f"[red]{_line('-', who, width, was)}[/red]"
        if now is not None:
            yield f"[green]{_line('+', who, width, now)}[/green]"


def _line(sign: str, who: str, width: int, row: tuple[str, str, str]) -> str:
    allowed, kept, pace = row
    return f"{sign} {escape(who):<{width}}  {allowed or kept}{f'; a minute {pace}' if pace else ''}"


def says_of(rules: ShareRules, analyst: str) -> str:
    """Says what an analyst may charge, and from what it is taken."""
    entry, pool, _ = rules.rule_of(analyst)
    if not entry:
        return f"{analyst} may not ask: no entry of analysts is about this name"
    spec = rules.analysts[entry]
    if pool == REST:
        part = f"{_percent(rules.rest)} of each line that is kept for nobody"
    else:
        kept = rules.owner.share if pool == OWNER and rules.owner else rules.kept_for(entry)
        part = f"{_percent(kept or 0.0)} of each line that is kept for {pool}"
    if spec.share is None:
        return f"{analyst} may charge what is left of the {part}"
    if not is_pattern(entry):
        return f"{analyst} may charge {_percent(spec.share)} of each line, which is kept for them"
    return f"{analyst} may charge {_percent(spec.share)} of each line, out of the {part}"


def own_table(analyst: str, odometer: Odometer) -> Table:
    """What one analyst has spent of each phase, what is left to them, and what is left in all."""
    left = numbers("left to them", "left in all")
    table = bare_table(*numbers("phase", "rows"), "spent by them", *left)
    for number, block in enumerate(odometer.blocks, start=1):
        position = odometer.position(analyst, number)
        table.add_row(
            str(number),
            f"{block.rows:,}",
            f"{_bar(position, width=30)} {share(position.spent / UNITS)}",
            share(position.left / UNITS),
            share(position.whole / UNITS),
        )
    return table


def _bar(position: Position, width: int = 20) -> str:
    """A bar for what was spent of what could have been."""
    could = position.spent + position.left
    return spending_bar(position.spent / could if position.left else 1.0, width)


def shares_table(holders: Sequence[Holder]) -> Table:
    """What the owner, each entry and each analyst have spent, on the phase of which least is left to them."""
    table = bare_table("who", "may charge", "kept", "spent", *numbers("left", "on phase"))
    for holder in holders:
        beneath = holder.entry and holder.who != holder.entry
        who = f"  {holder.who}" if beneath else holder.who
        figures = ["", "", ""]
        if (worst := holder.worst) is not None:
            position = holder.positions[worst]
            spent = f"{_bar(position)} {share(position.spent / UNITS)}"
            figures = [spent, share(position.left / UNITS), str(holder.first + worst)]
        table.add_row(escape(who), _bound(holder), _kept(holder.kept), *figures)
    return table


def _bound(holder: Holder) -> str:
    if holder.pays_as_owner and holder.who != OWNER:
        return f"as {OWNER}"
    if holder.share is None:
        unlisted = not holder.entry and holder.who not in (OWNER, REST)
        return "may not ask" if unlisted else ""
    each = " each" if is_pattern(holder.who) else ""
    return f"{_percent(holder.share)}{each}"


def _kept(part: float | None) -> str:
    return "" if part is None else _percent(part)


def _percent(part: float) -> str:
    """A share as somebody wrote it, as a percentage."""
    return f"{100 * part:.10g}%"
