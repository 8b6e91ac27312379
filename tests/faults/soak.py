"""Random faults of real workers, stores and brokers, while clients ask without pause.

``make soak`` runs many rounds. Each has topics and data sets of its own, and some faults one after the other.
A fault comes at a random moment, and the next one when the clients have gone on. At the end of a round the
referee of the fault tests reads every topic: it knows nothing of the faults.

    python -m tests.faults.soak --rounds 20 --seed 7
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from stream_dp.embedded import jars, ports
from stream_dp.embedded.folders import cache_folder
from stream_dp.embedded.kafka import KafkaServer
from stream_dp.embedded.progress import Silent
from stream_dp.embedded.server import EmbeddedServer
from stream_dp.errors import StreamDPError
from stream_dp.pipeline.fuse import CrashPoint
from tests.conftest import Deployment, WorkerProcess
from tests.faults.conftest import Life
from tests.faults.disks import SmallDisk, may_mount
from tests.faults.replicas import Node, Replicas

__all__ = ["Soak", "main"]

FAULTS_IN_ROUND = 6
PATIENCE_S = 240.0
_STORE_MB = 256
_BROKER_MB = 1_024
_POINTS = [
    point
    for point in CrashPoint
    if point not in (CrashPoint.IN_ERASURE, CrashPoint.BEFORE_RESERVE, CrashPoint.AFTER_RESERVE)
]


class _Clients:
    """Clients that open one phase after the other and ask about it, whatever fails meanwhile."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.done = 0

    def _ask(self) -> None:
        while not self._stop.is_set():
            try:
                with self._life.deployment.client() as client:
                    self._life.define(client)
                    while not self._stop.is_set():
                        self._life.phase(client, self.done + 1)
                        self.done += 1
            except StreamDPError:
                time.sleep(0.5)  # the same ids again: what was answered stays

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class Soak:
    """Rounds of faults on servers of their own.

    Args:
        folder: The folder of all data and logs.
        seed: Chooses the faults and their moments. What the processes do meanwhile differs from run to run.

    Attributes:
        trials: Fault -> seconds from each until clients had another phase answered.
        violations: What the referee has found, with the faults of its round.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.trials: dict[str, list[float]] = defaultdict(list)
        self.violations: list[str] = []
        self._folder = folder
        self._choice = random.Random(seed)
        self._kafka = KafkaServer(
            folder / "kafka",
            jars.resolve(cache_folder(os.environ), Silent()),
            log=folder / "kafka.log",
        )
        self._rounds = 0
        self._open = contextlib.ExitStack()
        self._disk: SmallDisk | None = None  # the broker's

    def __enter__(self) -> Self:
        if may_mount():
            self._disk = self._open.enter_context(SmallDisk(self._folder / "kafka", _BROKER_MB))
        self._open.enter_context(self._kafka)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def round(self, n_faults: int = FAULTS_IN_ROUND) -> None:
        """Some faults in random order, then the referee."""
        self._rounds += 1
        folder = self._folder / f"round{self._rounds}"
        folder.mkdir()
        behind_sentinel = self._rounds % 3 == 0
        with contextlib.ExitStack() as opened:
            disks = {} if self._disk is None else {"broker": self._disk}
            if not behind_sentinel and may_mount():
                disks["store"] = opened.enter_context(SmallDisk(folder / "store", _STORE_MB))
            store, url = opened.enter_context(self._store(folder, behind_sentinel))
            deployment = Deployment(
                self._kafka.bootstrap_servers, url, f"soak{self._rounds}.", folder, partitions=2
            )
            one = _Round(self._choice, deployment, self._kafka, store, disks)
            try:
                said = one.run(n_faults)
            except AssertionError as error:
                said = [str(error)[-2_000:]]
            finally:
                deployment.close()
        for fault, seconds in one.trials:
            self.trials[fault].append(seconds)
        if said:
            self.violations.append(
                f"round {self._rounds}, {[fault for fault, _ in one.trials]}: {said}"
            )
        else:
            shutil.rmtree(folder)

    @contextlib.contextmanager
    def _store(self, folder: Path, behind_sentinel: bool) -> Iterator[tuple[Any, str]]:
        settings = {"appendfsync": "everysec"}
        if behind_sentinel:
            with Replicas(folder / "store", settings) as replicas:
                yield replicas, replicas.url
        else:
            with Node(folder / "store", ports.choose("a store", None), settings) as node:
                yield node, node.url

    def report(self) -> str:
        """What was tried and found, as text."""
        count = sum(map(len, self.trials.values()))
        lines = [f"{'fault':44}{'trials':>8}{'median s':>10}{'longest s':>11}"]
        for fault, seconds in sorted(self.trials.items()):
            middle = sorted(seconds)[len(seconds) // 2]
            lines.append(f"{fault:44}{len(seconds):8}{middle:10.1f}{max(seconds):11.1f}")
        lines.append(f"{count} trials, {len(self.violations)} violations")
        if count and not self.violations:
            lines[-1] += f", 95% bound {3 / count:.2g}"
        return "\n".join([*lines, *self.violations])


class _Round:
    """The faults of one round. Seconds are from a fault until another phase was answered."""

    def __init__(
        self,
        choice: random.Random,
        deployment: Deployment,
        kafka: KafkaServer,
        store: Node | Replicas,
        disks: Mapping[str, SmallDisk],
    ) -> None:
        self.trials: list[tuple[str, float]] = []
        self._choice = choice
        self._deployment = deployment
        self._kafka = kafka
        self._store = store
        self._disks = disks
        self._life = Life(deployment, ["flights", "trains"])
        self._workers: list[WorkerProcess] = []
        self._copies: list[Path] = []

    def run(self, n_faults: int) -> list[str]:
        """Runs it; returns what the referee says.

        Raises:
            AssertionError: Clients do not go on after a fault.
        """
        self._worker()
        with _Clients(self._life) as clients:
            self._goes_on(clients)
            for _ in range(n_faults):
                self._copy()
                time.sleep(self._choice.uniform(0.0, 1.5))
                fault = self._choice.choice(self._faults())
                began = time.monotonic()
                fault(self)
                self._goes_on(clients)
                said = fault.__doc__ or fault.__name__
                self.trials.append((said.rstrip("."), time.monotonic() - began))
        if isinstance(self._store, Replicas):
            self._deployment.redis_url = self._store.primary.url
        self._life.phases = clients.done
        self._life.wait_until_released(self._revived())
        for worker in self._workers:
            worker.kill()
        return self._life.complaints()

    def _faults(self) -> list[Callable[[_Round], None]]:
        """The faults that there can be in this round, the likelier ones several times."""
        of_stores = self._of_replicas if isinstance(self._store, Replicas) else self._of_node
        faults = [*self._of_workers, *self._of_brokers, *of_stores]
        return [*faults, *(self._of_disks[server] for server in self._disks)]

    def _goes_on(self, clients: _Clients) -> None:
        """Waits until a phase that begins after this is answered; revives workers as a supervisor does."""
        wanted = clients.done + 2
        deadline = time.monotonic() + PATIENCE_S
        while clients.done < wanted:
            worker = self._revived()
            assert time.monotonic() < deadline, f"clients wait for ever\n{worker.output}"
            time.sleep(0.05)

    def _worker(self, **settings: object) -> WorkerProcess:
        name = f"worker{len(self._workers)}" if "crash_at" in settings else "one"
        self._workers.append(self._deployment.worker(instance_id=name, **settings))
        return self._workers[-1]

    def _revived(self) -> WorkerProcess:
        if all(worker.exit_code is not None for worker in self._workers):
            time.sleep(self._choice.uniform(0.0, 0.5))
            self._worker()
        return self._workers[-1]

    def _data(self) -> Path:
        assert isinstance(self._store, Node)
        return self._store._folder

    def _copy(self) -> None:
        """A copy of the store while it runs, as a backup takes it."""
        if isinstance(self._store, Node):
            self._copies.append(self._data().with_name(f"copy{len(self._copies)}"))
            but = shutil.ignore_patterns("filler")
            shutil.copytree(self._data(), self._copies[-1], ignore=but)

    # ------------------------------------------------------------ workers

    def _kill(self) -> None:
        """Worker killed."""
        for worker in self._workers:
            worker.kill()

    def _kill_at_a_point(self) -> None:
        """Worker killed at a named point."""
        self._kill()
        point = self._choice.choice(_POINTS)
        worker = self._worker(crash_at=f"{point}:{self._choice.randint(1, 12)}")
        deadline = time.monotonic() + 20
        while worker.exit_code is None and time.monotonic() < deadline:
            time.sleep(0.05)
        worker.kill()

    def _zombie(self) -> None:
        """Worker stopped, followed by another, and woken."""
        sleeper = self._revived()
        sleeper.signal(signal.SIGSTOP)
        self._deployment.worker(instance_id="two")
        self._workers.append(self._deployment._workers[-1])
        time.sleep(self._choice.uniform(6.0, 9.0))
        sleeper.signal(signal.SIGCONT)
        time.sleep(self._choice.uniform(0.0, 3.0))
        sleeper.kill()

    def _storm(self) -> None:
        """Workers join and leave."""
        for number in range(3):
            self._workers.append(self._deployment.worker(instance_id=f"storm{number}"))
            time.sleep(self._choice.uniform(0.5, 3.0))
        for worker in self._workers[-3:-1]:
            worker.signal(self._choice.choice([signal.SIGTERM, signal.SIGKILL]))
            time.sleep(self._choice.uniform(0.0, 1.0))

    _of_workers = (_kill, _kill, _kill_at_a_point, _kill_at_a_point, _zombie, _storm)

    # ------------------------------------------------------------ brokers

    def _kill_broker(self) -> None:
        """Broker killed."""
        _killed(self._kafka)
        time.sleep(self._choice.uniform(0.0, 2.0))
        _again(self._kafka)

    _of_brokers = (_kill_broker,)

    # ------------------------------------------------------------ one store

    def _kill_store(self) -> None:
        """Store killed."""
        self._changed(lambda: None)

    def _older_copy(self) -> None:
        """Store replaced by an older copy."""

        def older() -> None:
            _clear(self._data())
            shutil.copytree(self._choice.choice(self._copies), self._data(), dirs_exist_ok=True)

        self._changed(older)

    def _emptied(self) -> None:
        """Store emptied."""
        self._changed(lambda: _clear(self._data()))

    def _cut(self) -> None:
        """End of the store's file cut off."""

        def cut() -> None:
            (file,) = self._data().glob("appendonlydir/*.incr.aof")
            size = file.stat().st_size
            os.truncate(file, max(0, size - self._choice.randint(1, max(1, size // 2))))

        self._changed(cut)

    def _changed(self, change: Callable[[], object]) -> None:
        assert isinstance(self._store, Node)
        self._store.kill()
        change()
        self._store.start()

    _of_node = (_kill_store, _older_copy, _older_copy, _emptied, _cut)

    # ------------------------------------------------------------ disks

    def _full_disk_of_the_broker(self) -> None:
        """Disk of the broker full."""
        self._full("broker")
        _killed(self._kafka)  # unless it has ended of it
        _again(self._kafka)

    def _full_disk_of_the_store(self) -> None:
        """Disk of the store full."""
        assert isinstance(self._store, Node)
        self._full("store")
        if self._store.failure() is not None:
            self._store.stop()
            self._store.start()

    def _full(self, server: str) -> None:
        self._disks[server].fill()
        time.sleep(self._choice.uniform(1.0, 6.0))
        self._disks[server].make_room()

    _of_disks: ClassVar = {"broker": _full_disk_of_the_broker, "store": _full_disk_of_the_store}

    # ------------------------------------------------------------ a store with a replica

    def _promotion(self) -> None:
        """Primary killed, replica that lags promoted."""
        assert isinstance(self._store, Replicas)
        self._store.lag(True)
        time.sleep(self._choice.uniform(0.0, 3.0))
        self._store.promote()
        self._store.come_back()

    def _split(self) -> None:
        """Primary frozen, replica promoted, primary woken."""
        assert isinstance(self._store, Replicas)
        self._store.wait_in_sync()
        self._store.promote(freeze=True)
        self._store.come_back()

    _of_replicas = (_promotion, _promotion, _split)


def _clear(folder: Path) -> None:
    """Removes what is in a folder. The folder stays, as a disk may be mounted there."""
    for one in folder.iterdir():
        shutil.rmtree(one) if one.is_dir() else one.unlink()


def _killed(server: EmbeddedServer) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGKILL)
    server.stop()


def _again(server: EmbeddedServer) -> None:
    server._given = server.port
    server.start()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, default=Path("build/soak.txt"))
    asked = parser.parse_args(arguments)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    with Soak(folder, asked.seed) as soak:
        for number in range(1, asked.rounds + 1):
            soak.round()
            trials = sum(map(len, soak.trials.values()))
            print(
                f"round {number} of {asked.rounds}: {trials} faults, {len(soak.violations)} violations, "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
            asked.report.parent.mkdir(exist_ok=True)
            asked.report.write_text(soak.report() + "\n", encoding="utf-8")
    print(soak.report())
    if not soak.violations:
        shutil.rmtree(folder)
        return 0
    print(f"data and logs are in {folder}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
