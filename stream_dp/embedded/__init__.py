"""Apache Kafka and Valkey started as children: for ``up``, ``demo`` and tests.

The real servers, not imitations of them; they need nothing but packages (``stream-dp[embedded]``).

``stack``: start and stop both. ``folders``: find out what runs, and stop it; imports no client library.
``kafka``, ``valkey``: one of them, for tests. ``progress``: what a start reports.
"""
