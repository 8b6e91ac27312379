"""What watches a worker: metrics, health, a watchdog, crash points, and the log of who asked what."""
