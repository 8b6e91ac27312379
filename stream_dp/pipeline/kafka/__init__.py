"""Kafka: addresses, records that are read and sent, and topics as logs."""
