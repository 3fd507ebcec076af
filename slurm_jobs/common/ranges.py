"""Sets of array indices as Slurm writes them."""

from __future__ import annotations

from collections.abc import Iterable


def ranges_text(numbers: Iterable[int]) -> str:
    """Ascending numbers as Slurm writes them: `0-3,7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def parse_ranges(text: str, *, below: int | None = None) -> tuple[int, ...]:
    """The numbers of `0-3,7`; a throttle (`%4`) and a step (`0-9:3`) are understood.

    Raises:
        ValueError: it is nothing of the kind, or holds a number that is not under `below`; such
            numbers are not made, so that those of a mistyped range cannot fill the memory.
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
    return tuple(numbers)
