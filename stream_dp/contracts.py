"""Describes the messages on Kafka for other languages: JSON Schemas and an AsyncAPI document."""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from stream_dp.messages import (
    ABSENT,
    ANSWERS,
    FIELDS,
    INPUTS,
    MOST_QUOTED,
    PRIVATE,
    TOPICS,
    Answer,
    Batch,
    ChangeAnalysts,
    ChangeSchema,
    ClosePhase,
    Definition,
    DimensionTable,
    Event,
    LedgerEntry,
    QueryEnvelope,
    QueryFields,
    QuotedAnswer,
    QuotedBundle,
    RefusedAnswer,
    Rejected,
    RunningTick,
    SeriesAnswer,
    SingleQuery,
    StandingQuery,
    SyntheticRows,
)

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_VERSION: Final = 1

_REQUESTS: Final[dict[str, type[BaseModel]]] = {
    "definition": Definition,
    "close": ClosePhase,
    "analysts": ChangeAnalysts,
    "schema": ChangeSchema,
    "batch": Batch,
    "query": SingleQuery,
    "queries": QueryEnvelope,
    "dimension": DimensionTable,
}
_REPLIES: Final[dict[str, type[BaseModel]]] = {
    "event": Event,
    "rejected": Rejected,
    "running": RunningTick,
    "synthetic": SyntheticRows,
    "standing": StandingQuery,
    "ledger": LedgerEntry,
}
_CHANNELS: Final[dict[str, tuple[str, ...]]] = {
    "datasets": ("definition", "close", "analysts", "schema"),
    "batches": ("batch",),
    "queries": ("query", "queries"),
    "answers": ("answer",),
    "events": ("event",),
    "rejected": ("rejected",),
    "running": ("running",),
    "catalog": ("definition",),
    "ledger": ("ledger",),
    "synthetic": ("synthetic",),
    "standing": ("standing",),
    "dimensions": ("dimension",),
}
"""The messages on each topic that clients use, by the role of the topic."""


def schemas() -> dict[str, dict[str, Any]]:
    """Returns a JSON Schema, draft 2020-12, of every message by its name.

    Example:
        >>> from stream_dp.contracts import schemas
        >>> "definition" in schemas()
        True
    """
    made = {
        name: model.model_json_schema(mode="validation")
        for name, model in (_REQUESTS | _REPLIES).items()
    }
    made["answer"] = _answer()
    made["batch"]["oneOf"] = [{"required": [form]} for form in ("rows", "columns", "cells")]
    made["batch"]["allOf"] = [_named()]
    describe_query(made["query"])
    item = QueryFields.model_json_schema(mode="validation")
    describe_query(item)
    made["queries"]["$defs"] = item.pop("$defs") | {"Query": item}
    made["queries"]["properties"]["queries"]["items"] = {"$ref": "#/$defs/Query"}
    made["queries"]["allOf"] = [_quotes_together()]
    for schema in made.values():
        _explain(schema)
    return {
        name: {"$schema": _DIALECT, "$id": f"stream-dp/{_VERSION}/{name}", **schema}
        for name, schema in made.items()
    }


def documented(model: type[BaseModel]) -> dict[str, tuple[str, str]]:
    """Returns what the docstrings of a model and its bases say of each field, and of its default.

    Args:
        model: A model of a message, or of settings.
    """
    found: dict[str, tuple[str, str]] = {}
    for base in reversed(model.__mro__):
        _, _, listed = (base.__doc__ or "").partition("Attributes:\n")
        listed, _, _ = listed.partition("\n\n")
        fields = re.findall(r"^ {8}(\w+): (.*?)(?=^ {8}\w|\s*\Z)", listed, re.MULTILINE | re.DOTALL)
        for name, text in fields:
            said, _, default = " ".join(text.replace("``", "`").split()).partition(" Default: ")
            said = said.removeprefix("`from` in JSON: ")
            found[name] = said[:1].upper() + said[1:], default.removesuffix(".")
    return {name: said for name, said in found.items() if name in model.model_fields}


