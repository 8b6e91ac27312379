"""The one record that everything about a profile follows from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, get_args

from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.rows.universe import Universe
from stream_dp.messages import Definition, ProfileSpec
from stream_dp.profiles.line_units import LineUnit

S = TypeVar("S", bound=ProfileSpec)


@dataclass(frozen=True)
class Setup:
    """Everything besides its own settings that a mechanism is made from."""

    definition: Definition
    universe: Universe
    privacy: Privacy
    accuracy: Accuracy


@dataclass(frozen=True)
class Profile(Generic[S]):
    """One profile.

    Attributes:
        spec: The model of its settings in a definition. It holds what can be said without a mechanism.
        make: Makes a fresh mechanism from the settings. Raises InvalidDefinition.
        unit: The unit in which a line (a block's privacy budget) is counted.
    """

    spec: type[S]
    make: Callable[[S, Setup], Mechanism]
    unit: LineUnit

    @property
    def name(self) -> str:
        """The value of ``mechanism.profile`` that chooses it."""
        (name,) = get_args(self.spec.model_fields["profile"].annotation)
        return str(name)
