"""Pieces of a stage: the arrays that cover its slices within the limits of the site. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_jobs.plan.planned import SliceRequest
from slurm_jobs.run_folder.orders import array_indices


@dataclass(frozen=True, kw_only=True, slots=True)
class ArrayPiece:
    """Slices of one job array, or of one job without an array."""

    slices: tuple[int, ...]
    request: SliceRequest
    """Request of all of them."""
    slices_per_task: int | None
    """Slices of each array task; see `slurm_jobs.run_folder.orders`."""
    max_running: int | None
    after_previous: bool = False
    """Wait for the previous piece: together they would exceed `max_running`."""


def by_request(
    slices: Sequence[int], requests: Mapping[int, SliceRequest]
) -> dict[SliceRequest, tuple[int, ...]]:
    """Group the slices (ascending) by their own requests; one without has an empty request."""
    groups: dict[SliceRequest, list[int]] = {}
    for index in slices:
        groups.setdefault(requests.get(index, SliceRequest()), []).append(index)
    return {request: tuple(group) for request, group in groups.items()}


def cut_slices(
    alike: Mapping[SliceRequest, Sequence[int]],
    *,
    slices_per_task: int,
    max_running: int | None,
    max_array_size: int | None,
) -> tuple[ArrayPiece, ...]:
    """Return arrays that cover the slices, each of one request and within `max_array_size`.

    Args:
        alike: the slices (ascending) by their own requests, as from `by_request`.
        slices_per_task: see `slurm_jobs.run_folder.orders`.
        max_running: elements at once, over all arrays; None: any number.
        max_array_size: limit of the site; None: none.
    """
    cut: list[tuple[SliceRequest, tuple[int, ...], int | None]] = []
    for request, slices in alike.items():
        rest = tuple(slices)
        if slices_per_task == 1:
            # Slices whose numbers fit are array indices; the others are counted from 0 in separate
            # arrays.
            by_number = tuple(i for i in rest if max_array_size is None or i < max_array_size)
            rest = rest[len(by_number) :]
            cut += [(request, by_number, None)] if by_number else []
        length = len(rest) if max_array_size is None else max_array_size * slices_per_task
        starts = range(0, len(rest), max(1, length))
        cut += [(request, rest[start : start + length], slices_per_task) for start in starts]
    shares = share_out(max_running, [len(array_indices(piece[1], piece[2])) for piece in cut])
    return tuple(
        ArrayPiece(
            slices=chosen,
            request=request,
            slices_per_task=packed,
            max_running=share if share is not None else max_running,
            after_previous=share is None and max_running is not None and number > 0,
        )
        for number, ((request, chosen, packed), share) in enumerate(zip(cut, shares, strict=True))
    )


def share_out(max_running: int | None, num_tasks: Sequence[int]) -> list[int | None]:
    """Divide `max_running` among arrays that run at the same time, given the tasks of each.

    Slurm throttles each array separately. Each may run one task, and the rest of `max_running` is
    in proportion to their other tasks, so that all end at about the same time. If there are more
    arrays than `max_running`, each gets None, and they must run one after the other.
    """
    num_arrays = len(num_tasks)
    if max_running is None or max_running < num_arrays:
        return [None] * num_arrays
    weights = [number - 1 for number in num_tasks] if max(num_tasks) > 1 else [1] * num_arrays
    wholes, rests = [], []
    for weight in weights:
        whole, rest = divmod((max_running - num_arrays) * weight, sum(weights))
        wholes.append(1 + whole)
        rests.append(rest)
    by_rest = sorted(range(num_arrays), key=lambda number: -rests[number])
    rounded_up = by_rest[: max_running - sum(wholes)]
    return [whole + (number in rounded_up) for number, whole in enumerate(wholes)]


def pack_for(
    num_missing: Mapping[str, Sequence[int]], given: Mapping[str, int], room: int | None
) -> Mapping[str, int]:
    """Return slices per task by stage, so that all tasks together fit into `room`.

    Args:
        num_missing: by stage, the number of slices to submit for each request; `[1]` without an
            array.
        given: the spec's slices per task by stage; raised if the tasks do not fit.
        room: array elements and jobs that may still be queued; None: any number.

    Returns:
        The spec's own numbers, or the smallest common number that fits. If nothing fits, one task
        for each stage and request; compare `num_tasks` with `room`.
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
