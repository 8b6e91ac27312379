"""``stream-dp gateway``."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stream_dp.cli.command_options import GivenServers, connected
from stream_dp.client.kafka.deployment_topics import check_reachable

if TYPE_CHECKING:
    from stream_dp.settings import GatewaySettings

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group(invoke_without_command=True)
@connected()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    envvar="STREAM_DP_GATEWAY_PORT",
    default=5433,
    help="The port on which it speaks the Postgres protocol.",
)
@click.option(
    "--bind",
    envvar="STREAM_DP_GATEWAY_BIND",
    default="127.0.0.1",
    help="The address on which it does. Others than this machine's need a certificate.",
)
@click.pass_context
def command(ctx: click.Context, connection: GivenServers, port: int, bind: str) -> None:
    """Let tools that know Postgres ask: psql, Superset, Grafana, JDBC.

    docs/tools.md shows what to type in each. docs/configuration.md has the settings for TLS and tokens.
    """
    if ctx.invoked_subcommand is not None:
        return
    from stream_dp.cli.operate.event_loop import LoopPolicy
    from stream_dp.settings import gateway_settings

    settings = gateway_settings(
        bootstrap_servers=connection.bootstrap_servers,
        topic_prefix=connection.topic_prefix,
        gateway_port=port,
        gateway_bind=bind,
    )
    check_reachable(settings.broker)
    if sys.platform != "win32":
        asyncio.set_event_loop_policy(LoopPolicy())
    with contextlib.suppress(asyncio.CancelledError):  # it was told to end
        asyncio.run(_serve(settings))


async def _serve(settings: GatewaySettings) -> None:
    """Serves until the process is told to stop."""
    from stream_dp.gateway.gateway_process import running

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "this is a coroutine"
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    async with running(settings) as server:
        click.echo(
            f"the gateway listens on {settings.gateway_bind}:{settings.gateway_port}", err=True
        )
        await server.serve_forever()


@command.command()
@click.argument("name")
@click.option(
    "--accounts",
    type=_FILE,
    envvar="STREAM_DP_GATEWAY_ACCOUNTS",
    required=True,
    help="The file of the accounts. It is made if it is not there.",
)
@click.option(
    "--token-file",
    type=_FILE,
    help="The file with the signed token under which the tool asks. You may replace it at any time.",
)
@click.password_option(help="The password.  [default: it is asked for]")
def account(name: str, accounts: Path, token_file: Path | None, password: str) -> None:
    """Give a tool that stores one password for years an account, or change it."""
    from stream_dp.gateway.accounts import write_account

    token = None if token_file is None else str(token_file.resolve())
    write_account(accounts, name, password, token)
    click.echo(
        f"{name} may log in with this password; {accounts} tells only whether one is right",
        err=True,
    )
