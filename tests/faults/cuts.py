"""Append-only files of the store that end at a random byte, as a crash may leave them.

Workers of the simulator write a history. It is written again to a real server, whose file is then cut, and a
fresh server starts on what is left. What it holds is compared with what the first server held after the last
step that is whole in the file. No worker runs, so a cut takes some hundredths of a second.

    python -m tests.faults.cuts --cuts 500 --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import logging
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from redis.asyncio import Redis
from stream_dp.state.local import LocalStore
from stream_dp.state.redis import RedisStore

from stream_dp.embedded.valkey import SETTINGS, find_valkey
from stream_dp.errors import StoreError
from tests.pipeline import simulator
from tests.waiting import PATIENCE_S

__all__ = ["Cuts", "History", "Step", "steps_in", "written"]

CUTS_OF_A_HISTORY = 250

_WRITES = {
    *("acquire", "commit", "commit_all", "reserve", "forget_persons", "rebuild"),
    *("note", "note_listed", "mark", "partitions", "constant", "hold"),
    *("attempts", "clear_attempts"),
}


class Step(NamedTuple):
    """Something that the file has as a whole: a command, or several between MULTI and EXEC.

    Attributes:
        end: The number of bytes of the file up to its end.
        commands: The names of its commands.
    """

    end: int
    commands: tuple[str, ...]


def steps_in(file: bytes) -> list[Step]:
    """The whole steps of an append-only file, in order."""
    found: list[Step] = []
    within: list[str] | None = None
    for end, name in _commands(file):
        if name == "MULTI":
            within = []
        elif name == "EXEC":
            assert within is not None
            found.append(Step(end, tuple(within)))
            within = None
        elif within is not None:
            within.append(name)
        elif name != "SELECT":
            found.append(Step(end, (name,)))
    return found


def _commands(file: bytes) -> Iterator[tuple[int, str]]:
    at = 0
    while at < len(file):
        first = file.index(b"\r\n", at)
        count, at, name = int(file[at + 1 : first]), first + 2, ""
        for number in range(count):
            first = file.index(b"\r\n", at)
            size = int(file[at + 1 : first])
            if number == 0:
                name = file[first + 2 : first + 2 + size].decode().upper()
            at = first + 2 + size + 2
        yield at, name


# ---------------------------------------------------------------- a history


class _Call(NamedTuple):
    """What a worker has called, and whether the store refused it."""

    name: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    refused: bool


class _Noting(LocalStore):
    """Notes every call that may write."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []

    def __getattribute__(self, name: str) -> Any:
        step = object.__getattribute__(self, name)
        if name not in _WRITES:
            return step

        async def noted(*arguments: Any, **named: Any) -> Any:
            call = copy.deepcopy(arguments), copy.deepcopy(named)
            if name == "commit_all":  # each of its commits is a step
                return [await self._one(transition) for transition in arguments[0]]
            try:
                reply = await step(*arguments, **named)
            except StoreError:
                self.calls.append(_Call(name, *call, True))
                raise
            self.calls.append(_Call(name, *call, False))
            return reply

        return noted

    async def _one(self, transition: Any) -> StoreError | None:
        try:
            await LocalStore.commit(self, transition)
        except StoreError as error:
            self.calls.append(_Call("commit", (transition,), {}, True))
            return error
        self.calls.append(_Call("commit", (transition,), {}, False))
        return None


def _calls(seed: int) -> list[_Call]:
    """What workers under a seed of the simulator have called; they crash, and others take over."""
    store = _Noting()

    async def run() -> None:
        simulation = simulator.Simulation(seed)
        simulation.world.store = store
        faults = simulation.plan.faults
        simulation.plan.faults = {
            at: fault for at, fault in faults.items() if fault in ("crash", "zombie")
        }
        said = await simulation.run()
        assert said == [], said

    patched: list[tuple[Any, str, Any]] = []

    def patch(where: Any, name: str, what: Any) -> None:
        patched.append((where, name, getattr(where, name)))
        setattr(where, name, what)

    simulator.alike(patch)
    try:
        with asyncio.Runner(loop_factory=simulator._Loop) as runner:
            runner.run(run())
    finally:
        for where, name, what in patched:
            setattr(where, name, what)
    return store.calls


