"""A request and its reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stream_dp.client.kafka.mailbox import Mailbox, Reply
from stream_dp.errors import StreamDPError
from stream_dp.messages import Event, Rejected

T = TypeVar("T")
U = TypeVar("U")


class Rejection(StreamDPError):
    """The worker took no request from a record. ``reason`` says why and what to do."""

    code = "rejected"

    def __init__(self, rejected: Rejected) -> None:
        self.rejected = rejected
        self.reason = rejected.reason
        super().__init__(rejected.reason.message)


@dataclass(frozen=True, slots=True)
class Exchange(Generic[T]):
    """A request that is sent again and again until its reply arrives.

    Attributes:
        mailbox: The mailbox that receives the reply.
        future: The future that receives the reply.
        attempts: An iterator that sends the request when it is time. Each step yields the seconds to wait for
            the reply before the next step. A step may block for long. The last one raises ``RequestTimeout``.
        read: What the caller wants of the answer or the event.
    """

    mailbox: Mailbox
    future: Future[Reply]
    attempts: Iterator[float]
    read: Callable[[Any], T]

    def then(self, read: Callable[[T], U]) -> Exchange[U]:
        """Returns the same request for a caller who wants something else of the reply."""
        return Exchange(
            self.mailbox, self.future, self.attempts, lambda reply: read(self.read(reply))
        )

    def wait(self) -> T:
        """Goes through the attempts in this thread and returns what the caller wants of the reply.

        Raises:
            Rejection: The worker rejected the request, or refused the batch.
            StreamDPError: No reply came, or the broker is lost.
        """
        try:
            for wait_s in self.attempts:
                if wait([self.future], wait_s).done:
                    break
        finally:
            self.forget()
        return self.reply()

    def reply(self) -> T:
        """Returns the same once the reply has arrived. It raises the same errors as ``wait``."""
        reply = self.future.result()
        if isinstance(reply, Event) and reply.event == "batch_refused":
            assert reply.reason is not None, "a refusal says why"
            reply = Rejected(
                topic=self.mailbox.topics.name("batches"),
                partition=-1,
                offset=-1,
                dataset=reply.dataset,
                batch_id=reply.batch_id,
                reason=reply.reason,
            )
        if isinstance(reply, Rejected):
            raise Rejection(reply)
        return self.read(reply)

    def forget(self) -> None:
        """Stops waiting for the reply."""
        self.mailbox.forget(self.future)
