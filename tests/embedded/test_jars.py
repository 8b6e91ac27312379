"""What runs is what the lock pins, or nothing."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import Mock, call

import pytest

from stream_dp.embedded.jars import Jar, Progress, Silent, kafka_lock, parse_lock, resolve
from stream_dp.errors import ServerUnavailable

CONTENTS = {f"part-{n}": f"the bytes of jar {n}".encode() * 2000 for n in range(5)}
LOCK = tuple(
    Jar("org.example", name, "1.0", hashlib.sha256(content).hexdigest())
    for name, content in CONTENTS.items()
)


class Repository:
    """A Maven repository on the loopback address, with ``files``. A path in ``cut`` breaks off once."""

    def __init__(self) -> None:
        self.files = {
            f"/org/example/{name}/1.0/{name}-1.0.jar": content for name, content in CONTENTS.items()
        }
        self.asked: list[str] = []
        self.cut: set[str] = set()
        self.release = threading.Event()
        self.release.set()
        repository = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                repository.asked.append(self.path)
                content = repository.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                half = len(content) // 2
                self.wfile.write(content[:half])
                if self.path in repository.cut:
                    repository.cut.remove(self.path)
                    return
                repository.release.wait(20)
                self.wfile.write(content[half:])

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def repository() -> Iterator[Repository]:
    repository = Repository()
    yield repository
    repository.close()


def _resolve(
    cache: Path, repository: Repository | None = None, progress: Progress | None = None
) -> tuple[Path, ...]:
    # Port 9 refuses: whoever downloads without a repository fails.
    address = "http://127.0.0.1:9" if repository is None else repository.address
    return resolve(cache, progress or Silent(), lock=LOCK, repository=address)


def _files(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


def test_jars_are_downloaded_once_and_checked_every_time(
    repository: Repository, tmp_path: Path
) -> None:
    paths = _resolve(tmp_path, repository)
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())
    assert _files(tmp_path) == [f"{name}-1.0.jar" for name in CONTENTS]  # nothing half done
    assert _resolve(tmp_path) == paths


def test_a_jar_that_was_changed_in_the_cache_is_deleted_and_refused(
    repository: Repository, tmp_path: Path
) -> None:
    victim = _resolve(tmp_path, repository)[2]
    victim.write_bytes(victim.read_bytes()[:-1] + b"!")
    with pytest.raises(ServerUnavailable) as refused:
        _resolve(tmp_path, repository)
    for word in ("org.example:part-2:1.0", "not the jar", "deleted", str(victim)):
        assert word in str(refused.value)
    assert not victim.exists()
    assert _resolve(tmp_path, repository)[2].read_bytes() == CONTENTS["part-2"]


def test_a_jar_that_the_repository_changed_never_gets_into_the_cache(
    repository: Repository, tmp_path: Path
) -> None:
    repository.files["/org/example/part-2/1.0/part-2-1.0.jar"] = b"something else"
    with pytest.raises(
        ServerUnavailable, match=r"part-2:1\.0 is not the jar that this release pins"
    ):
        _resolve(tmp_path, repository)
    assert "part-2-1.0.jar" not in _files(tmp_path)


def test_a_download_that_breaks_off_is_tried_again(repository: Repository, tmp_path: Path) -> None:
    # Each of them once: three breaks in one jar would be as often as it is tried.
    repository.cut = set(list(repository.files)[:3])
    _resolve(tmp_path, repository)
    assert not repository.cut
    assert len(repository.asked) == len(CONTENTS) + 3
    assert _files(tmp_path) == [f"{name}-1.0.jar" for name in CONTENTS]


def test_a_jar_that_is_nowhere_is_an_error_with_a_way_out(
    repository: Repository, tmp_path: Path
) -> None:
    repository.files.clear()
    for there, way in ((repository, "--bootstrap-servers"), (None, "check the network")):
        with pytest.raises(ServerUnavailable, match=way):
            _resolve(tmp_path, there)
    assert _files(tmp_path) == []


def test_progress_grows_to_the_end(repository: Repository, tmp_path: Path) -> None:
    progress, again = Mock(), Mock()
    _resolve(tmp_path, repository, progress)
    progress.step.assert_called_once_with("Downloading Apache Kafka 4.3.0 (once, about 43 MB)")
    seen = [each.args for each in progress.downloaded.call_args_list]
    assert seen == sorted(seen, key=lambda each: each[2])
    assert seen[-1] == (5, 5, sum(map(len, CONTENTS.values())))
    _resolve(tmp_path, None, again)
    assert again.mock_calls == [call.downloaded(5, 5, 0)]


def test_a_download_can_be_stopped(repository: Repository, tmp_path: Path) -> None:
    repository.release.clear()
    cancelled = threading.Event()

    def cancel() -> None:
        while not repository.asked:
            time.sleep(0.01)
        cancelled.set()
        repository.release.set()

    stopper = threading.Thread(target=cancel)
    stopper.start()
    with pytest.raises(ServerUnavailable, match="stopped"):
        resolve(tmp_path, Silent(), lock=LOCK, repository=repository.address, cancelled=cancelled)
    stopper.join()
    assert "part-4-1.0.jar" not in _files(tmp_path)


def test_a_cache_folder_that_cannot_be_used_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServerUnavailable, match="another cache folder"):
        _resolve(tmp_path / "file" / "cache")
    with pytest.raises(ServerUnavailable, match="class path"):
        _resolve(tmp_path / "a:b")


def test_the_lock_pins_every_jar_once_by_a_whole_digest() -> None:
    lock = kafka_lock()
    assert len(lock) == len({jar.file_name for jar in lock}) == 46
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in lock)
    assert {jar.version for jar in lock if jar.group == "org.apache.kafka"} == {"4.3.0"}
    assert parse_lock("g:a:1 sha256:00\n\n") == (Jar("g", "a", "1", "00"),)
