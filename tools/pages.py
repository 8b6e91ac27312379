"""Generates the pages of docs/ that follow from the code: ``make pages``.

People write the text of ``messages.md``. This module writes, in place, the tables behind comments such as
``<!--fields:Batch-->``: the lines up to the next blank one.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from stream_dp.cli import GROUPS, root
from stream_dp.contracts import documented
from stream_dp.messages import ANSWERS, DATASET_PATTERN, FIELDS, KindsSpec, NoisyAnswer
from stream_dp.messages.message_base import (
    DATE_PATTERN,
    ID_PATTERN,
    PRODUCER_PATTERN,
    Reply,
    Request,
)
from stream_dp.settings import GatewaySettings, ServerSettings, WorkerSettings

_DOCS = Path(__file__).parents[1] / "docs"


def configuration() -> str:
    """All settings of a worker and of a gateway: what they mean, what they accept, and their defaults."""
    of_worker = _rows(WorkerSettings, WorkerSettings.model_fields)
    of_gateway = _rows(
        GatewaySettings, GatewaySettings.model_fields.keys() - ServerSettings.model_fields
    )
    return f"""\
# Configuration

`stream-dp worker` reads these environment variables.
An option of the command takes precedence over its variable.
If you set neither the Kafka nor the Redis address, the worker uses the servers that `stream-dp up` started.
The worker of `stream-dp up` reads none of them.
To set one, run `stream-dp up --no-worker` and then `stream-dp worker`.

|variable|default|accepts|meaning|
|---|---|---|---|
{of_worker}

`stream-dp gateway` reads those of Kafka, the topics and identity, and:

|variable|default|accepts|meaning|
|---|---|---|---|
{of_gateway}

The other [commands](commands.md) read `STREAM_DP_KAFKA_*` and the variables that match their own options:
`STREAM_DP_BOOTSTRAP_SERVERS`, `STREAM_DP_REDIS_URL`, `STREAM_DP_TOPIC_PREFIX` and `STREAM_DP_STATE_DIR`.
The last one is the folder of the servers that `stream-dp up` started.
For a Redis Cluster, set `STREAM_DP_REDIS_CLUSTER` too.
Python's `Client()` and `AsyncClient()` read the same variables if you give them no address.
`make pages` generates this page from the code.
"""


def _rows(settings: type[ServerSettings], names: Collection[str]) -> str:
    """The lines of a table of settings, whose meanings and defaults stand in docstrings."""
    said = documented(settings)
    rows = []
    for name, field in settings.model_fields.items():
        if name in names:
            meaning, default = said[name]
            shown = default or _default(field)
            about = meaning.removesuffix(".")
            rows.append(f"|`STREAM_DP_{name.upper()}`|{shown}|{_accepted(field)}|{about}|")
    return "\n".join(rows)


def _default(field: FieldInfo) -> str:
    if field.default is None:
        return "none"
    text = str(field.default)
    return f"`{text.lower() if isinstance(field.default, bool) else text.removesuffix('.0')}`"


def _accepted(field: FieldInfo) -> str:
    if bounds := {type(bound).__name__: bound for bound in field.metadata}:
        low, high = bounds["Ge"].ge, bounds["Le"].le if "Le" in bounds else None
        return f"a number, at least {low}" if high is None else f"a number, {low} to {high}"
    if field.annotation is bool:
        return "`true`, `false`"
    if choices := [choice for choice in get_args(field.annotation) if isinstance(choice, str)]:
        return ", ".join(f"`{choice}`" for choice in choices)
    return "secret text" if SecretStr in get_args(field.annotation) else "text"


def commands() -> str:
    """Lists every command in its group, with what it does and some examples."""
    sections = "\n".join(
        f"## {title}\n\n{chr(10).join(_listed(group))}\n\n```sh\n{chr(10).join(EXAMPLES[title])}\n```\n"
        for title, group in GROUPS.items()
    )
    return f"""\
# Commands

`stream-dp COMMAND --help` explains the options of a command.
Those for Kafka and Redis have [variables](configuration.md) too.
Without them, commands find the servers that `stream-dp up` started.
The exit code is 0 if the command succeeded, 1 if it failed and printed why, 2 if the command line was wrong.

