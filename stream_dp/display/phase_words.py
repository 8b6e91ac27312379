"""Phases and the time that they cover, in words."""

from __future__ import annotations


def phases(window: tuple[int, int]) -> str:
    """Names the phases of a window by their numbers."""
    first, last = window
    return f"phase {first}" if first == last else f"phases {first} to {last}"


def phases_and_time(window: tuple[int, int], since: str | None, until: str | None) -> str:
    """Names the phases of a window, and the time that they cover where it is known."""
    if until is not None and not _is_round(until):
        return f"{phases(window)}, until {moment(until)}"
    dates = between(since, until)
    return f"{phases(window)}, {dates}" if dates else phases(window)


def period(window: tuple[int, int], since: str | None, until: str | None) -> str:
    """Names the phases of a part of a series by their dates, or by their numbers where no date is known."""
    dates = between(since, until)
    return dates.removeprefix("from ") or phases(window)


def between(since: str | None, until: str | None) -> str:
    """Says which stretch of time some phases cover. Empty where it is not known."""
    if since is None or until is None:
        return ""
    return f"from {moment(since)} until {moment(until)}"


def moment(time: str) -> str:
    """Writes a date or a time as in messages, but no seconds."""
    return time if _is_round(time) else time[:16].replace("T", " ")


def _is_round(time: str) -> bool:
    """Whether a time is a date, or has no seconds, as those of periods have none."""
    return len(time) <= len("2026-11-01T06:00+01:00")
