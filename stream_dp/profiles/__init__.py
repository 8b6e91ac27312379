"""Profiles: from the settings of a definition to the mechanism that serves it, its prices, and advice."""
