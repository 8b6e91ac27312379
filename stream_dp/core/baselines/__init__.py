"""The mechanisms that the field would otherwise use, behind the same interface.

They can be run next to the profiles at any time. Every mechanism here answers predicate queries as a
``mechanism.Mechanism``: it uses integer noise and charges a look to the same lines before it takes it.
``core/sparse_vector/composition.py`` says how losses add up, as epsilons (a pure promise) or as zCDP.
"""
