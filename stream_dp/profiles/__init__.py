"""Profiles: from the settings of a definition to the mechanism that serves it, its prices, and advice.

``building`` lists all profiles and ``kinds`` all other kinds of queries, one line each. Each profile has a
module of its own with one record, ``base.Profile``. See docs/adding.md.
"""
