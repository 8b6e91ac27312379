"""The release at the opening of a phase: which tables it measures, and when more of it is bought."""
