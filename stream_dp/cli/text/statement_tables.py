"""Statements at the terminal: their JSON and their prices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias

from rich.table import Table
from rich.text import Text

from stream_dp.cli.text.reply_text import bundle_lines
from stream_dp.client import Refusal, Rejection, ResultTable
from stream_dp.client.statements.statement import Statement
from stream_dp.display.price_words import NOTHING_ASKED
from stream_dp.messages import QuotedBundle

Unasked: TypeAlias = Refusal | Rejection
"""Why a statement has no table."""


def in_json(found: ResultTable | Unasked) -> str:
    """What a statement gives, as JSON: its answer if that says all, or else its table."""
    said = found.rejected if isinstance(found, Rejection) else found.answer
    if said is not None:
        return said.to_bytes().decode()
    assert isinstance(found, ResultTable), "a refusal is an answer"
    return json.dumps(found.to_document(), ensure_ascii=False)


def quoted_lines(
    quote: QuotedBundle | None, statements: Sequence[tuple[str, Statement]]
) -> list[Text | Table]:
    """A quote for statements at length.

    Args:
        quote: The quote. None if nothing is asked.
        statements: The position of each statement, and the statement.
    """
    if quote is None:
        return [Text(NOTHING_ASKED)]
    names = []
    for position, one in statements:
        written, n = " ".join(one.text.split()), len(one.items)
        names += [
            (position, written if n == 1 else f"{written} ({i} of {n})") for i in range(1, n + 1)
        ]
    return bundle_lines(quote, names)
