"""Who may log in: the bearer of a signed token, an account, or on this machine alone anybody."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from stream_dp.client import AsyncClient
from stream_dp.errors import InvalidInput, InvalidMessage
from stream_dp.gateway.accounts import Account, ScramVerifier, accounts_in
from stream_dp.gateway.protocol.client_messages import StartUp
from stream_dp.gateway.protocol.login import ClientStart
from stream_dp.gateway.protocol.sql_fault import SqlFault, refused_login, wrong_password
from stream_dp.gateway.shared_answers import keep_latest
from stream_dp.messages.message_base import ID_PATTERN

if TYPE_CHECKING:
    from stream_dp.tokens import Token, Verifier

_log = logging.getLogger(__name__)

_FIRST_DELAY_S: Final = 0.25
_LONGEST_DELAY_S: Final = 8.0
_REMEMBERED: Final = 10_000
_FORGOTTEN_S: Final = 600.0
_LONGEST_TOKEN: Final = 9_000


@dataclass
class Login:
    """Who is logged in.

    Attributes:
        analyst: The name under which queries are asked.
        seen: The data sets that may be seen. None for all.
    """

    analyst: str
    verifier: Verifier | None = None
    token: Callable[[], str] | None = field(default=None, repr=False)
    seen: frozenset[str] | None = None

    async def check(self) -> None:
        """Checks that the token still holds. One in a file is read again.

        Raises:
            InvalidMessage: It has expired, or is none.
        """
        if self.verifier is None or self.token is None:
            return
        says = await _said(self.verifier, self.token())
        says.check_analyst(self.analyst)
        self.seen = says.datasets

    async def client(self, client: AsyncClient) -> AsyncClient:
        """Returns a client that asks in this name."""
        if self.token is not None:
            return await client.with_token(self.token)
        return await client.under_name(self.analyst)


async def _said(verifier: Verifier, token: str) -> Token:
    says = await verifier.verified(token)
    says.check_time(time.time())
    return says


class Admission:
    """Lets clients in.

    Args:
        is_local: Whether the port is one of this machine alone.
        verifier: What verifies signed tokens. None where queries need none.
        accounts: The file of the accounts, if there is one. It is read again at each login.
    """

    def __init__(self, *, is_local: bool, verifier: Verifier | None, accounts: Path | None) -> None:
        self._is_local = is_local
        self._verifier = verifier
        self._accounts = accounts
        self._last_read: Mapping[str, Account] = {}
        self._secret = secrets.token_bytes(32)
        self._failures = LoginFailures()

    async def login(self, start: ClientStart, said: StartUp, address: str) -> Login:
        """Returns who has logged in.

        Args:
            start: The connection.
            said: What the client has said.
            address: The address that it comes from.

        Raises:
            SqlFault: Nobody has.
        """
        if re.fullmatch(ID_PATTERN, said.user) is None:
            raise wrong_password(said.user[:128])
        if not (start.is_encrypted or self._is_local):
            raise refused_login("this gateway needs an encrypted connection", "sslmode=require")
        key = (address, said.user)
        async with self._failures.turn(key):
            try:
                found = await self._proved(start, said)
            except SqlFault as fault:
                if fault.state == "28P01":
                    self._failures.add(key)
                raise
            self._failures.forget(key)
            return found

    async def _proved(self, start: ClientStart, said: StartUp) -> Login:
        accounts = self._known_accounts()
        if (account := accounts.get(said.user)) is not None:
            await start.prove(said.user, ScramVerifier.read(account.verifier))
            return await self._of_account(said.user, account)
        if self._verifier is not None:
            return await self._of_token(said.user, await start.password())
        if self._is_local and self._accounts is None:
            return Login(said.user)
        await start.prove(said.user, ScramVerifier.made_up(said.user, self._secret))
        raise wrong_password(said.user)

    def _known_accounts(self) -> Mapping[str, Account]:
        """Returns the accounts; those that were read last where the file cannot be read."""
        if self._accounts is not None:
            try:
                self._last_read = accounts_in(self._accounts)
            except InvalidInput as error:
                _log.warning("the accounts are the old ones: %s", error.problem)
        return self._last_read

    async def _of_token(self, user: str, password: str) -> Login:
        assert self._verifier is not None, "queries need tokens"
        if len(password) > _LONGEST_TOKEN:
            raise wrong_password(user)
        try:
            says = await _said(self._verifier, password)
        except InvalidMessage as error:
            if error.reason == "token_expired":
                raise refused_login("the token has expired", "get a new token") from None
            raise wrong_password(user) from None
        if says.analyst != user:
            raise wrong_password(user)
        return Login(user, self._verifier, lambda: password, says.datasets)

    async def _of_account(self, user: str, account: Account) -> Login:
        if self._verifier is None:
            return Login(user)
        if account.token_file is None:
            raise refused_login(
                f"the account {user} has no token, and queries need one here",
                "give it a token file: stream-dp gateway account NAME --token-file FILE",
            )
        token = _TokenFile(Path(account.token_file))
        try:
            says = await _said(self._verifier, token())
        except InvalidMessage as error:
            raise refused_login(f"the token of the account {user}: {error.problem}") from None
        return Login(says.analyst, self._verifier, token, says.datasets)


class _TokenFile:
    """A token in a file, which is read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state: object = None
        self._token = ""

    def __call__(self) -> str:
        try:
            state = self._path.stat()
            known = state.st_ino, state.st_mtime_ns, state.st_size
            if known != self._state:
                self._token, self._state = self._path.read_text("ascii").strip(), known
        except (OSError, ValueError) as error:
            raise InvalidInput(
                "token_file",
                f"it cannot be read ({type(error).__name__})",
                "write a signed token into it",
            ) from None
        return self._token


class LoginFailures:
    """Makes logins that fail slower and slower, for each address and name."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        self._turns = WeakValueDictionary[tuple[str, str], asyncio.Lock]()

    @asynccontextmanager
    async def turn(self, key: tuple[str, str]) -> AsyncIterator[None]:
        """Waits until a login with this key may be tried. After one has failed, they are tried one by one."""
        if key not in self._known:
            yield
            return
        turn = self._turns.setdefault(key, asyncio.Lock())
        async with turn:
            _, until = self._known.get(key, (0, -math.inf))
            await asyncio.sleep(max(0.0, until - time.monotonic()))
            yield

    def add(self, key: tuple[str, str]) -> None:
        """Notes that a login has failed."""
        failures, until = self._known.get(key, (0, -math.inf))
        now = time.monotonic()
        if now - until > _FORGOTTEN_S:
            failures = 0
        delay_s = min(_FIRST_DELAY_S * 2.0 ** min(failures, 10), _LONGEST_DELAY_S)
        keep_latest(self._known, key, (failures + 1, now + delay_s), _REMEMBERED)

    def forget(self, key: tuple[str, str]) -> None:
        """Notes that a login was right."""
        self._known.pop(key, None)
