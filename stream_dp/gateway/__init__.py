"""A port that speaks the Postgres protocol: tools that know Postgres ask data sets through it.

The process holds a client of Kafka and no address of Redis, so it can never reach a row.
"""
