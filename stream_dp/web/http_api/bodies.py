"""Reads the body of a request, with limits on its size and on the time it takes."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

LARGEST: Final = 65_536
"""The most bytes of a body."""

_PATIENCE_S: Final = 10.0


async def read_body(request: web.Request) -> bytes:
    """Returns the body of a request that says it is JSON. A form of another site cannot send this type.

    Raises:
        HTTPException: The type is another one, the body is too long or too slow, or it cannot be unpacked.
    """
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="send application/json\n")
    if (request.content_length or 0) > LARGEST:
        raise web.HTTPRequestEntityTooLarge(LARGEST, request.content_length or 0)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            body = await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    except web.RequestPayloadError:
        raise web.HTTPBadRequest(text="the body cannot be unpacked; send it again\n") from None
    if len(body) > LARGEST:
        raise web.HTTPRequestEntityTooLarge(LARGEST, len(body))
    return body
