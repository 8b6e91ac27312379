"""The exceptions that PEP 249 asks for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from stream_dp.client import Refusal, Rejection
from stream_dp.errors import InvalidInput, RequestTimeout, ServerUnavailable, StreamDPError


class Warning(Exception):  # noqa: A001 - the name that PEP 249 gives
    """A warning. This driver raises none."""


class Error(StreamDPError):
    """The base of the errors of this driver. ``__cause__`` is the client's own error, if there is one."""


class InterfaceError(Error):
    """The driver is used in a wrong way."""


class DatabaseError(Error):
    """A statement has no table."""


class DataError(DatabaseError):
    """A value cannot be written in SQL."""


class OperationalError(DatabaseError):
    """A query was refused, or no server answers."""


class IntegrityError(DatabaseError):
    """Two rows contradict each other. This driver never raises it."""


class InternalError(DatabaseError):
    """The driver or the worker has a fault."""


class ProgrammingError(DatabaseError):
    """The statement cannot be asked. The message points at the piece."""


class NotSupportedError(DatabaseError):
    """The interface has a call that makes no sense here."""


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Translates the errors of the client."""
    try:
        yield
    except Error:
        raise
    except InvalidInput as error:
        raise ProgrammingError(str(error)) from error
    except (Refusal, Rejection, RequestTimeout, ServerUnavailable) as error:
        raise OperationalError(str(error)) from error
    except StreamDPError as error:
        raise DatabaseError(str(error)) from error
