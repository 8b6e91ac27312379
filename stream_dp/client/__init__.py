"""The asking and sending side: needs a broker and nothing else of the system."""

from stream_dp.client.client import Client, Rejection

__all__ = ["Client", "Rejection"]
