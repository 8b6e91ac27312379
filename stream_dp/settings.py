"""What an operator can set: environment variables ``STREAM_DP_*``, read once by the command line."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

__all__ = ["WorkerSettings"]


class WorkerSettings(BaseSettings):
    """Settings of a worker.

    Attributes:
        bootstrap_servers: Kafka brokers, ``host:port`` separated by commas.
        redis_url: Where the state lives; ``redis://``, ``rediss://`` or ``unix://``.
        redis_prefix: Common start of all keys.
        topic_prefix: Common start of all topic names.
        group_id: Consumer group of the workers that share the topics.
        secret: Key of the digests that stand for rejected records. Without it a random key is made at start.
        session_timeout_s: After this long without a sign of life a worker's partitions move.
        web_port: Port of ``/healthz`` and ``/metrics``.
        data_dir: Faust's own folder; holds nothing of value.
        crash_at: For fault tests: kill the process at a named point, as ``point:n``.
    """

    model_config = SettingsConfigDict(env_prefix="STREAM_DP_", frozen=True, extra="ignore")

    bootstrap_servers: str = "127.0.0.1:9092"
    redis_url: str = "redis://127.0.0.1:6379/0"
    redis_prefix: str = "stream-dp"
    topic_prefix: str = "stream-dp."
    group_id: str = "stream-dp-worker"
    secret: SecretStr | None = None
    session_timeout_s: Annotated[float, Field(ge=1)] = 10.0
    web_port: Annotated[int, Field(ge=1, le=65535)] = 6066
    web_bind: str = "127.0.0.1"
    data_dir: str | None = None
    crash_at: str | None = None
