"""The OpenAPI document is true of the server: programs made from it send and get what it says."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from schemathesis.core.failures import FailureGroup

from stream_dp.web.access import Access
from stream_dp.web.http_api.api import Api
from stream_dp.web.http_api.openapi import Operation, openapi, operations_of
from tests.client.world_client import WorldSession
from tests.web.in_process import InProcess
from tests.web.site import Server

OPERATIONS = operations_of(Api)


def for_generation() -> dict[str, Any]:
    """The document without the rules between fields of a query, of which schemathesis can make nothing."""
    document = copy.deepcopy(openapi(OPERATIONS))
    _, message = document["components"]["schemas"]["query"]["oneOf"]
    del message["allOf"]
    return document


SCHEMA = schemathesis.openapi.from_dict(for_generation())
CHECKED: Any = CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
    ]
)
(REJECTS,) = CHECKS.get_by_names(["negative_data_rejection"])
CASES = [
    pytest.param(one, mode, id=f"{one.name}-{mode.value}")
    for one in OPERATIONS
    for mode in GenerationMode
    if one.reply != "stream"  # it has no end
    if "{" in one.path or mode is GenerationMode.POSITIVE  # otherwise there is nothing to get wrong
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of the API on a worker of this process, in a thread of its own."""
    served = InProcess(WorldSession()).fill()

    async def app() -> web.Application:
        return served.app(Access("127.0.0.1", 6066))

    server = Server(app)
    server.start()
    yield server.url
    server.close()
    served.session.end()


def cases(path: str, method: str, mode: GenerationMode) -> Any:
    return SCHEMA[path][method].as_strategy(generation_mode=mode)


@pytest.mark.parametrize(("operation", "mode"), CASES)
def test_every_reply_is_one_that_the_document_announces(
    url: str, operation: Operation, mode: GenerationMode
) -> None:
    checks = CHECKED if mode is GenerationMode.POSITIVE else [*CHECKED, REJECTS]

    @settings(
        max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(case=cases(operation.path, operation.method, mode))
    def check(case: Any) -> None:
        if "dataset" in (case.path_parameters or {}) and mode is GenerationMode.POSITIVE:
            case.path_parameters["dataset"] = "flights"
        response = case.call(base_url=url)
        too_long = (
            response.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        )  # rejected, in another way
        case.validate_response(response, checks=CHECKED if too_long else checks)

    check()


def test_a_status_that_the_document_does_not_announce_is_noticed(url: str) -> None:
    document = openapi(OPERATIONS)
    path = "/api/v1/datasets/{dataset}/budget"
    operation = document["paths"][path]["get"]
    responses = {status: one for status, one in operation["responses"].items() if status != "404"}
    broken = {**document, "paths": {path: {"get": {**operation, "responses": responses}}}}
    case = schemathesis.openapi.from_dict(broken)[path]["GET"].Case(
        path_parameters={"dataset": "none"}
    )
    with pytest.raises(FailureGroup, match="Undocumented status code"):
        case.call_and_validate(base_url=url, checks=CHECKED)


def test_every_schema_is_one() -> None:
    for schema in openapi(OPERATIONS)["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_the_page_names_every_address() -> None:
    page = (Path(__file__).parents[2] / "docs/tools.md").read_text()
    named = set(re.findall(r"^- `(GET|POST|DELETE) ?([\w/{}]*)`", page, re.MULTILINE))
    start = "/api/v1/datasets"
    short = {"{dataset}": "NAME", "{query_id}": "QUERY_ID"}
    for one in OPERATIONS:
        path = one.path.removeprefix(start)
        for parameter, word in short.items():
            path = path.replace(parameter, word)
        assert (one.method, path) in named, one.path
    assert len(named) == len(OPERATIONS)
