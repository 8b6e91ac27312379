"""Kinds of queries other than counts and sums, charged to the same lines as the counts.

From Bun, Steinke, Ullman, "Make Up Your Mind: The Price of Online Queries in Differential Privacy" (2016),
and from lecture notes on stability. What is built are integer versions whose privacy is proved in the
docstrings of the laws themselves, for neighbours that replace one row.

Each kind has a folder. Its *law* keeps apart what is public (a plan: parameters, scales, the loss), what the
data is needed for (one method that takes exact counts and a ``NoiseSource``), and what follows from published
outputs alone. Its *answerer* serves the law to analysts: it decides which look a query needs, and folds the
releases.

A law that answers more than once keeps two states: a public one, which is a fold over its published outputs,
and sometimes a ``Secret``, which is drawn once. The owner of the data set charges ``loss`` before the first
look, commits the secret with that charge on the private side, next to the rows, and commits each output
before it leaves. If a secret is lost, the law is abandoned and its charge stands: a second draw would be
another mechanism, with another loss.
"""
