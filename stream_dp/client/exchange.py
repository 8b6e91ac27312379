"""A request and its reply, for whoever waits."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from stream_dp.client.mailbox import Mailbox, Reply
from stream_dp.errors import StreamDPError
from stream_dp.messages import Rejected

__all__ = ["Exchange", "Rejection"]


class Rejection(StreamDPError):
    """The worker took no request out of a record; ``reason`` says why and what to do."""

    code = "rejected"

    def __init__(self, rejected: Rejected) -> None:
        self.rejected = rejected
        self.reason = rejected.reason
        super().__init__(rejected.reason.message)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that is sent, and sent again, until its reply comes.

    Attributes:
        future: Gets the reply.
        attempts: Each step sends if it is time to, and says how many seconds to wait for the reply before
            the next step. A step may block for long; the last raises ``RequestTimeout``.
    """

    mailbox: Mailbox
    future: Future[Reply]
    attempts: Iterator[float]

    def wait(self) -> Reply:
        """Goes through the attempts in this thread.

        Raises:
            Rejection: That was the reply.
            StreamDPError: No reply came, or the broker is lost.
        """
        try:
            for wait_s in self.attempts:
                if self.mailbox.receive(self.future, wait_s) is not None:
                    break
        finally:
            self.forget()
        return self.reply()

    def reply(self) -> Reply:
        """The reply, once it is there; raises as ``wait`` does."""
        reply = self.future.result()
        if isinstance(reply, Rejected):
            raise Rejection(reply)
        return reply

    def forget(self) -> None:
        """Waits no longer."""
        self.mailbox.forget(self.future)
