"""The parts of ``stream-dp demo``."""
