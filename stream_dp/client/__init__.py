"""The client for analysts and producers. It needs a broker and no other part of the system."""

from stream_dp.broker import Broker as Broker
from stream_dp.client.aio import AsyncClient as AsyncClient
from stream_dp.client.client import Client as Client
from stream_dp.client.kafka.exchange import Rejection as Rejection
from stream_dp.client.rows.frames import answer_frame as answer_frame
from stream_dp.client.rows.frames import answers_frame as answers_frame
from stream_dp.client.rows.unread_values import Sent as Sent
from stream_dp.client.rows.unread_values import Unread as Unread
from stream_dp.client.sent_changes import AcceptedChanges as AcceptedChanges
from stream_dp.client.statements.result_table import Column as Column
from stream_dp.client.statements.result_table import Refusal as Refusal
from stream_dp.client.statements.result_table import ResultTable as ResultTable
from stream_dp.client.statements.written_query import Query as Query
