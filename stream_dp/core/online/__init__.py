"""Mechanisms for questions that are not counts: thresholds, quantiles, medians, modes, prefixes.

From Bun, Steinke, Ullman, "Make Up Your Mind: The Price of Online Queries in Differential Privacy" (2016),
and from lecture notes on stability. What is built are integer versions whose privacy is proved in the
docstrings themselves, for neighbours that replace one row.

Each module keeps apart what is public (a plan: parameters, scales, the loss), what the data is needed for
(one method that takes exact counts and a ``NoiseSource``), and what follows from published outputs alone. A
mechanism that answers more than once keeps two states: a public one, which is a fold over its published
outputs, and sometimes a ``Secret``, drawn once. Who serves it charges ``loss`` before the first look,
commits the secret with that charge on the private side, beside the rows, and an output before it leaves. A
mechanism whose secret is lost is abandoned, its charge stands; to draw the secret again would be another
mechanism, with another loss.
"""
