"""The asking and sending side: needs a broker and nothing else of the system."""

from stream_dp.client.client import Client, Rejection
from stream_dp.client.questions import Question

__all__ = ["Client", "Question", "Rejection"]
