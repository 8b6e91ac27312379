"""The thesis' consistent set, in several representations. Public knowledge: it has never seen the data."""

from stream_dp.core.median.consistent_set.entropic import Entropic
from stream_dp.core.median.consistent_set.exhaustive import Exhaustive
from stream_dp.core.median.consistent_set.polytope import Polytope
from stream_dp.core.median.consistent_set.set_interface import ConsistentSet, Distribution, Mask

__all__ = ["ConsistentSet", "Distribution", "Entropic", "Exhaustive", "Mask", "Polytope"]
