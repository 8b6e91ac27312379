"""The keys that have a name: a fold over what was published."""

from __future__ import annotations

from dataclasses import dataclass

from stream_dp.core.keys.key_look import KeyRelease


@dataclass(frozen=True, slots=True)
class KeyName:
    """A key with a name.

    Attributes:
        text: The key.
        slot: The cell that rows with it are in, from ``since`` on.
        since: The first block whose rows are in that cell. Before that they are in ``other``.
    """

    text: str
    slot: int
    since: int


class KeyNames:
    """The names of one attribute, in the order of their slots.

    Args:
        most: The number of slots. Keys that are found when all are taken stay in ``other``.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_text: dict[str, KeyName] = {}

    def __len__(self) -> int:
        return len(self._by_text)

    def __getitem__(self, text: str) -> KeyName:
        return self._by_text[text]

    def __contains__(self, text: object) -> bool:
        return text in self._by_text

    @property
    def all(self) -> tuple[KeyName, ...]:
        """All names, in the order of their slots."""
        return tuple(self._by_text.values())

    def absorb(self, release: KeyRelease) -> tuple[KeyName, ...]:
        """Names what a look has found; returns the new names, by their largest count.

        A block has the names that its own look found: they follow from what was published before its rows
        were put into cells.
        """
        found: dict[bytes, int] = {}
        for one in release.windows:
            for text, count in one.counts:
                found[text] = max(count, found.get(text, count))
        new = []
        for text, _ in sorted(found.items(), key=lambda said: (-said[1], said[0])):
            name = text.decode("utf-8", "surrogatepass")
            if name not in self._by_text and len(self._by_text) < self._most:
                new.append(KeyName(name, len(self._by_text), release.block))
                self._by_text[name] = new[-1]
        return tuple(new)
