"""The worker's own pages: a dashboard for operators, and a query box for analysts.

What analysts see is folded from the output topics alone (``published``). Queries go through the front door
(``asking``), as everybody's do. Only the operator's view adds what was asked, and how the worker is.
"""
