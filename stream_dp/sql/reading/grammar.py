"""The grammar that statements are read and shown in: standard SQL, with names in backticks too."""

from __future__ import annotations

from typing import Any, ClassVar

import sqlglot
from sqlglot import exp


class Grammar(sqlglot.Dialect):  # type: ignore[misc]
    """The grammar, as sqlglot takes it: ``sqlglot.tokenize(text, Grammar)`` and ``node.sql(Grammar)``.

    sqlglot prints warnings of its own about some functions. Here it prints none: what is not answered is
    refused in words.
    """

    STRICT_JSON_PATH_SYNTAX: ClassVar[bool] = False
    NULL_ORDERING: ClassVar[str] = "nulls_are_last"

    class Tokenizer(sqlglot.Tokenizer):  # type: ignore[misc]
        """Reads names in double quotes, as the standard has them, and in backticks, as MySQL writes them."""

        IDENTIFIERS: ClassVar[list[Any]] = ['"', "`"]

    class Parser(sqlglot.Parser):  # type: ignore[misc]
        """Reads some functions by the names that other databases have for them too."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {
            **sqlglot.Parser.FUNCTIONS,
            "STDEVP": exp.StddevPop.from_arg_list,
            "VAR": exp.Variance.from_arg_list,
            "VARP": exp.VariancePop.from_arg_list,
        }

    class Generator(sqlglot.Generator):  # type: ignore[misc]
        """Writes a piece of a statement for a message."""

        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            **sqlglot.Generator.TRANSFORMS,
            exp.ToChar: lambda self, node: self.func("TO_CHAR", node.this, node.args.get("format")),
        }

        def unsupported(self, message: str) -> None:
            """Says nothing, so that no warning is printed."""
