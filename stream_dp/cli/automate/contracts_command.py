"""``stream-dp contracts``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from stream_dp.contracts import asyncapi, schemas


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--topic-prefix", default="stream-dp.", help="The prefix of all topic names.")
def command(folder: Path, topic_prefix: str) -> None:
    """Write JSON Schemas of all messages, an AsyncAPI and an OpenAPI document into FOLDER."""
    from stream_dp.web.http_api.api import Api
    from stream_dp.web.http_api.openapi import openapi, operations_of

    folder.mkdir(parents=True, exist_ok=True)
    documents = {f"{name}.schema.json": schema for name, schema in schemas().items()}
    documents["asyncapi.json"] = asyncapi(topic_prefix)
    documents["openapi.json"] = openapi(operations_of(Api))
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    click.echo(f"wrote {len(documents)} files to {folder}")
