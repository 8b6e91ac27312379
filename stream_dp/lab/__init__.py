"""Experiments that show what the theory says: attacks on synthetic data, pure functions of a generator.

Nothing here meets a row of a data set, and nothing here releases anything: numpy's generator is enough.
"""