def _explain(schema: dict[str, Any]) -> None:
    """Adds to each field of a schema what the docstring of its model says of it."""
    models, waiting = dict[str, type[BaseModel]](), [BaseModel]
    while waiting:
        model = waiting.pop()
        models[model.__name__] = model
        waiting += model.__subclasses__()
    for made in (schema, *schema.get("$defs", {}).values()):
        model = models.get(made.get("title", ""), BaseModel)
        said = {
            model.model_fields[name].alias or name: of for name, of in documented(model).items()
        }
        if "description" in made:
            made["description"] = made["description"].partition("\n\nAttributes:")[0].rstrip()
        for name, field in made.get("properties", {}).items():
            field.pop("title", None)
            if name in said:
                field.setdefault("description", said[name][0])


def _named() -> dict[str, Any]:
    """A batch has an id, or a producer and a number."""
    counted = ("producer", "sequence")
    return {
        "oneOf": [
            {
                "required": ["batch_id"],
                "not": {"anyOf": [{"required": [name]} for name in counted]},
            },
            {"required": [*counted], "not": {"required": ["batch_id"]}},
        ]
    }


def _answer() -> dict[str, Any]:
    """An answer of any kind, a refusal or a quote. Fields that say which of them it is tell them apart."""
    models: list[type[Answer]] = [
        *ANSWERS.values(),
        SeriesAnswer,
        QuotedAnswer,
        QuotedBundle,
        RefusedAnswer,
    ]
    refs, made = models_json_schema([(model, "validation") for model in models])
    for model in models:
        made["$defs"][model.__name__]["required"].append("status")
    for named in (QuotedBundle, SeriesAnswer):
        made["$defs"][named.__name__]["required"].append("kind")
    return {
        "title": "Answer",
        "description": "The reply to a query: `status` and `kind` say which of these it is.",
        "anyOf": [refs[model, "validation"] for model in models],
        **made,
    }


_CONDITION: Final[dict[str, Any]] = {
    "description": "One comparison of one attribute, or several put together.",
    "oneOf": [
        {
            "type": "object",
            "properties": {
                "attribute": {"type": "string"},
                **{name: {"type": ["string", "number"]} for name in ("ge", "gt", "le", "lt")},
                "eq": {"type": ["string", "number", "boolean"]},
                "in": {"type": "array", "items": {"type": ["string", "number", "boolean"]}},
                "between": {
                    "type": "array",
                    "items": {"type": ["string", "number"]},
                    "minItems": 2,
                    "maxItems": 2,
                },
                "is_missing": {"type": "boolean"},
                "is_other": {"type": "boolean"},
            },
            "required": ["attribute"],
            "minProperties": 2,
            "maxProperties": 2,
            "additionalProperties": False,
        },
        *(
            {
                "type": "object",
                "properties": {name: {"type": "array", "items": {"$ref": "#/$defs/Condition"}}},
                "required": [name],
                "additionalProperties": False,
            }
            for name in ("all", "any")
        ),
        {
            "type": "object",
            "properties": {"not": {"$ref": "#/$defs/Condition"}},
            "required": ["not"],
            "additionalProperties": False,
        },
    ],
}


def describe_query(schema: dict[str, Any]) -> None:
    """Adds to the schema of a query the rules that the model leaves to its validators and to the data set."""
    schema["$defs"]["Condition"] = _CONDITION
    condition: dict[str, Any] = {"$ref": "#/$defs/Condition"}
    schema["properties"]["where"] = {"anyOf": [condition, {"type": "null"}], "default": None}
    schema["allOf"] = _rules()


