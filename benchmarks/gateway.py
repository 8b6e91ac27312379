"""Compares the Postgres port with the client, and times 50 busy connections beside 1,000 idle ones.

    python benchmarks/gateway.py [--statements 200] [--seconds 10]

Everything in one run, on one broker. *Latency*: `Client.sql` and the port ask new statements in turn, and the
port asks each of its own again. *Load*: connections are encrypted; the busy ones ask statements that were
answered before. The load generator shares the cores with what it loads. Memory is what is resident, on Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import ssl
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import uvloop
from rich.console import Console
from rich.table import Table
from system import System, running_system

from stream_dp.client import Client
from stream_dp.embedded import ports
from stream_dp.samples import FLIGHTS_DEFINITION, flights

IDLE, BUSY = 1_000, 50
ROWS = 20_000
NAME = FLIGHTS_DEFINITION["dataset"]
MOST_MIB, LEAST_RATE, MOST_ADDED_MS = 100, 1_000, 10.0
PATIENCE_S = 60.0


def statements() -> Iterator[str]:
    """Statements that were not asked before."""
    values = {one["name"]: one for one in FLIGHTS_DEFINITION["attributes"]}
    (carrier, origin) = (values[name]["values"] for name in ("carrier", "origin"))
    for first in carrier:
        for second in carrier:
            for third in origin:
                if first < second:
                    yield (
                        f"SELECT COUNT(*) AS n FROM {NAME} WHERE carrier IN ('{first}', '{second}') "
                        f"AND origin = '{third}'"
                    )


@contextmanager
def running_gateway(system: System) -> Iterator[tuple[int, int]]:
    """The port and the process of a gateway with a certificate."""
    certificate, key = system.folder / "certificate.pem", system.folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=server"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    port = ports.choose("the gateway", None)
    settings = {
        "STREAM_DP_BOOTSTRAP_SERVERS": system.addresses.bootstrap_servers,
        "STREAM_DP_GATEWAY_CERT_FILE": str(certificate),
        "STREAM_DP_GATEWAY_KEY_FILE": str(key),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "stream_dp", "gateway", "--port", str(port)],
        env={**os.environ, **settings},
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + PATIENCE_S
        while not ports.accepts(port):
            assert process.poll() is None, "the gateway ended"
            assert time.monotonic() < end, "the gateway does not start"
            time.sleep(0.05)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1000.0 * (time.perf_counter() - began)


def latencies(client: Client, port: int, n: int) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of new statements by the client and by the port, and of the latter asked again."""
    by_client, by_port, again = [], [], []
    url = f"postgresql://bench@127.0.0.1:{port}/stream_dp?sslmode=require"
    fresh = statements()
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(n):
            text = next(fresh)
            by_client.append(timed(lambda text=text: client.sql(text)))  # type: ignore[misc]
            text = next(fresh)
            ask = lambda text=text: connection.execute(text).fetchall()  # noqa: E731
            by_port.append(timed(ask))
            again.append(timed(ask))
    return by_client, by_port, again


class Busy:
    """A connection of bytes that asks one statement again and again."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.n = 0

    @classmethod
    async def opened(cls, port: int, tls: ssl.SSLContext) -> Busy:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack("!ii", 8, 80877103))
        assert await reader.readexactly(1) == b"S"
        await writer.start_tls(tls)
        body = b"user\0bench\0database\0stream_dp\0\0"
        writer.write(struct.pack("!ii", len(body) + 8, 3 << 16) + body)
        found = cls(reader, writer)
        await found._until_ready()
        return found

    async def _until_ready(self) -> bytes:
        kinds = b""
        while kinds[-1:] != b"Z":
            head = await self._reader.readexactly(5)
            await self._reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
            kinds += head[:1]
        return kinds

    async def ask(self, text: str, until: float) -> None:
        message = text.encode() + b"\0"
        message = b"Q" + struct.pack("!i", len(message) + 4) + message
        while time.monotonic() < until:
            self._writer.write(message)
            assert b"D" in await self._until_ready()
            self.n += 1

    def close(self) -> None:
        self._writer.close()


async def load(port: int, pid: int, seconds: float) -> tuple[float, float, float]:
    """MiB with idle connections alone, MiB at the end, and statements a second."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    opened = []
    for _ in range(0, IDLE + BUSY, 10):
        opened += await asyncio.gather(*(Busy.opened(port, tls) for _ in range(10)))
    idle = resident_mib(pid)
    asked = list(statements())[:BUSY]
    await asyncio.gather(*(one.ask(text, 0.0) for one, text in zip(opened, asked, strict=False)))
    busy = opened[:BUSY]
    for one, text in zip(busy, asked, strict=True):
        await one.ask(text, time.monotonic() + 0.001)
    before, began = sum(one.n for one in busy), time.monotonic()
    await asyncio.gather(
        *(one.ask(text, began + seconds) for one, text in zip(busy, asked, strict=True))
    )
    rate = (sum(one.n for one in busy) - before) / (time.monotonic() - began)
    found = idle, resident_mib(pid), rate
    for one in opened:
        one.close()
    return found


def resident_mib(pid: int) -> float:
    """The resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(found.split()[1]) / 1024


def catalogs_mib(pid: int) -> float:
    """The resident memory of the process of the catalogs."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return resident_mib(int(child))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--statements", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    console = Console()
    with running_system(console) as system:
        with system.client() as client:
            client.define({**FLIGHTS_DEFINITION})
            columns = {name: column[:ROWS] for name, column in flights().columns.items()}
            client.send(NAME, columns=columns)
        with running_gateway(system) as (port, pid), system.client() as client:
            begun, catalogs = resident_mib(pid), catalogs_mib(pid)
            by_client, by_port, again = latencies(client, port, given.statements)
            idle, end, rate = uvloop.run(load(port, pid, given.seconds))
    table = Table("", "figure", "wanted", "reached")
    added = statistics.median(by_port) - statistics.median(by_client)

    def row(name: str, figure: str, wanted: str = "", *, reached: bool | None = None) -> None:
        table.add_row(name, figure, wanted, "" if reached is None else "yes" if reached else "no")

    row("Client.sql, new, median", f"{statistics.median(by_client):.1f} ms")
    row("the port, new, median", f"{statistics.median(by_port):.1f} ms")
    row(
        "  more than the client",
        f"{added:.1f} ms",
        f"<= {MOST_ADDED_MS:g} ms",
        reached=added <= MOST_ADDED_MS,
    )
    row("the port, again, median", f"{statistics.median(again):.2f} ms")
    row("memory at the start", f"{begun:.0f} MiB, and {catalogs:.0f} of the catalogs")
    row(
        f"  with {IDLE:,} idle, {BUSY} waiting",
        f"{idle:.0f} MiB, {1024 * (idle - begun) / (IDLE + BUSY):.0f} KiB each",
    )
    row("  at the end", f"{end:.0f} MiB", f"<= {MOST_MIB} MiB", reached=end <= MOST_MIB)
    row(
        f"repeats by {BUSY} of them",
        f"{rate:,.0f} a second",
        f">= {LEAST_RATE:,}",
        reached=rate >= LEAST_RATE,
    )
    console.print(table)


if __name__ == "__main__":
    main()