{sections}
`make pages` generates this page from the code.
"""


EXAMPLES = {
    "Use": (
        "stream-dp ingest people.csv --close",
        'stream-dp ask people "SELECT city, AVG(income) GROUP BY city WITHIN 500 COSTING AT MOST 5%"',
        "stream-dp ask people smoker --since 2026-11-01 --until 2026-12-01 --series day",
    ),
    "Automate": (
        "stream-dp ask people smoker --window 1 --standing --id smokers --alert-above 0.2",
        "stream-dp dashboard apply flights tiles.json --prune",
        "stream-dp watch people --json",
    ),
    "Operate": (
        "stream-dp worker --source orders.json --log-format json",
        "stream-dp journal repair --partition 3",
    ),
    "Research": ("stream-dp lab tracing --out plots",),
}
"""Lines to copy, for each group of commands."""


def _listed(group: Mapping[str, str]) -> Iterator[str]:
    """Says what each command of a group does. Commands below another one say so in their own help."""
    above = click.Context(root)
    for name, said in group.items():
        command = root.get_command(above, name)
        assert command is not None, "the groups name commands that exist"
        if not isinstance(command, click.Group):
            yield _item(command, name, said)
            continue
        for part in command.list_commands(above):
            below = command.get_command(above, part)
            assert below is not None, "a group lists the commands that it has"
            said, _, _ = inspect.cleandoc(below.help or "").partition("\n\n")
            yield _item(below, f"{name} {part}", " ".join(said.split()))


def _item(command: click.Command, name: str, said: str) -> str:
    pieces = command.collect_usage_pieces(click.Context(command))
    return f"- `{' '.join([name, *pieces]).replace(' [OPTIONS]', '')}`: {said}"


_REGION = re.compile(r"^<!--(fields|queries|kind):(\S+)-->\n(?:.+\n)*", re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+)$")
_EXPLAINED_ONCE = {"version", "dataset"}
_MARKS = {"type", "profile", "kind", "status"}
"""Fields that tell models apart, each with one value in each model."""
_ENDS = ("low", "high", "lows", "highs")
_REPEATED = ("attribute", "other", "rank", "up_to")
_USUAL = {"where", "error", "at_most"}
_BAR = re.compile(r"The half width around `\w+`\.")
_MOST_CHOICES = 10
_LINE = "line (a block's privacy budget)"
_PATTERNS = {
    DATASET_PATTERN: "name",
    ID_PATTERN: "id",
    PRODUCER_PATTERN: "name",
    DATE_PATTERN: "date",
}


def message_page() -> str:
    """Writes the tables of ``messages.md`` again, and leaves the text around them as it is.

    ``fields:A,B`` is one table of the fields of all these models. ``fields:A+B`` lists the fields of B in
    place of the field of A that holds one. ``fields:A-x,y`` leaves out fields that examples or schemas
    explain well enough. ``queries:all`` says which fields each kind of query has, and ``kind:sum`` what
    the answers of a kind have.
    """
    return _MessagePage((_DOCS / "messages.md").read_text()).written()


class _MessagePage:
    """Fills the tables of the page about messages.

    Attributes:
        places: The anchor of the section that lists the fields of each model.
        listed: The models whose fields the page has listed so far.
        explained: The fields of answers that the page has explained so far, with what it said of them.
    """

    def __init__(self, page: str) -> None:
        self.page = page
        self.places: dict[str, str] = {}
        self.listed: list[type[BaseModel]] = []
        self.explained: set[tuple[str, str]] = set()
        anchor = ""
        for line in page.splitlines():
            if heading := _HEADING.match(line):
                anchor = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            elif line.startswith("<!--fields:"):
                self.places.update(dict.fromkeys(re.findall(r"[A-Z]\w+", line), anchor))

    def written(self) -> str:
        return _REGION.sub(self._filled, self.page)

    def _filled(self, match: re.Match[str]) -> str:
        what, names = match[1], match[2]
        if what == "fields":
            names, _, left_out = names.partition("-")
            listed, _, inner = names.partition("+")
            text = self._fields(
                [_MODELS[name] for name in listed.split(",")],
                set(inner.split(",")) - {""},
                left_out.split(",") if left_out else [],
            )
        elif what == "kind":
            text = self._kind(names)
        else:
            text = _queries()
        return f"<!--{what}:{match[2]}-->\n{text}\n"

    def _fields(
        self, models: Sequence[type[BaseModel]], held: set[str], left_out: Sequence[str]
    ) -> str:
        """Makes a table of the fields of some models. It says which of them have a field if not all do."""
        rows: dict[str, list[str]] = {}
        owners: dict[str, list[str]] = {}
        for model in models:
            for name, cells in self._rows(model, held):
                owners.setdefault(name, []).append(_label(model))
                rows.setdefault(name, cells)
        for name, labels in owners.items():
            if len(labels) < len(models) and all(labels):
                those = ", ".join(f"`{label}`" for label in labels)
                rows[name][-1] = f"{those}: {rows[name][-1]}"
        for name in left_out:
            del rows[name]
        self.listed += models
        asked = all(issubclass(model, Request) for model in models)
        titles = ["field", "type", "default", "meaning"] if asked else ["field", "meaning"]
        return _table(titles, rows.values())

    def _rows(
        self, model: type[BaseModel], inner: set[str], prefix: str = "", *, optional: bool = False
    ) -> Iterator[tuple[str, list[str]]]:
        """Yields the fields of a model, with the cells of their rows."""
        schema = model.model_json_schema()
        for name, field in model.model_fields.items():
            shape = schema["properties"][field.alias or name]
            marks = "const" in shape and name in _MARKS
            if name in _EXPLAINED_ONCE or marks or self._is_listed(model, name):
                continue
            held, several = _reference(shape)
            if held in inner:
                inner.discard(held)
                yield from self._rows(
                    _MODELS[held],
                    inner,
                    f"{prefix}{name}{several}.",
                    optional=optional or not field.is_required(),
                )
                continue
            meaning, default = _said(model, name)
            cells = [f"`{prefix}{field.alias or name}`"]
            if issubclass(model, Request):  # a reply says by itself of which type a field is
                cells += [self._type(shape), _default_of(field, default, optional=optional)]
            yield prefix + name, [*cells, meaning]

    def _is_listed(self, model: type[BaseModel], name: str) -> bool:
        """Returns whether the page has listed a field of a base, with the same meaning, for another model."""
        return any(
            issubclass(other, base) and _said(base, name) == _said(model, name)
            for other in self.listed
            for base in model.__mro__[1:]
            if issubclass(base, BaseModel) and name in base.model_fields
        )

    def _kind(self, kind: str) -> str:
        """Makes a table of what the answers of a kind have."""
        model = ANSWERS[kind]
        rows, repeated, known, ends = [], [], [], []
        for name in model.model_fields:
            if name in NoisyAnswer.model_fields:
                continue
            meaning, _ = _said(model, name)
            if meaning.startswith("Always None"):
                continue
            if kind != "between" and (name.rpartition("_")[2] in _ENDS or _BAR.fullmatch(meaning)):
                ends.append(name)
            elif name in _REPEATED:
                repeated.append(name)
            elif (name, meaning) in self.explained:
                known.append(name)
            else:
                self.explained.add((name, meaning))
                rows.append([f"`{name}`", meaning])
        if repeated:
            rows.insert(0, [_named(repeated), "As in the query."])
        if known:
            rows.append([_named(known), "As above."])
        if ends:
            rows.append([_named(ends), "[Bars and ends](#which-bar-to-use)."])
        if f"{kind}_by_group" in ANSWERS:
            meaning = f"With `group_by`: lists, in a `{kind}_by_group`."
            rows.append(["`table`", meaning])
        return _table(["field", "meaning"], rows)

    def _type(self, shape: Mapping[str, Any]) -> str:
        """Says in a few words what a JSON Schema accepts."""
        if "$ref" in shape:
            name, _ = _reference(shape)
            return f"[object](#{self.places[name]})" if name in self.places else "object"
        for several in ("anyOf", "oneOf"):
            if several in shape:
                forms = [self._type(one) for one in shape[several] if one != {"type": "null"}]
                linked = [form for form in forms if form != "object"] or forms
                return " or ".join(dict.fromkeys(linked))
        if "const" in shape:
            return f"`{json.dumps(shape['const'])}`"
        if len(shape.get("enum", ())) > _MOST_CHOICES:  # the page lists them with their meaning
            return "text"
        if "enum" in shape:
            return ", ".join(f"`{one}`" for one in shape["enum"])
        if shape.get("type") == "array":
            if "prefixItems" in shape:
                return f"two {self._type(shape['prefixItems'][0])}s"
            most = f", at most {shape['maxItems']:,}" if "maxItems" in shape else ""
            inner = f" of {self._type(shape['items'])}" if shape.get("items") else ""
            return f"list{inner}{most}"
        if "additionalProperties" in shape and (held := shape["additionalProperties"]) is not True:
            return f"object of {self._type(held)}s"
        return _plain_type(shape)


def _reference(shape: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the name of the one model that a JSON Schema is about, and ``[]`` if it is about a list."""
    forms = [one for one in shape.get("anyOf", [shape]) if one != {"type": "null"}]
    form = forms[0] if len(forms) == 1 else {}
    several = "[]" if form.get("type") == "array" else ""
    return str(form.get("items", form).get("$ref", "")).rpartition("/")[2], several