def _rules() -> list[dict[str, Any]]:
    """Returns the fields that each kind of query needs and allows."""
    rules = []
    for kind, shape in FIELDS.items():
        is_kind: dict[str, Any] = {"properties": {"kind": {"const": kind}}}
        if kind != "predicate":  # the default kind
            is_kind["required"] = ["kind"]
        then: dict[str, Any] = {
            "properties": {name: {"enum": [None, []]} for name in sorted(ABSENT[kind])},
            "required": list(shape.needs),
        }
        rules.append({"if": is_kind, "then": then})
    has_alert = {"properties": {"alert": {"type": "object"}}, "required": ["alert"]}
    stands = {"properties": {"standing": {"const": True}}, "required": ["standing"]}
    return [*rules, {"if": has_alert, "then": stands}]


def _quotes_together() -> dict[str, Any]:
    """Returns what an envelope needs and allows if it asks for a quote, and if it asks for answers."""
    return {
        "if": {"properties": {"quote": {"const": "together"}}, "required": ["quote"]},
        "then": {
            "properties": {
                "query_id": {"type": "string"},
                "at_most": {"type": "null"},
                "queries": {"maxItems": MOST_QUOTED},
            },
            "required": ["query_id"],
        },
        "else": {"properties": {"query_id": {"type": "null"}}},
    }


_WHO_ASKS: Final = {
    "type": "object",
    "properties": {
        "authorization": {
            "type": "string",
            "description": "Bearer, a blank, and the signed token of the analyst, where the deployment "
            "requires one.",
        }
    },
}
"""The headers of a record with queries."""


def asyncapi(prefix: str = "stream-dp.") -> dict[str, Any]:
    """An AsyncAPI 3.1 document: topics, keys and messages, from a client's point of view."""
    named = schemas()
    return {
        "asyncapi": "3.1.0",
        "info": {
            "title": "stream_dp",
            "version": str(_VERSION),
            "description": "Noisy answers about a growing private table. The key of every record that a "
            "client sends is the data set's name, and on the channel dimensions the table's. The partition "
            "is the one that Java's default partitioner picks (murmur2).",
        },
        "defaultContentType": "application/json",
        "channels": {
            role: {
                "address": prefix + role,
                "messages": {
                    name: {"$ref": f"#/components/messages/{name}"} for name in _CHANNELS[role]
                },
                "bindings": {
                    "kafka": {
                        "topicConfiguration": {
                            "cleanup.policy": [settings.cleanup],
                            "retention.ms": settings.retention_ms,
                            "max.message.bytes": settings.max_message_bytes,
                        }
                    }
                },
            }
            for role, settings in TOPICS.items()
            if role not in PRIVATE
        },
        "operations": {
            f"{'send' if role in INPUTS else 'receive'}-{role}": {
                "action": "send" if role in INPUTS else "receive",
                "channel": {"$ref": f"#/channels/{role}"},
            }
            for role in TOPICS
            if role not in PRIVATE
        },
        "components": {
            "messages": {
                name: {
                    "name": name,
                    "contentType": "application/json",
                    "payload": {"$ref": f"#/components/schemas/{name}"},
                    "bindings": {"kafka": {"key": {"type": "string"}}},
                    **({"headers": _WHO_ASKS} if name in _CHANNELS["queries"] else {}),
                }
                for name in named
            },
            "schemas": {
                full_name: part
                for name, schema in named.items()
                for full_name, part in components(name, schema).items()
            },
        },
    }


def components(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a schema and its definitions, each under a name that is unique in the whole document."""

    def moved(node: Any) -> Any:
        if isinstance(node, dict):
            return {
                key: inner.replace("#/$defs/", f"#/components/schemas/{name}.")
                if key == "$ref"
                else moved(inner)
                for key, inner in node.items()
                if not (key == "discriminator" and "mapping" in inner)  # OpenAPI's form of it
            }
        return [moved(inner) for inner in node] if isinstance(node, list) else node

    own = {key: inner for key, inner in schema.items() if key not in {"$schema", "$id", "$defs"}}
    parts = {f"{name}.{part}": inner for part, inner in schema.get("$defs", {}).items()}
    return {full_name: moved(part) for full_name, part in {name: own, **parts}.items()}
