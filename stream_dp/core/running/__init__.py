"""Running totals: counts of a period that has not ended, again at each of its ticks.

docs/proofs, Theorem 36.
"""
