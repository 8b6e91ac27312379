"""The client for analysts and producers. It needs a broker and no other part of the system."""

from stream_dp.broker import Broker
from stream_dp.client.aio import AsyncClient
from stream_dp.client.client import Client
from stream_dp.client.kafka.exchange import Rejection
from stream_dp.client.rows.frames import answer_frame, answers_frame
from stream_dp.client.rows.unread_values import Sent, Unread
from stream_dp.client.sent_changes import AcceptedChanges
from stream_dp.client.statements.result_table import Column, Refusal, ResultTable
from stream_dp.client.statements.written_query import Query

__all__ = [
    "AcceptedChanges",
    "AsyncClient",
    "Broker",
    "Client",
    "Column",
    "Query",
    "Refusal",
    "Rejection",
    "ResultTable",
    "Sent",
    "Unread",
    "answer_frame",
    "answers_frame",
]
