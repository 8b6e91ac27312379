"""The topics as a client sees them: who it is, what it sends and what it reads."""
