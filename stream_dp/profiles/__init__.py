"""Profiles: from the settings of a definition to the mechanism that serves it, its prices, and advice.

``calibrated_profile`` and ``papers`` hold the profiles and ``kinds`` all other kinds of queries, one record
each. See docs/adding.md.
"""
