"""What the field would otherwise use, behind the same interface: to be run beside the profiles, always.

Every mechanism here answers predicate questions as a ``mechanism.Mechanism``: integer noise, a look charged
before it is taken, on the same lines. ``core/composition`` says how losses add up: epsilons (a pure
promise) or zCDP. ``exponential`` is the one selection among them.
"""
