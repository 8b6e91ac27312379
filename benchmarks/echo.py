"""The baseline of ``stream.py``: a bare Faust agent that sends every value on. Not part of the product."""

from __future__ import annotations

import sys
from typing import Any

import faust

BOOTSTRAP_SERVERS, SOURCE, TARGET, DATA_DIR, WEB_PORT = sys.argv[1:6]
sys.argv = sys.argv[:1]

app = faust.App(
    "echo",
    broker=f"kafka://{BOOTSTRAP_SERVERS}",
    datadir=DATA_DIR,
    web_port=int(WEB_PORT),
    web_bind="127.0.0.1",
    topic_disable_leader=True,
    value_serializer="raw",
)
source = app.topic(SOURCE, key_type=bytes, value_type=bytes, value_serializer="raw")
target = app.topic(TARGET, key_type=bytes, value_type=bytes, value_serializer="raw")


@app.agent(source)  # type: ignore[untyped-decorator]
async def echo(stream: Any) -> None:
    async for event in stream.events():
        await target.send(key=event.key, value=event.value)


faust.Worker(app, loglevel="error", redirect_stdouts=False).execute_from_commandline()
