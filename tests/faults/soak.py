"""Random faults of real workers, brokers and Redis servers, while clients ask without pause.

``make soak`` runs many rounds. Each has topics and data sets of its own, and some faults one after the other.
A fault comes at a random moment, and the next one when the clients have gone on. In between Redis is away for
a third of the time. At the end of a round the referee of the fault tests reads every topic: it knows nothing
of the faults. Kinds of faults of which more are wanted come more often.

Before the rounds come schedules of the simulator, which need no worker process.

What was tried is added up in a file, ``tried.json`` beside this one by default. A change that mends what a
soak has found takes the counts of that kind out of it, so that they say what the code of today has passed.

    python -m tests.faults --minutes 60 --seed 7
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from redis import Redis

from stream_dp.embedded import jars, ports
from stream_dp.embedded.embedded_server import EmbeddedServer
from stream_dp.embedded.folders import cache_folder
from stream_dp.embedded.jars import Silent
from stream_dp.embedded.kafka_server import KafkaServer
from stream_dp.errors import StreamDPError
from stream_dp.messages import INPUTS, PRIVATE
from stream_dp.pipeline.repair.witnesses import WITNESSES
from stream_dp.pipeline.watch.crash_points import CrashPoint
from tests.conftest import Deployment
from tests.faults.brokers import Brokers
from tests.faults.conftest import Life
from tests.faults.disks import SmallDisk, may_mount
from tests.faults.replicas import KEEPS, Node, Replicas
from tests.faults.tally import Pace, Tally
from tests.pipeline import simulator
from tests.waiting import PATIENCE_S
from tests.workers import WorkerProcess

FAULTS_IN_ROUND = 6
_OFFSETS = "__consumer_offsets"
_REDIS_MB = 256
_BROKER_MB = 1_024
_DIES_WITHIN_S = 30.0
_ROUND_BYTES = (60_000, 400_000)  # of rounds of checkpoints
_SELDOM = (
    *(CrashPoint.BEFORE_KEEP, CrashPoint.AFTER_KEEP, CrashPoint.IN_PHASE),
    *(CrashPoint.BEFORE_CHECKPOINT, CrashPoint.AFTER_CHECKPOINT),
    *(CrashPoint.BEFORE_TRUNCATION, CrashPoint.AFTER_TRUNCATION),
)


def at_point(point: CrashPoint) -> str:
    """The name of the kind of fault."""
    return f"worker killed at {point}"


OF_A_NODE: Final = {
    "worker killed": 100,
    "broker killed": 100,
    "worker stopped, followed by another, and woken": 50,
    "workers join and leave": 50,
    "Redis killed": 50,
    "Redis replaced by an older copy": 100,
    "Redis emptied": 100,
    "end of Redis' file cut off": 25,
    "wrong bytes in Redis": 50,
    "Redis without room": 50,
    "disk of the broker full": 25,
    "disk of Redis full": 25,
}
"""How many trials are wanted of faults of servers. Those of workers and brokers come with replicas too."""

OF_REPLICAS: Final = {
    "primary killed, replica that lags promoted": 50,
    "primary frozen, replica promoted, primary woken": 50,
}

OF_BROKERS: Final = {
    "leader of three brokers killed": 100,
    "leader of three brokers frozen, followed by another, and woken": 100,
}
"""Which leads a partition of a topic that the worker reads or writes, or of the offsets of groups."""

POINTS: Final = {at_point(point): 50 for point in CrashPoint if point is not CrashPoint.IN_ERASURE}

ROUNDS: Final = {"a node": OF_A_NODE, "replicas": OF_REPLICAS, "brokers": OF_BROKERS}
"""The sorts of rounds, by the servers: one of each; Redis with a replica; three brokers."""

SERVERS: Final = OF_A_NODE | OF_REPLICAS | OF_BROKERS | POINTS

SCHEDULE: Final = "schedule of several faults (simulator)"

WANTED: Final = {
    **SERVERS,
    SCHEDULE: 100_000,
}

LEAST_ANSWERED: Final = 0.999


TRIED: Final = Path(__file__).with_name("tried.json")


class _Clients:
    """Clients that open one phase after the other and ask about it, whatever fails meanwhile.

    Attributes:
        done: The number of phases that are there and answered.
    """

    def __init__(self, life: Life, pace: Pace) -> None:
        self._life = life
        self._pace = pace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.done = 0

    def _ask(self) -> None:
        while not self._stop.is_set():
            try:
                with self._life.deployment.client() as client:
                    client.ask = self._pace.counted(client.ask)
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


class _Outages:
    """Takes Redis away for a third of the time, now by kill -9, now by letting it stand still.

    Attributes:
        lock: Held while Redis is away, and by others who change it.
    """

    def __init__(self, redis: Node, choice: random.Random, pace: Pace) -> None:
        self.lock = threading.Lock()
        self._redis = redis
        self._choice = random.Random(choice.random())
        self._pace = pace
        self._over = threading.Event()
        self._counted = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while True:
            away_s = self._choice.uniform(1.0, 6.0)
            if self._over.wait(2 * away_s):
                return
            with self.lock, self._away():
                self._pace.redis_is_there = False
                self._over.wait(away_s)
            self._pace.redis_is_there = True

    @contextlib.contextmanager
    def _away(self) -> Iterator[None]:
        if self._choice.random() < 0.5:
            self._redis.kill()
            yield
            self._redis.start()
        else:
            os.kill(self._redis.pid, signal.SIGSTOP)
            yield
            os.kill(self._redis.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        self._counted.enter_context(self._pace.outages())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._counted.close()


class Soak:
    """Rounds of faults on servers of their own.

    Args:
        folder: The folder of all data and logs.
        seed: Chooses the faults and their moments. What the processes do meanwhile differs from run to run.

        tally: Where trials and violations are counted.
    """

    def __init__(self, folder: Path, seed: int, tally: Tally) -> None:
        self._tally = tally
        self._folder = folder
        self._choice = random.Random(seed)
        self._jars = jars.resolve(cache_folder(os.environ), Silent())
        self._kafka = KafkaServer(
            folder / "kafka",
            self._jars,
            log=folder / "kafka.log",
        )
        self._rounds = 0
        self._open = contextlib.ExitStack()
        self._disk: SmallDisk | None = None  # the broker's
        self._brokers: Brokers | None = None  # three, once they are needed

    def __enter__(self) -> Self:
        if may_mount():
            self._disk = self._open.enter_context(SmallDisk(self._folder / "kafka", _BROKER_MB))
        self._open.enter_context(self._kafka)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def round(self, kinds: Sequence[str] = (), *, of: str = "") -> None:
        """Some faults in random order, then the referee.

        Args:
            kinds: The faults. Without them, some of which more are wanted.
            of: The sort of round, see ``ROUNDS``. Without it, one of which more is wanted.
        """
        self._rounds += 1
        folder = self._folder / f"round{self._rounds}"
        folder.mkdir()
        if not of:
            left = {sort: sum(map(self._tally.left, kinds)) for sort, kinds in ROUNDS.items()}
            # A round has few faults of its own sort, but for those of one node.
            weights = [n * (1 if sort == "a node" else 3) for sort, n in left.items()]
            (of,) = self._choice.choices([*left], weights) if any(weights) else ("a node",)
        with contextlib.ExitStack() as opened:
            kafka = self._three() if of == "brokers" else self._kafka
            disks = {"broker": self._disk} if self._disk and kafka is self._kafka else {}
            if of != "replicas" and may_mount():
                disks["Redis"] = opened.enter_context(SmallDisk(folder / "redis", _REDIS_MB))
            redis, url = opened.enter_context(self._redis(folder, of == "replicas"))
            deployment = Deployment(
                kafka.bootstrap_servers,
                url,
                f"soak{self._rounds}.",
                folder,
                partitions=2,
                replication=3 if of == "brokers" else 1,
            )
            one = _Round(self._choice, deployment, kafka, redis, disks, self._tally.pace)
            try:
                said = one.run(iter(kinds) if kinds else self._wanted(one))
            except AssertionError as error:
                said = [str(error)[-2_000:]]
            finally:
                deployment.close()
        for kind, seconds in one.trials:
            self._tally.tried(kind, seconds)
        tried = [kind for kind, _ in one.trials]
        if said:
            tried += [one.under_way] if one.under_way else []
            self._tally.broken(tried, f"round {self._rounds} in {folder}, {tried}: {said}")
        else:
            shutil.rmtree(folder)

    def _three(self) -> Brokers:
        """Three brokers, for all rounds that need them."""
        if self._brokers is None:
            self._brokers = Brokers(self._folder / "brokers", self._jars)
            self._open.callback(self._brokers.stop)
            self._brokers.start()
        return self._brokers

    def _wanted(self, one: _Round) -> Iterator[str]:
        """The faults of a round, chosen by how many trials are still wanted."""
        kinds = list(one.faults())
        now = dict.fromkeys(kinds, 0)
        for _ in range(FAULTS_IN_ROUND):
            weights = [
                max(self._tally.left(kind) - now[kind], 0.5)
                * (1 if kind in OF_A_NODE | POINTS else 25)
                for kind in kinds  # no other round has faults of replicas, or of several brokers
            ]
            (kind,) = self._choice.choices(kinds, weights)
            now[kind] += 1
            yield kind

    @contextlib.contextmanager
    def _redis(self, folder: Path, behind_sentinel: bool) -> Iterator[tuple[Any, str]]:
        if behind_sentinel:
            with Replicas(folder / "redis", KEEPS) as replicas:
                yield replicas, replicas.url
        else:
            with Node(folder / "redis", ports.choose("Redis", None), KEEPS) as node:
                yield node, node.url


class _Round:
    """The faults of one round. Seconds are from a fault until another phase was answered.

    Attributes:
        trials: The kinds of the faults that were tried, and the seconds of each.
        under_way: The kind of the fault that is being tried.
    """

    def __init__(
        self,
        choice: random.Random,
        deployment: Deployment,
        kafka: KafkaServer | Brokers,
        redis: Node | Replicas,
        disks: Mapping[str, SmallDisk],
        pace: Pace,
    ) -> None:
        self.trials: list[tuple[str, float]] = []
        self.under_way = ""
        self._choice = choice
        self._deployment = deployment
        self._kafka = kafka
        self._redis = redis
        self._disks = disks
        self._pace = pace
        self._outages = _Outages(redis, choice, pace) if isinstance(redis, Node) else None
        retention = choice.choice([{}, {"retention": {"answers": {"days": 30}}}])
        self._life = Life(deployment, ["flights", "trains"], **retention)
        self._round_bytes = choice.randint(*_ROUND_BYTES)
        self._workers: list[WorkerProcess] = []
        self._copies: list[Path] = []

    def run(self, kinds: Iterator[str]) -> list[str]:
        """Runs it; returns what the referee says.

        Raises:
            AssertionError: Clients do not go on after a fault.
        """
        faults = self.faults()
        self._worker()
        with self._outages or contextlib.nullcontext(), _Clients(self._life, self._pace) as clients:
            self._goes_on(clients)
            for kind in kinds:
                self._copy()
                with self._pace.quiet():
                    time.sleep(self._choice.uniform(0.0, 6.0))
                began, self.under_way = time.monotonic(), kind
                tried = faults[kind]()
                self._goes_on(clients)
                kind = kind if tried is None else tried
                self.trials.append((kind, time.monotonic() - began))
                self.under_way = ""
        self._life.phases = clients.done
        worker = self._revived()
        self._life.wait_until_released(worker)
        self._life.wait_until_followed(worker)
        for worker in self._workers:
            worker.kill()
        return self._life.complaints()

    def faults(self) -> dict[str, Callable[[], str | None]]:
        """The faults that there can be in this round. Each returns another kind if it became another."""
        found: dict[str, Callable[[], str | None]] = {
            "worker killed": self._kill,
            "worker stopped, followed by another, and woken": self._zombie,
            "workers join and leave": self._storm,
        }
        if isinstance(self._kafka, Brokers):
            killed, frozen = OF_BROKERS
            found |= {killed: self._kill_leader, frozen: self._freeze_leader}
        else:
            found["broker killed"] = self._kill_broker
        if isinstance(self._redis, Replicas):
            found |= {
                "primary killed, replica that lags promoted": self._promotion,
                "primary frozen, replica promoted, primary woken": self._split,
            }
        else:
            found |= {
                "Redis killed": self._kill_redis,
                "Redis replaced by an older copy": self._older_copy,
                "Redis emptied": self._empty,
                "end of Redis' file cut off": self._cut,
                "wrong bytes in Redis": self._spoil,
                "Redis without room": self._no_room,
            }
        found |= {
            at_point(point): partial(self._kill_at, point)
            for point in CrashPoint
            if at_point(point) in POINTS
        }
        if "broker" in self._disks:
            found["disk of the broker full"] = self._full_disk_of_the_broker
        if "Redis" in self._disks:
            found["disk of Redis full"] = self._full_disk_of_redis
        return found

    def _goes_on(self, clients: _Clients) -> None:
        """Waits until a phase that begins after this is answered; revives workers as a supervisor does."""
        wanted = clients.done + 2
        deadline = time.monotonic() + PATIENCE_S
        while clients.done < wanted:
            worker = self._revived()
            assert time.monotonic() < deadline, f"clients wait for ever\n{worker.output}"
            time.sleep(0.05)

    def _worker(self, **settings: object) -> WorkerProcess:
        """A worker. Mostly it has the name of the one before, and so its partitions at once."""
        is_new = "crash_at" in settings and self._choice.random() < 0.25
        name = f"worker{len(self._workers)}" if is_new else "one"
        self._workers.append(
            self._deployment.worker(instance_id=name, round_bytes=self._round_bytes, **settings)
        )
        return self._workers[-1]

    def _revived(self) -> WorkerProcess:
        if all(worker.exit_code is not None for worker in self._workers):
            time.sleep(self._choice.uniform(0.0, 0.5))
            self._worker()
        return self._workers[-1]

    def _data(self) -> Path:
        assert isinstance(self._redis, Node)
        return self._redis._folder

    def _copy(self) -> None:
        """A copy of Redis while it runs, as a backup takes it."""
        if isinstance(self._redis, Node):
            self._copies.append(self._data().with_name(f"copy{len(self._copies)}"))
            but = shutil.ignore_patterns("filler", "temp-*")
            shutil.copytree(self._data(), self._copies[-1], ignore=but)

    # ------------------------------------------------------------ workers

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()

    def _kill_at(self, point: CrashPoint) -> str | None:
        self._kill()
        often = point not in _SELDOM
        times = self._choice.randint(1, 12 if often else 3)
        worker = self._worker(crash_at=f"{point}:{times}")
        deadline = time.monotonic() + _DIES_WITHIN_S
        while worker.exit_code is None and time.monotonic() < deadline:
            time.sleep(0.05)
        met = worker.exit_code == -signal.SIGKILL
        worker.kill()
        return None if met else "worker killed"

    def _zombie(self) -> None:
        sleeper = self._revived()
        sleeper.signal(signal.SIGSTOP)
        self._workers.append(self._deployment.worker(instance_id="two"))
        time.sleep(self._choice.uniform(6.0, 9.0))
        sleeper.signal(signal.SIGCONT)
        time.sleep(self._choice.uniform(0.0, 3.0))
        sleeper.kill()

    def _storm(self) -> None:
        for number in range(3):
            self._workers.append(self._deployment.worker(instance_id=f"storm{number}"))
            time.sleep(self._choice.uniform(0.5, 3.0))
        for worker in self._workers[-3:-1]:
            worker.signal(self._choice.choice([signal.SIGTERM, signal.SIGKILL]))
            time.sleep(self._choice.uniform(0.0, 1.0))

    # ------------------------------------------------------------ brokers

    def _kill_broker(self) -> None:
        assert isinstance(self._kafka, KafkaServer)
        _killed(self._kafka)
        time.sleep(self._choice.uniform(0.0, 2.0))
        _again(self._kafka)

    def _kill_leader(self) -> None:
        brokers, number, topic = self._leader()
        brokers.kill(number)
        self._led_by_another(brokers, number, topic)
        brokers.start(number)
        self._whole_again(brokers)

    def _freeze_leader(self) -> None:
        """It wakes as one that does not know yet that another one leads."""
        brokers, number, topic = self._leader()
        brokers.signal(number, signal.SIGSTOP)
        self._led_by_another(brokers, number, topic)
        brokers.signal(number, signal.SIGCONT)
        self._whole_again(brokers)

    def _led_by_another(self, brokers: Brokers, number: int, topic: str) -> None:
        """Waits until the others go on without a broker, and then for a moment."""
        brokers.wait_in_sync(topic, set(brokers.numbers) - {number})
        time.sleep(self._choice.uniform(0.0, 2.0))

    def _leader(self) -> tuple[Brokers, int, str]:
        """The leader of a partition, and the topic."""
        assert isinstance(self._kafka, Brokers)
        roles = (*INPUTS, *PRIVATE, *WITNESSES)
        topics = [*map(self._deployment.topics.name, roles), _OFFSETS]
        topic = self._choice.choice(topics)
        leaders = {part["leader"] for part in self._kafka.partitions(topic).values()}
        return self._kafka, self._choice.choice(sorted(leaders)), topic

    def _whole_again(self, brokers: Brokers) -> None:
        for topic in (self._deployment.topics.name("journal"), _OFFSETS):
            brokers.wait_in_sync(topic)

    # ------------------------------------------------------------ one Redis

    def _kill_redis(self) -> None:
        self._changed(lambda: None)

    def _older_copy(self) -> None:
        def older() -> None:
            _clear(self._data())
            shutil.copytree(self._choice.choice(self._copies), self._data(), dirs_exist_ok=True)

        self._changed(older)

    def _empty(self) -> None:
        """Under the feet of workers, or while it is not there."""
        if self._choice.random() < 0.5:
            self._changed(lambda: _clear(self._data()))
        else:
            with self._there() as there:
                there.command("FLUSHALL")

    def _cut(self) -> None:
        def cut() -> None:
            (file,) = self._data().glob("appendonlydir/*.incr.aof")
            size = file.stat().st_size
            os.truncate(file, max(0, size - self._choice.randint(1, max(1, size // 2))))

        self._changed(cut)

    def _spoil(self) -> None:
        """A wrong byte in some of all values, and nobody is told. Then it is emptied: nothing stays wrong."""
        with self._there() as there, Redis.from_url(there.url) as client:
            for key in client.scan_iter(count=10_000):
                for field, value in client.hscan_iter(key, count=10_000):
                    if value and self._choice.random() < 0.5:
                        client.hset(key, field, value[:-1] + bytes((value[-1] ^ 1,)))
        time.sleep(self._choice.uniform(0.5, 3.0))
        with self._there() as there:
            there.command("FLUSHALL")

    def _no_room(self) -> None:
        with self._there() as there:
            policy = self._choice.choice(["noeviction", "allkeys-lru", "allkeys-random"])
            there.command("CONFIG", "SET", "maxmemory-policy", policy)
            there.command("CONFIG", "SET", "maxmemory", self._choice.choice([1, 1_500_000]))
        time.sleep(self._choice.uniform(0.5, 4.0))
        with self._there() as there:
            there.command("CONFIG", "SET", "maxmemory", 0)

    @contextlib.contextmanager
    def _there(self) -> Iterator[Node]:
        """Redis, which is not taken away meanwhile."""
        assert isinstance(self._redis, Node)
        assert self._outages is not None
        with self._outages.lock:
            yield self._redis

    def _changed(self, change: Callable[[], object]) -> None:
        with self._there() as there:
            there.kill()
            change()
            there.start()

    # ------------------------------------------------------------ disks

    def _full_disk_of_the_broker(self) -> None:
        assert isinstance(self._kafka, KafkaServer)
        self._full("broker")
        _killed(self._kafka)  # unless it has ended of it
        _again(self._kafka)

    def _full_disk_of_redis(self) -> None:
        with self._there() as there:
            self._full("Redis")
            if there.failure() is not None:
                there.stop()
                there.start()

    def _full(self, server: str) -> None:
        self._disks[server].fill()
        time.sleep(self._choice.uniform(1.0, 6.0))
        self._disks[server].make_room()

    # ------------------------------------------------------------ a Redis with a replica

    def _promotion(self) -> None:
        assert isinstance(self._redis, Replicas)
        self._redis.lag(True)
        time.sleep(self._choice.uniform(0.0, 3.0))
        self._redis.promote()
        self._redis.come_back()

    def _split(self) -> None:
        assert isinstance(self._redis, Replicas)
        self._redis.wait_in_sync()
        self._redis.promote(freeze=True)
        self._redis.come_back()


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


# ---------------------------------------------------------------- all of it


class _Progress:
    """Prints how far it is, and keeps the report up to date."""

    def __init__(self, tally: Tally, report: Path, tried: Path, minutes: float) -> None:
        self._tally = tally
        self._report = report
        self._tried = tried
        self._began = self._shown = time.monotonic()
        self._minutes = minutes

    def deadline(self, share: float) -> float:
        """When that share of the time is over; never without a limit."""
        return self._began + share * 60 * self._minutes if self._minutes else float("inf")

    def show(self, what: str, *, at_once: bool = False) -> None:
        """Says what is under way, not too often."""
        now = time.monotonic()
        if now - self._shown < 10 and not at_once:
            return
        self._shown = now
        lines = self._tally.lines.values()
        done = sum(min(line.trials, line.wanted) for line in lines)
        gone = (now - self._began) / 60
        said = f"{gone:.0f} min gone"
        if self._minutes:
            said += f", {max(0.0, self._minutes - gone):.0f} min left"
        print(
            f"{what}: {self._tally.trials} trials in all, {done} of {self._tally.wanted} wanted, "
            f"{len(self._tally.found)} violations, {said}",
            flush=True,
        )
        self._report.parent.mkdir(exist_ok=True)
        self._report.write_text(self._tally.report() + "\n", encoding="utf-8")
        self._tally.write(self._tried)


def _schedules(first: int, processes: int, tally: Tally, progress: _Progress, until: float) -> None:
    known, before = 0, tally.lines[SCHEDULE].trials
    seeds = tally.left(SCHEDULE)
    search = simulator.search(first + before, seeds, stale=True, processes=processes)
    with contextlib.closing(search):
        for so_far in search:
            tally.lines[SCHEDULE].trials = before + so_far.seeds
            for said in so_far.found[known:]:
                tally.broken([SCHEDULE], said)
            known = len(so_far.found)
            progress.show("schedules")
            if time.monotonic() > until:
                return


def _servers(
    folder: Path, seed: int, tally: Tally, progress: _Progress, until: float, of: str = ""
) -> None:
    with Soak(folder, seed + tally.trials, tally) as soak:
        while any(map(tally.left, ROUNDS.get(of, SERVERS))) and time.monotonic() < until:
            soak.round(of=of)
            progress.show("servers", at_once=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.0, help="0: until all is tried")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=WANTED[SCHEDULE], help="of the simulator")
    parser.add_argument("--processes", type=int, default=0, help="of the simulator; 0: all cores")
    parser.add_argument("--only", choices=["schedules", "servers", "brokers"])
    parser.add_argument("--report", type=Path, default=Path("build/soak.txt"))
    parser.add_argument("--tried", type=Path, default=TRIED, help="the counts, which are added to")
    asked = parser.parse_args(arguments)
    logging.disable()
    tally = Tally(WANTED | {SCHEDULE: asked.seeds})
    tally.add(asked.tried)
    progress = _Progress(tally, asked.report, asked.tried, asked.minutes)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))

    def schedules(until: float) -> None:
        _schedules(asked.seed, asked.processes, tally, progress, until)

    def servers(until: float, of: str = "") -> None:
        _servers(folder, asked.seed, tally, progress, until, of)

    # The share of the time at which each ends.
    parts: dict[str, tuple[float, Callable[[float], None]]] = {
        "schedules": (0.35, schedules),
        "servers": (1.0, servers),
        "brokers": (1.0, partial(servers, of="brokers")),  # which "servers" has too
    }
    for name, (share, run) in parts.items():
        if asked.only == name or (asked.only is None and name != "brokers"):
            run(progress.deadline(1.0 if asked.only else share))
            progress.show(name, at_once=True)
    if tally.pace.asked and tally.pace.share < LEAST_ANSWERED:
        tally.found.append(f"fewer than {LEAST_ANSWERED} of all questions were answered")
    print(tally.report())
    if not tally.found:
        shutil.rmtree(folder)
        return 0
    print(f"data and logs are in {folder}")
    return 1