def _plain_type(shape: Mapping[str, Any]) -> str:
    kind = shape.get("type")
    if kind == "string":
        return _PATTERNS.get(shape.get("pattern", ""), "text")
    if kind in {"integer", "number"}:
        return str(kind)  # a refusal says the bounds, and so do the schemas
    return {"boolean": "boolean", "object": "object"}.get(str(kind), "any value")


def _said(model: type[BaseModel], name: str) -> tuple[str, str]:
    """Returns what the docstrings of a model and its bases say of a field, and of its default."""
    try:
        meaning, default = documented(model)[name]
    except KeyError:
        raise LookupError(f"the docstring of {model.__name__} says nothing of {name}") from None
    return meaning.replace(_LINE, "line"), default


def _default_of(field: FieldInfo, said: str, *, optional: bool) -> str:
    """Returns the default of a field. One in an object that may be left out is not required."""
    if said or field.is_required():
        return said or ("" if optional else "required")
    value = field.default
    if value is None or value == () or isinstance(value, BaseModel) or field.default_factory:
        return ""
    return f"`{json.dumps(value)}`"


def _label(model: type[BaseModel]) -> str:
    """Returns the word in a message that stands for a model."""
    for name in ("type", "profile"):
        if name in model.model_fields:
            return str(get_args(model.model_fields[name].annotation)[0])
    kinds = {get_args(field.annotation)[0]: name for name, field in KindsSpec.model_fields.items()}
    return kinds.get(model, "")


