"""The asking and sending side: needs a broker and nothing else of the system."""

from stream_dp.broker import Broker
from stream_dp.client.aio import AsyncClient
from stream_dp.client.client import Client
from stream_dp.client.exchange import Rejection
from stream_dp.client.frames import answer_frame, answers_frame
from stream_dp.client.questions import Question

__all__ = [
    "AsyncClient",
    "Broker",
    "Client",
    "Question",
    "Rejection",
    "answer_frame",
    "answers_frame",
]