@dataclass(frozen=True)
class History:
    """What a server has written, and what it held after each step.

    Attributes:
        folder: The folder of its other files.
        file: The part of the append-only file that grows.
        steps: The steps in it.
        digests: What the server held before the first step, and after each.
        said: What is wrong with the file itself.
    """

    folder: Path
    file: bytes
    steps: list[Step]
    digests: list[bytes]
    said: list[str]

    def held(self, size: int) -> bytes:
        """What a server holds that has so many bytes of the file."""
        return self.digests[bisect_right([step.end for step in self.steps], size)]


def written(folder: Path, seed: int) -> History:
    """The history of a seed, written by a real server in this folder."""
    calls = _calls(seed)
    folder.mkdir()
    with _server(folder) as ask:
        (path,) = folder.glob("appendonlydir/*.incr.aof")

        def now() -> tuple[int, bytes]:
            return path.stat().st_size, ask("DEBUG DIGEST")

        ends = asyncio.run(_called(folder / "socket", calls, now))
        file = path.read_bytes()
    (folder / "socket").unlink(missing_ok=True)
    path.unlink()
    steps = steps_in(file)
    digests = _digests(folder, file, steps)
    return History(folder, file, steps, digests, _faults(steps, digests, ends))


async def _called(
    path: Path, calls: Sequence[_Call], now: Callable[[], tuple[int, bytes]]
) -> list[tuple[int, bytes, str]]:
    """Calls a store on a server again; returns what ``now`` says after each, and its name."""
    client = Redis(unix_socket_path=str(path))
    store = RedisStore(client)
    ends: list[tuple[int, bytes, str]] = []
    for call in calls:
        try:
            await getattr(store, call.name)(*call.arguments, **call.named)
            refused = False
        except StoreError:
            refused = True
        assert refused == call.refused, f"{call.name}: the stores differ"
        ends.append((*now(), call.name))
    await client.aclose()
    return ends


def _digests(folder: Path, file: bytes, steps: Sequence[Step]) -> list[bytes]:
    """What a server holds after each step, if it is told one after the other."""
    scratch = folder.with_name(f"{folder.name}-scratch")
    scratch.mkdir()
    with _server(scratch, {"appendonly": "no"}) as ask:
        digests, begin = [ask("DEBUG DIGEST")], 0
        for step in steps:
            ask(file[begin : step.end])
            digests.append(ask("DEBUG DIGEST"))
            begin = step.end
    shutil.rmtree(scratch)
    return digests


def _faults(
    steps: Sequence[Step], digests: Sequence[bytes], ends: Sequence[tuple[int, bytes, str]]
) -> list[str]:
    """What is wrong with a file: a call ends within a step, or a commit is in several."""
    said: list[str] = []
    whole = [step.end for step in steps]
    done = 0
    for size, digest, name in ends:
        upto = bisect_right(whole, size)
        if digests[upto] != digest:
            said.append(f"after {name} the file has something else than the server")
        # The name of a data set is noted in a step of its own, before.
        mine = [one for one in steps[done:upto] if set(one.commands) != {"SADD"}]
        if name in ("commit", "reserve", "rebuild") and len(mine) > 1:
            said.append(f"{name} is in {len(mine)} steps: {mine}")
        done = upto
    return said


# ---------------------------------------------------------------- cuts


