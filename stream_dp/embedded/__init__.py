"""Starts Apache Kafka and Valkey as child processes, for ``up``, ``demo`` and tests.

These are the real servers. They need only the packages of ``stream-dp[embedded]``.

``stack`` starts and stops both. ``folders`` finds the running servers and stops them, without a client
library. ``kafka_server`` and ``valkey_server`` start one server, for tests.
"""
