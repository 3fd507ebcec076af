"""Sets of array indices in Slurm's notation."""

from __future__ import annotations

from collections.abc import Iterable


def ranges_text(numbers: Iterable[int]) -> str:
    """Format ascending numbers as Slurm writes them: `0-3,7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def parse_ranges(text: str, *, below: int | None = None) -> tuple[int, ...]:
    """Parse `0-3,7`, with an optional throttle (`%4`) and step (`0-9:3`).

    Raises:
        ValueError: it has another form, or a number that is not under `below`. Such numbers are not
            generated, so that a mistyped range cannot fill the memory.
    """
    numbers: list[int] = []
    for part in text.partition("%")[0].split(","):
        bounds, _, step = part.partition(":")
        first, _, last = bounds.partition("-")
        chosen = range(int(first), int(last or first) + 1, int(step or 1))
        if below is not None and chosen and max(chosen[0], chosen[-1]) >= below:
            message = f"{part} goes beyond {below - 1}"
            raise ValueError(message)
        numbers.extend(chosen)
        if below is not None and len(numbers) > below:
            message = f"it has over {below} numbers"
            raise ValueError(message)
    return tuple(numbers)
