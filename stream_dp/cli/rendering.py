"""Replies in words, the same wherever they are printed."""

from __future__ import annotations

import itertools

from rich.table import Table

from stream_dp.messages import Answer, Event, Rejected

__all__ = ["answer_line", "answer_table", "event_line", "rejection_line"]


def answer_line(answer: Answer) -> str:
    """One answer, refusal or quote in one line."""
    if answer.status == "refused":
        return f"refused: {answer.reason.message if answer.reason else 'without a reason'}"
    left = f"{100 * answer.budget.left:.2f}% of the budget left" if answer.budget else ""
    if answer.status == "quoted":
        cost = answer.privacy_loss.share if answer.privacy_loss else 0.0
        price = "free" if cost == 0 else f"would cost {100 * cost:.4f}% of a line"
        return f"{price} ({answer.difficulty}, {answer.path}), {left}"
    how = f"{answer.difficulty}, {answer.path}"
    if answer.table is not None:
        return f"{len(answer.table.values)} cells ({how}), {left}"
    bar = f" ± {100 * answer.error_bar:.2f}%" if answer.error_bar is not None else ", no error bar"
    assert answer.value is not None
    return (
        f"{100 * answer.value:.2f}%{bar} of {answer.n:,} rows, about {answer.count:,} "
        f"({how}), {left}"
    )


def answer_table(answer: Answer) -> Table:
    """A GROUP BY answer as a table for the terminal."""
    found = answer.table
    assert found is not None, "a table answer holds its table"
    table = Table(*found.attributes, box=None, header_style="bold")
    for name in ("share", "± error", "rows"):
        table.add_column(name, justify="right")
    for labels, value, count, bar in zip(
        itertools.product(*found.labels), found.values, found.counts, found.error_bars, strict=True
    ):
        error = "-" if bar is None else f"{100 * bar:.2f}%"
        table.add_row(*labels, f"{100 * value:.2f}%", error, f"{count:,}")
    return table


def event_line(event: Event) -> str:
    facts = [f"{event.dataset}  {event.event}"]
    if event.batch_id is not None:
        facts.append(f"batch {event.batch_id}")
    if event.rows is not None:
        facts.append(f"{event.rows:,} rows")
    if event.waiting is not None:
        facts.append(f"{event.waiting:,} waiting")
    if event.phase is not None:
        facts.append(f"phase {event.phase}")
    if event.reason is not None:
        facts.append(event.reason.message)
    return "  ".join(facts)


def rejection_line(rejected: Rejected) -> str:
    place = f"{rejected.topic}[{rejected.partition}]@{rejected.offset}"
    return f"{rejected.dataset or '-'}  rejected  {place}  {rejected.reason.message}"
