"""The lines that a worker logs: as text, or as one JSON object a line.

An error that we did not raise may quote what it was about, even a row. So of such errors only the type is
written, and where in the code they were raised.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

import aiokafka.errors
import click
import kafka.errors

from stream_dp.errors import StreamDPError
from stream_dp.pipeline.watch.audit_log import LOGGER

_REPEAT_S = 10.0
_PACKAGE = "stream_dp"
_NAME = f"{_PACKAGE}.worker"

_QUOTABLE: Final = (StreamDPError, OSError, aiokafka.errors.KafkaError, kafka.errors.KafkaError)
"""Errors whose text is about servers, files and settings, never about a row."""

_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Log:
    """What a worker says to its operator, on standard error.

    Args:
        level: The lowest level that is logged: ``debug``, ``info``, ``warn`` or ``error``.
        as_json: Whether each line is a JSON object. Default: text.
    """

    def __init__(self, level: str, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._handler = logging.StreamHandler()
        self._handler.addFilter(_Readable())
        self._handler.setFormatter(_Json() if as_json else _Text())
        logging.basicConfig(
            level=level.upper().replace("WARN", "WARNING"), handlers=[self._handler]
        )
        logging.captureWarnings(as_json)
        self.audit(on=False)
        # At lower levels aiokafka logs what it sends and fetches, including rows.
        logging.getLogger("aiokafka.conn").setLevel(logging.INFO)

    def audit(self, *, on: bool) -> None:
        """Says whether replies to queries are logged, each with a line of its own, at every level."""
        logging.getLogger(LOGGER).setLevel(logging.INFO if on else logging.WARNING)

    def take_uncaught(self) -> None:
        """From now on logs the errors that nobody catches, for which Python prints a trace otherwise."""
        sys.excepthook = _uncaught
        threading.excepthook = _uncaught_in_thread

    def say(self, text: str) -> None:
        """Writes a line that the operator gets at every level."""
        self._write(logging.INFO, text, text)

    def complain(self, text: str) -> None:
        """Writes why the worker ends."""
        self._write(logging.ERROR, text, f"error: {text}")

    @contextmanager
    def complaining(self) -> Iterator[None]:
        """Ends the process with exit code 1 if the body fails for a known reason, and says it in JSON.

        As text the command line says it.
        """
        try:
            yield
        except StreamDPError as error:
            if not self._as_json:
                raise
            self.complain(str(error))
            sys.exit(1)

    def _write(self, level: int, message: str, line: str) -> None:
        if self._as_json:
            self._handler.handle(logging.LogRecord(_NAME, level, "", 0, message, None, None))
        else:
            click.echo(line, err=True)


class _Text(logging.Formatter):
    """Time, level, logger and message. The trace of an error follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is logging's
        """Returns where an error was raised, with those that caused it, and what it says if it may."""
        return "\n".join(
            "Traceback (most recent call last):\n"
            + "".join(traceback.format_tb(error.__traceback__))
            + _described(error)
            for error in reversed([*_chain(ei[1])])
        )


class _Json(logging.Formatter):
    """One object a line: ``time``, ``level``, ``logger``, ``message``, and what the call names."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns a record as a JSON object, with its error and its named fields."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # Others name what we cannot judge.
        if record.name.partition(".")[0] == _PACKAGE:
            line |= {
                name: value
                for name, value in vars(record).items()
                if name not in _USUAL and name not in line
            }
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = type(error).__name__
            if isinstance(error, _QUOTABLE):
                line["reason"] = str(error)
            line["trace"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for one in reversed([*_chain(error)])
                for frame in traceback.extract_tb(one.__traceback__)
            ]
        return json.dumps(line, default=lambda value: type(value).__name__)


class _Readable(logging.Filter):
    """Lets through the log lines that an operator can use, without what errors of others quote.

    A known fault is reported in one sentence at the end and not as a trace. A lost broker repeats one line
    thousands of times a second, so the filter passes it once in ten seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], StreamDPError):
            return False
        if "We experienced a crash!" in str(record.msg):  # of Faust; what follows says why it ends
            return False
        if record.name.startswith("aiokafka"):
            now = time.monotonic()
            if now - self._last.get(record.msg, -_REPEAT_S) < _REPEAT_S:
                return False
            self._last[record.msg] = now
        if record.name == "asyncio":
            record.msg = str(record.msg).partition("\n")[0]  # the rest shows the error of a task
        if isinstance(record.args, Mapping):
            record.args = {name: _shown(value) for name, value in record.args.items()}
        elif record.args:
            record.args = tuple(map(_shown, record.args))
        return record.name.partition(".")[0] != "kafka" or record.levelno >= logging.CRITICAL


def _shown(argument: object) -> object:
    if isinstance(argument, BaseException) and not isinstance(argument, _QUOTABLE):
        return type(argument).__name__
    return argument


def _described(error: BaseException) -> str:
    name = type(error).__name__
    return f"{name}: {error}" if isinstance(error, _QUOTABLE) else name


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error, the one that led to it, and so on."""
    met: set[int] = set()
    while error is not None and id(error) not in met:
        met.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger(_NAME).critical("the worker has a fault", exc_info=(kind, error, trace))


def _uncaught_in_thread(found: threading.ExceptHookArgs) -> None:
    if found.exc_value is not None and found.exc_type is not SystemExit:
        _uncaught(found.exc_type, found.exc_value, found.exc_traceback)
