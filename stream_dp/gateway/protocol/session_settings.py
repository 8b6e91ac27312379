"""The settings of a connection: those that drivers read and set, and our own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from stream_dp import __version__
from stream_dp.gateway.protocol.sql_fault import SqlFault

SERVER_VERSION: Final = f"15.0 (stream_dp {__version__})"
"""Drivers read the number at its beginning."""

_REPORTED: Final[Mapping[str, str]] = {
    "server_version": SERVER_VERSION,
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "is_superuser": "off",
    "in_hot_standby": "off",
    "default_transaction_read_only": "off",
    "application_name": "",
    "session_authorization": "",
}
"""The settings of which a driver is told each change, with what they are at first."""

_OTHERS: Final[Mapping[str, str]] = {
    "bytea_output": "hex",
    "default_table_access_method": "heap",
    "default_tablespace": "",
    "default_transaction_isolation": "read committed",
    "extra_float_digits": "1",
    "idle_in_transaction_session_timeout": "0",
    "jit": "off",
    "lc_collate": "C",
    "lc_ctype": "C",
    "lc_messages": "C",
    "lock_timeout": "0",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "role": "none",
    "row_security": "on",
    "search_path": '"$user", public',
    "server_version_num": "150000",
    "statement_timeout": "0",
    "transaction_isolation": "read committed",
    "transaction_read_only": "on",
    "version": f"PostgreSQL {SERVER_VERSION}, whose answers are differentially private",
}
_OWN: Final[Mapping[str, tuple[str, str]]] = {
    "stream_dp.error_bars": ("on", "on or off"),
    "stream_dp.notices": ("on", "on or off"),
    "stream_dp.at_most": ("", "a share of a phase's budget such as 2%, or empty"),
    "stream_dp.last_phases": ("", "a number of phases, or empty"),
}
"""Our own settings: what they are at first, and what they may be."""

SERVER_SETTINGS: Final[Mapping[str, str]] = {**_REPORTED, **_OTHERS}
"""The settings that Postgres has too."""

_AT_FIRST: Final[Mapping[str, str]] = {
    **{name.lower(): value for name, value in SERVER_SETTINGS.items()},
    **{name: at_first for name, (at_first, _) in _OWN.items()},
}
"""All settings that there are, by their names in small letters."""

_FIXED: Final = frozenset(
    {
        "server_version",
        "server_encoding",
        "is_superuser",
        "integer_datetimes",
        "session_authorization",
    }
)
_TRUE: Final = frozenset({"on", "true", "yes", "1"})
_FALSE: Final = frozenset({"off", "false", "no", "0"})
_SECONDS: Final = {
    "": 0.001,
    "us": 1e-6,
    "ms": 0.001,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_LONGEST_S: Final = 600.0
_DEFAULT_S: Final = 60.0
_MOST: Final = 200
_LONGEST_NAME, _LONGEST_VALUE = 128, 1_000


class SessionSettings:
    """The settings of one connection.

    Args:
        given: What the client begins with. It sets them back to these by RESET.
        user: Who is logged in.
    """

    def __init__(self, given: Mapping[str, str], user: str) -> None:
        self._values = {"session_authorization": user}
        self._before: dict[str, str] | None = None
        self._local = set[str]()
        for name, value in given.items():
            if name in _AT_FIRST and name not in _FIXED:
                self.change(name, value)
        self._first = dict(self._values)

    def __getitem__(self, name: str) -> str:
        """Returns the value of a setting.

        Raises:
            SqlFault: There is none of this name.
        """
        found = self._values.get(name, _AT_FIRST.get(name))
        if found is None:
            raise SqlFault("42704", f'unrecognized configuration parameter "{name}"')
        return found

    @property
    def values(self) -> Mapping[str, str]:
        """All settings by name."""
        return {**_AT_FIRST, **self._values}

    def begin(self) -> None:
        """Begins a transaction."""
        self._before = dict(self._values)

    def end(self, *, is_kept: bool) -> None:
        """Ends a transaction. What it set is kept, unless it was set for the transaction alone."""
        before = self._values if self._before is None else self._before
        if is_kept:
            for name in self._local:
                self._restore(name, before)
        else:
            self._values = dict(before)
        self._before, self._local = None, set()

    def _restore(self, name: str, before: Mapping[str, str]) -> None:
        self._values.pop(name, None)
        if name in before:
            self._values[name] = before[name]

    def change(self, name: str, value: str, *, is_local: bool = False) -> None:
        """Sets a setting. One that no server of ours reads is kept too, as tools set many.

        Args:
            name: Its name.
            value: Its value.
            is_local: Whether it is set for the transaction alone. Outside one this does nothing.

        Raises:
            SqlFault: It is one of ours, and does not take this value.
        """
        if name.startswith("stream_dp.") and len(value) <= _LONGEST_VALUE:
            if name not in _OWN:
                raise SqlFault("42704", f'unrecognized configuration parameter "{name}"')
            value = _checked(name, value.strip())
        if name == "client_encoding" and value.strip("'\"").upper() not in (
            "UTF8",
            "UTF-8",
            "UNICODE",
        ):
            raise SqlFault(
                "22023", "this server speaks UTF8 only", hint="set client_encoding to UTF8"
            )
        if len(name) > _LONGEST_NAME or len(value) > _LONGEST_VALUE:
            raise SqlFault("54000", f"a setting is longer than {_LONGEST_VALUE:,} characters")
        if name in _FIXED:
            raise SqlFault("55P02", f'parameter "{name}" cannot be changed')
        if len(self._values) >= _MOST and name not in self._values:
            raise SqlFault("54000", "there are too many settings")
        if is_local and self._before is None:
            return
        self._values[name] = value
        self._local = self._local | {name} if is_local else self._local - {name}

    def reset(self, name: str | None = None) -> None:
        """Sets one setting, or all, to what it was at first."""
        if name is None:
            self._values = dict(self._first)
        else:
            self._restore(name, self._first)

    def reported(self) -> Iterator[tuple[str, str]]:
        """Yields the settings that drivers follow."""
        for name in _REPORTED:
            yield name, self[name.lower()]

    @property
    def has_bars(self) -> bool:
        """Whether columns of error bars follow the selected ones."""
        return self["stream_dp.error_bars"] == "on"

    @property
    def has_notices(self) -> bool:
        """Whether prices and notes come along as notices."""
        return self["stream_dp.notices"] == "on"

    @property
    def at_most(self) -> float | None:
        """The largest share of any phase's budget that one statement may take. None for no limit."""
        said = self["stream_dp.at_most"]
        return float(said) if said else None

    @property
    def last_phases(self) -> int | None:
        """The number of latest phases that statements are about. None for all."""
        said = self["stream_dp.last_phases"]
        return int(said) if said else None

    @property
    def timeout_s(self) -> float:
        """The seconds after which a statement ends."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", self["statement_timeout"].strip())
        if found is None or found[2] not in _SECONDS:
            return _DEFAULT_S
        return min(float(found[1]) * _SECONDS[found[2]], _LONGEST_S) or _DEFAULT_S


def _checked(name: str, value: str) -> str:
    """Returns a setting of ours as it is kept."""
    low = value.lower()
    if name in ("stream_dp.error_bars", "stream_dp.notices"):
        if low in _TRUE | _FALSE:
            return "on" if low in _TRUE else "off"
    elif low in ("", "default"):
        return ""
    elif name == "stream_dp.last_phases":
        if re.fullmatch(r"[1-9][0-9]{0,8}", value):
            return value
    else:
        found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})\s*(%?)", value)
        share = float(found[1]) / (100 if found[2] else 1) if found else 0.0
        if 0.0 < share <= 1.0:
            return repr(share)
    raise SqlFault("22023", f'invalid value for parameter "{name}"', hint=f"write {_OWN[name][1]}")