class Cuts:
    """Cuts files at random bytes.

    Args:
        folder: The folder for all files.
        seed: Chooses histories and cuts.

    Attributes:
        trials: The number of cuts.
        violations: What was wrong after one.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.trials = 0
        self.violations: list[str] = []
        self._folder = folder
        self._seed = seed
        self._choice = random.Random(seed)
        self._histories = 0

    def run(self, cuts: int) -> None:
        """Cuts the file of one more history so often."""
        seed = 1_000_000 * self._seed + self._histories
        self._histories += 1
        folder = self._folder / f"history{self._histories}"
        history = written(folder, seed)
        self.violations += [f"history {seed}: {said}" for said in history.said]
        for _ in range(cuts):
            size = self._choice.randint(0, len(history.file))
            if self._choice.random() < 0.25:  # just where a step ends, or nearly
                end = self._choice.choice(history.steps).end + self._choice.randint(-2, 2)
                size = min(end, len(history.file))
            self.trials += 1
            if said := cut(history, history.file[:size]):
                self.violations.append(f"history {seed}, cut at {size}: {said}")
        shutil.rmtree(folder)

    def report(self) -> str:
        """What was tried and found, in a line."""
        said = f"append-only file cut at a random byte: {self.trials} trials, "
        said += f"{len(self.violations)} violations"
        if self.trials and not self.violations:
            said += f", 95% bound {3 / self.trials:.2g}"
        return "\n".join([said, *self.violations])


def cut(history: History, left: bytes) -> str | None:
    """What is wrong with a server that starts on what is left of the file; None if nothing is."""
    folder = history.folder.with_name(f"{history.folder.name}-cut")
    shutil.copytree(history.folder, folder)
    (manifest,) = folder.glob("appendonlydir/*.manifest")
    (folder / "appendonlydir" / manifest.name.replace("manifest", "1.incr.aof")).write_bytes(left)
    try:
        with _server(folder) as ask:
            found = ask("DEBUG DIGEST")
    except ServerEnded as error:
        return str(error)
    finally:
        shutil.rmtree(folder)
    wanted = history.held(len(left))
    return None if found == wanted else "it holds something else than after a number of steps"


class ServerEnded(Exception):
    """A server does not start on the file."""


@contextmanager
def _server(folder: Path, changes: dict[str, str] | None = None) -> Iterator[Any]:
    """A server at a socket in a folder; ``ask(command)`` gives the last line of its reply."""
    path = folder / "socket"
    settings = {
        **SETTINGS,
        "appendfsync": "no",
        **(changes or {}),
        "port": "0",
        "unixsocket": str(path),
        "dir": str(folder),
        "enable-debug-command": "local",
        "logfile": str(folder / "log"),
    }
    del settings["bind"]
    words = [word for key, value in settings.items() for word in (f"--{key}", value)]
    process = subprocess.Popen([str(find_valkey()), *words])
    try:
        connection = _connected(process, path, folder / "log")
        with connection, connection.makefile("rb") as replies:

            def ask(command: str | bytes) -> Any:
                if isinstance(command, bytes):  # several commands as they stand in a file
                    connection.sendall(command + b"PING\r\n")
                    while (reply := replies.readline()) != b"+PONG\r\n":
                        assert not reply.startswith(b"-"), reply
                    return reply
                connection.sendall(command.encode() + b"\r\n")
                return replies.readline()

            while ask("PING") != b"+PONG\r\n":  # it reads its file
                time.sleep(0.001)
            yield ask
    finally:
        process.kill()
        process.wait()


def _connected(process: subprocess.Popen[bytes], path: Path, log: Path) -> socket.socket:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
            if process.poll() is not None or time.monotonic() > deadline:
                raise ServerEnded(f"it does not start: {log.read_text()[-500:]}") from None
            time.sleep(0.001)
        else:
            return connection


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    logging.disable()
    with tempfile.TemporaryDirectory(prefix="cuts-") as folder:
        cuts = Cuts(Path(folder), asked.seed)
        began = time.monotonic()
        while cuts.trials < asked.cuts:
            cuts.run(min(CUTS_OF_A_HISTORY, asked.cuts - cuts.trials))
            pace = cuts.trials / (time.monotonic() - began)
            print(f"{cuts.trials} of {asked.cuts} cuts, {pace:.0f} a second", flush=True)
    print(cuts.report())
    return 1 if cuts.violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
