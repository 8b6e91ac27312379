"""The thesis' consistent set, in several representations. Public knowledge: it has never seen the data."""

from stream_dp.core.median.consistent_set.base import ConsistentSet, Distribution, Mask
from stream_dp.core.median.consistent_set.entropic import Entropic
from stream_dp.core.median.consistent_set.exhaustive import Exhaustive
from stream_dp.core.median.consistent_set.polytope import Polytope

__all__ = ["ConsistentSet", "Distribution", "Entropic", "Exhaustive", "Mask", "Polytope"]
