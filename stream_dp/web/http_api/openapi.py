"""The OpenAPI document of the HTTP API, generated from the models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from stream_dp.contracts import components, describe_query, schemas
from stream_dp.messages import (
    DATASET_PATTERN,
    QueryFields,
    QuotedAnswer,
    QuotedBundle,
    RefusedAnswer,
)
from stream_dp.messages.message_base import ID_PATTERN
from stream_dp.web.http_api.api_documents import (
    DatasetBudget,
    DatasetList,
    NothingAsked,
    Pending,
    Problem,
    QueryList,
    SqlQuery,
    SqlStatement,
    StandingEnded,
    StandingList,
    StatementTable,
)

LONGEST_WAIT_S: Final = 60.0
"""The longest time for which a request waits for an answer."""

DATASET: Final = "/api/v1/datasets/{dataset}"
_MARK: Final = "operation"
_OWN: Final[dict[str, type[BaseModel]]] = {
    "pending": Pending,
    "datasets": DatasetList,
    "budget": DatasetBudget,
    "standing-queries": StandingList,
    "standing-ended": StandingEnded,
    "problem": Problem,
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the API.

    Attributes:
        name: The name of the operation. ``Api`` has a method of this name.
        path: The path, with its parameters in braces.
        summary: What the caller gets.
        reply: The schema of the reply, by name.
        body: The schema of the body, by name. None for GET.
        deletes: Whether it takes DELETE.
        waits: Whether the caller may choose how long to wait, and may get a pending reply.
        problems: The statuses of the problems, next to those that every operation can have.
    """

    name: str
    path: str
    summary: str
    reply: str
    body: str | None = None
    deletes: bool = False
    waits: bool = False
    problems: tuple[int, ...] = ()

    @property
    def method(self) -> str:
        """The method of HTTP, in capitals."""
        if self.deletes:
            return "DELETE"
        return "GET" if self.body is None else "POST"


OF_QUERIES: Final = (404, 408, 413, 415, 422, 429, 503, 504)
"""The statuses of problems that operations with a body can have."""

_Method = TypeVar("_Method", bound=Callable[..., object])


def operation(
    path: str,
    reply: str,
    body: str | None = None,
    *,
    problems: tuple[int, ...],
    deletes: bool = False,
    waits: bool = False,
) -> Callable[[_Method], _Method]:
    """Makes a method of ``Api`` an operation. Its docstring says what the caller gets."""

    def mark(method: _Method) -> _Method:
        summary = " ".join((method.__doc__ or "").split())
        found = Operation(method.__name__, path, summary, reply, body, deletes, waits, problems)
        setattr(method, _MARK, found)
        return method

    return mark


def operations_of(api: type) -> tuple[Operation, ...]:
    """Returns the operations of ``Api``, in the order of its methods."""
    return tuple(getattr(method, _MARK) for method in vars(api).values() if hasattr(method, _MARK))


def openapi(operations: Sequence[Operation]) -> dict[str, Any]:
    """Returns the OpenAPI 3.1 document."""
    itself, said = _content({"type": "object"}), "This document."
    described = _described("openapi", said, {"200": {"description": said, "content": itself}})
    paths: dict[str, dict[str, Any]] = {"/api/openapi.json": {"get": described}}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    parts = [components(name, schema) for name, schema in _schemas().items()]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "stream_dp",
            "version": "1",
            "description": "Differentially private answers about a growing private table. A refusal is a "
            "reply with the status 200 and the field `status`: the request was served.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {name: part for some in parts for name, part in some.items()},
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The analysts' or the operators' token. Without tokens, which is the "
                    "default on a loopback address, everybody on the machine may ask. Where queries need a "
                    "signed token, that of the analyst.",
                }
            },
        },
    }


def _schemas() -> dict[str, dict[str, Any]]:
    """Returns the schema of each body and reply. Queries and answers are those of the messages."""
    messages = schemas()
    made = {name: messages[name] for name in ("definition", "answer", "standing")}
    made |= {name: model.model_json_schema(mode="serialization") for name, model in _OWN.items()}
    made["statement"] = SqlStatement.model_json_schema()
    made["table"] = _either(StatementTable, RefusedAnswer)
    made["query"] = _query()
    made["queries"] = QueryList.model_json_schema()
    made["queries"]["properties"]["queries"]["items"] = {"$ref": "#/components/schemas/query"}
    made["quote"] = _either(QuotedAnswer, RefusedAnswer)
    made["quote-table"] = _either(QuotedBundle, RefusedAnswer, NothingAsked)
    made["quote-together"] = _either(QuotedBundle, RefusedAnswer)
    return made


def _query() -> dict[str, Any]:
    """Returns the schema of a query: the fields of a message, whose id may be omitted, or SQL."""
    fields = QueryFields.model_json_schema(mode="validation")
    describe_query(fields)
    for name in ("quote", "standing"):
        fields["properties"].pop(name)
    fields["required"].remove("query_id")
    in_sql = SqlQuery.model_json_schema(mode="validation")
    parts = fields.pop("$defs") | in_sql.pop("$defs")
    return {"title": "Query", "oneOf": [in_sql, fields], "$defs": parts}


def _either(*models: type[BaseModel]) -> dict[str, Any]:
    made = [model.model_json_schema(mode="validation") for model in models]
    parts = {name: part for one in made for name, part in one.pop("$defs", {}).items()}
    for one in made:
        one["required"] = sorted({*one["required"], "status"})
    return {"oneOf": made, "$defs": parts}


def _operation(one: Operation) -> dict[str, Any]:
    made = _described(one.name, one.summary, _responses(one))
    if parameters := _parameters(one):
        made["parameters"] = parameters
    if one.body is not None:
        made["requestBody"] = {"required": True, "content": _json(one.body)}
    return made


def _described(name: str, summary: str, responses: dict[str, Any]) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "responses": responses}


def _responses(one: Operation) -> dict[str, Any]:
    events = _content({"type": "string"}, "text/event-stream")
    content = events if one.reply == "stream" else _json(one.reply)
    made: dict[str, Any] = {"200": {"description": one.summary, "content": content}}
    if one.waits:
        made["202"] = {
            "description": "The answer is not there yet. `Location` is its address.",
            "headers": {"Location": {"schema": {"type": "string"}}},
            "content": _json("pending"),
        }
    problem = {
        "description": "The request was not served.",
        "content": _json("problem", "application/problem+json"),
    }
    statuses = sorted({400, 401, 403, 421, *one.problems})
    return made | {str(status): problem for status in statuses}


def _parameters(one: Operation) -> list[dict[str, Any]]:
    patterns = {"dataset": DATASET_PATTERN, "query_id": ID_PATTERN}
    made: list[dict[str, Any]] = []
    for name, pattern in patterns.items():
        if f"{{{name}}}" in one.path:
            schema: dict[str, Any] = {"type": "string", "pattern": pattern}
            made.append({"name": name, "in": "path", "required": True, "schema": schema})
    if one.waits:
        wait = {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT_S}
        schema = {**wait, "default": 0 if one.body is None else 20}
        said = "The seconds to wait for the answer."
        made.append({"name": "timeout", "in": "query", "description": said, "schema": schema})
    return made


def _content(schema: dict[str, Any], form: str = "application/json") -> dict[str, Any]:
    return {form: {"schema": schema}}


def _json(name: str, form: str = "application/json") -> dict[str, Any]:
    return _content({"$ref": f"#/components/schemas/{name}"}, form)
