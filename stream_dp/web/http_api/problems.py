"""Errors as replies of the HTTP API, in the form of RFC 9457."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from aiohttp import web

from stream_dp.client import Rejection
from stream_dp.errors import InvalidInput, InvalidMessage, RequestTimeout, StreamDPError
from stream_dp.web.access import Handler
from stream_dp.web.http_api.api_documents import Problem
from stream_dp.web.page_queries import position_of

_API: Final = "/api/"
_OF_REJECTIONS: Final[Mapping[str, HTTPStatus]] = {
    "unknown_dataset": HTTPStatus.NOT_FOUND,
    "retired": HTTPStatus.NOT_FOUND,
    "id_reused": HTTPStatus.CONFLICT,
    "id_reserved": HTTPStatus.CONFLICT,
    "quarantined": HTTPStatus.SERVICE_UNAVAILABLE,
    "unauthorized": HTTPStatus.UNAUTHORIZED,
    "token_expired": HTTPStatus.UNAUTHORIZED,
    "wrong_audience": HTTPStatus.FORBIDDEN,
    "wrong_analyst": HTTPStatus.FORBIDDEN,
    "not_allowed": HTTPStatus.FORBIDDEN,
    "too_many_queries": HTTPStatus.TOO_MANY_REQUESTS,
    "sent_again_too_fast": HTTPStatus.TOO_MANY_REQUESTS,
    "spending_too_fast": HTTPStatus.TOO_MANY_REQUESTS,
}
_WORDS: Final[Mapping[int, str]] = {
    HTTPStatus.NOT_FOUND: "there is nothing at this address; /api/openapi.json lists the addresses",
    HTTPStatus.METHOD_NOT_ALLOWED: "this address takes another method; see the header Allow",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "the body is too long; send less in one request",
    HTTPStatus.REQUEST_TIMEOUT: "the body came too slowly; send it again",
}
_RETRY_AFTER_S: Final = "1"


class NotFound(StreamDPError):
    """What the address of a request names does not exist."""

    code = "not_found"


@web.middleware
async def answer_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Writes the errors of requests to the API as problems, and leaves other requests alone."""
    try:
        return await handler(request)
    except (web.HTTPException, StreamDPError) as error:
        if not request.path.startswith(_API):
            raise
        return _of_http(error) if isinstance(error, web.HTTPException) else _of_error(error)


def _of_http(error: web.HTTPException) -> web.Response:
    """Returns the problem that the server itself, or the guard of the pages, has found."""
    status = HTTPStatus(error.status)
    detail = _WORDS.get(status) or (error.text or status.phrase).strip()
    code = status.name.lower()
    retriable = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    reply = _reply(
        Problem(title=status.phrase, status=status, detail=detail, code=code, retriable=retriable)
    )
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        reply.headers["Allow"] = error.headers["Allow"]
    return reply


def _of_error(error: StreamDPError) -> web.Response:
    status = _status(error)
    facts: dict[str, str | int | bool] = {"code": error.code, "retriable": error.retriable}
    detail = str(error)
    if isinstance(error, Rejection):
        facts = {"code": error.reason.code, "retriable": error.reason.retriable}
    elif isinstance(error, InvalidInput):
        detail = f"{error.problem}; {error.fix}"
        facts |= {"code": error.reason, "field": error.field, **position_of(error)}
    problem = {"title": status.phrase, "status": status, "detail": detail, **facts}
    return _reply(Problem.model_validate(problem))


def _status(error: StreamDPError) -> HTTPStatus:
    if isinstance(error, NotFound):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, InvalidMessage):
        return _OF_REJECTIONS.get(error.reason, HTTPStatus.BAD_REQUEST)
    if isinstance(error, InvalidInput):
        return HTTPStatus.UNPROCESSABLE_ENTITY
    if isinstance(error, Rejection):
        return _OF_REJECTIONS.get(error.reason.code, HTTPStatus.UNPROCESSABLE_ENTITY)
    if isinstance(error, RequestTimeout):
        return HTTPStatus.GATEWAY_TIMEOUT
    return HTTPStatus.SERVICE_UNAVAILABLE


def _reply(problem: Problem) -> web.Response:
    reply = web.Response(
        status=problem.status,
        body=problem.model_dump_json(exclude_none=True).encode(),
        content_type="application/problem+json",
    )
    if problem.status == HTTPStatus.UNAUTHORIZED:
        reply.headers["WWW-Authenticate"] = "Bearer"
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        reply.headers["Retry-After"] = _RETRY_AFTER_S
    return reply
