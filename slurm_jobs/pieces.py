"""Division of a stage's slices into job arrays within the limits of the site. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Slices of one job array, or of one job without an array."""

    slices: tuple[int, ...]
    gpu_kept: str
    """Type of GPU that all of them are bound to; empty for any."""
    slices_per_task: int | None
    """Slices of each array task; see `slurm_jobs.run.elements`."""
    max_running: int | None
    after_previous: bool = False
    """Wait for the previous piece: together they would exceed `max_running`."""


def by_kind(slices: Sequence[int], kinds: Mapping[int, str]) -> dict[str, tuple[int, ...]]:
    """Group the slices (ascending) by the type of GPU that each is bound to; empty for any."""
    found: dict[str, tuple[int, ...]] = {}
    for kind in dict.fromkeys(kinds.get(i, "") for i in slices):
        found[kind] = tuple(i for i in slices if kinds.get(i, "") == kind)
    return found


def cut_slices(
    kinds: Mapping[str, Sequence[int]],
    *,
    slices_per_task: int,
    max_running: int | None,
    max_array_size: int | None,
) -> tuple[Piece, ...]:
    """Return arrays that cover the slices, each of one GPU type and within `max_array_size`.

    Args:
        kinds: the slices (ascending) by the type of GPU that they keep to, as from `by_kind`.
        slices_per_task: see `slurm_jobs.run.elements`.
        max_running: elements at once, over all arrays; None: any number.
        max_array_size: limit of the site; None: none.
    """
    cut = [
        (kind, *piece)
        for kind, slices in kinds.items()
        for piece in _cut(tuple(slices), slices_per_task, max_array_size)
    ]
    shares = share_out(max_running, len(cut))
    return tuple(
        Piece(
            slices=chosen,
            gpu_kept=kind,
            slices_per_task=packed,
            max_running=share if share is not None else max_running,
            after_previous=share is None and max_running is not None and number > 0,
        )
        for number, ((kind, chosen, packed), share) in enumerate(zip(cut, shares, strict=True))
    )


def _cut(
    slices: tuple[int, ...], slices_per_task: int, size: int | None
) -> list[tuple[tuple[int, ...], int | None]]:
    """Return the slices of each array, and its slices per task.

    Slices whose numbers fit are array indices; the others are counted from 0 in separate arrays.
    """
    cut: list[tuple[tuple[int, ...], int | None]] = []
    rest = slices
    if slices_per_task == 1:
        by_number = tuple(i for i in rest if size is None or i < size)
        rest = rest[len(by_number) :]
        if by_number:
            cut.append((by_number, None))
    length = len(rest) if size is None else size * slices_per_task
    starts = range(0, len(rest), max(1, length))
    return [*cut, *((rest[start : start + length], slices_per_task) for start in starts)]


def share_out(max_running: int | None, num_pieces: int) -> list[int | None]:
    """Divide a throttle among arrays that run at the same time; None where it is too small.

    Slurm throttles each array separately.
    """
    if max_running is None or max_running < num_pieces:
        return [None] * num_pieces
    least, more = divmod(max_running, num_pieces)
    return [least + (number < more) for number in range(num_pieces)]


def pack_for(
    num_missing: Mapping[str, Sequence[int]], given: Mapping[str, int], room: int | None
) -> Mapping[str, int]:
    """Return slices per task by stage, so that all tasks together fit into `room`.

    Args:
        num_missing: slices to submit by stage, of each kind that must stay apart; 1 for a stage
            without an array.
        given: slices a task by stage, as the spec says; more are taken if they must.
        room: array elements and jobs that may still be queued; None: any number.

    Returns:
        The spec's own numbers, or the smallest common number that fits. If nothing
        fits, every stage's slices are in one task each: the caller sees that by counting.
    """
    packed = {stage: given.get(stage, 1) for stage in num_missing}
    if room is None:
        return packed
    most = max((number for numbers in num_missing.values() for number in numbers), default=1)
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if num_tasks(num_missing, _at_least(packed, middle)) <= room:
            high = middle
        else:
            low = middle + 1
    return _at_least(packed, low)


def _at_least(packed: Mapping[str, int], least: int) -> dict[str, int]:
    return {stage: max(number, least) for stage, number in packed.items()}


def num_tasks(num_missing: Mapping[str, Sequence[int]], packed: Mapping[str, int]) -> int:
    """Return the number of array elements and jobs over all stages."""
    return sum(
        -(-number // packed[stage]) for stage, numbers in num_missing.items() for number in numbers
    )
