"""What marks on a partition of the journal say of it: all that is done with, and at what workers may die."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST = 2**63


@dataclass
class Marks:
    """What is done with in a partition. What marks say is absolute, so to take one twice changes nothing.

    Attributes:
        watermarks: ``topic:partition`` -> the offset below which every record is done with; each only grows.
            Names with a prefix say other things of that log, see ``ownership``.
        cut: ``topic:partition`` -> the offset up to which it was read, where its log was cut before that.
            It is not read, however far it grows again, until an operator says so.
        released: The offset of the journal below which all output has left.
        trying: What a worker may die of -> how often it was begun and not finished.
        left: Whether the last owner has said goodbye, and took nothing after that. It is so before the first.
        inherited: Whether the owner before the present one did not.
        first: The offset below which owners have deleted entries.
        repairing: Whether a repair was begun and is not finished.
        repaired: The offset of the epoch of the last repair. What was published before is not compared.
        stopped: The data sets that a repair has found not to be whole -> why. They are not served, until a
            ``restart`` of them comes.
    """

    watermarks: dict[str, int] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    released: int = 0
    trying: dict[str, int] = field(default_factory=dict)
    left: bool = True
    inherited: bool = False
    first: int = 0
    repairing: bool = False
    repaired: int = 0
    stopped: dict[str, str] = field(default_factory=dict)

    def taken_over(self) -> None:
        """Another owner has come."""
        self.inherited, self.left = not self.left, False

    def take(self, told: Mapping[str, Any]) -> None:
        """Takes what a mark says."""
        for name, number in _numbers(told.get("watermarks")):
            self.watermarks[name] = max(number, self.watermarks.get(name, 0))
        for known, last in ((self.trying, "trying"), (self.cut, "cut")):
            for name, number in _numbers(told.get(last)):
                known[name] = number
                if not number:
                    del known[name]
        self.released = max(self.released, _number(told.get("released")))
        self.first = max(self.first, _number(told.get("first")))
        self.left = self.left or told.get("left") is True
        if (repaired := _number(told.get("repaired"))) > self.repaired:
            self.repaired, self.repairing = repaired, False
        stopped = told.get("stopped")
        for name, why in stopped.items() if isinstance(stopped, dict) else ():
            self.stopped[name] = str(why)

    def told(self) -> dict[str, object]:
        """All of it, as ``take`` takes it."""
        return {
            "watermarks": self.watermarks,
            "cut": self.cut,
            "trying": self.trying,
            "released": self.released,
            "first": self.first,
            "repaired": self.repaired,
            "stopped": self.stopped,
        }


def said(**what: object) -> bytes:
    """The value of an entry that says this."""
    return json.dumps({"version": 1, **what}, sort_keys=True).encode()


def _numbers(found: object) -> Iterator[tuple[str, int]]:
    for name, number in found.items() if isinstance(found, dict) else ():
        if type(number) is int and 0 <= number < _MOST:
            yield name, number


def _number(found: object) -> int:
    return found if type(found) is int and 0 <= found < _MOST else 0