def _named(names: Sequence[str]) -> str:
    """Lists names in a sentence."""
    if not names:
        return ""
    *others, last = [f"`{name}`" for name in names]
    return f"{', '.join(others)} and {last}" if others else last


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"|{'|'.join(line)}|" for line in lines)


def _queries() -> str:
    """Makes a table of the fields that each kind of query needs, and of those that it may have.

    Kinds that may have all usual fields come first, and the page says so in a sentence.
    """
    rows, others = list[list[str]](), list[list[str]]()
    for kind, shape in FIELDS.items():
        usual = {*shape.may_have} >= _USUAL
        more = [name for name in shape.may_have if not (usual and name in _USUAL)]
        (rows if usual else others).append([f"`{kind}`", _named(shape.needs), _named(more)])
        assert not (usual and others), "kinds that may have all usual fields come first"
    return _table(["`kind`", "needs", "may have"], rows + others)


def _models() -> dict[str, type[BaseModel]]:
    """All models of messages by name."""
    found: dict[str, type[BaseModel]] = {}
    waiting: list[type[BaseModel]] = [Request, Reply]
    while waiting:
        model = waiting.pop()
        found[model.__name__] = model
        waiting += model.__subclasses__()
    return found


_MODELS = _models()

PAGES = {
    "configuration.md": configuration,
    "commands.md": commands,
    "messages.md": message_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (_DOCS / name).write_text(page())
