"""A request and its reply."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from stream_dp.client.kafka.mailbox import Mailbox, Reply
from stream_dp.errors import StreamDPError
from stream_dp.messages import Rejected


class Rejection(StreamDPError):
    """The worker took no request from a record. ``reason`` says why and what to do."""

    code = "rejected"

    def __init__(self, rejected: Rejected) -> None:
        self.rejected = rejected
        self.reason = rejected.reason
        super().__init__(rejected.reason.message)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that is sent again and again until its reply arrives.

    Attributes:
        future: The future that receives the reply.
        attempts: An iterator that sends the request when it is time. Each step yields the seconds to wait for
            the reply before the next step. A step may block for long. The last one raises ``RequestTimeout``.
    """

    mailbox: Mailbox
    future: Future[Reply]
    attempts: Iterator[float]

    def wait(self) -> Reply:
        """Goes through the attempts in this thread and returns the reply.

        Raises:
            Rejection: The worker rejected the request.
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
        """Returns the reply after it has arrived. It raises the same errors as ``wait``."""
        reply = self.future.result()
        if isinstance(reply, Rejected):
            raise Rejection(reply)
        return reply

    def forget(self) -> None:
        """Stops waiting for the reply."""
        self.mailbox.forget(self.future)
