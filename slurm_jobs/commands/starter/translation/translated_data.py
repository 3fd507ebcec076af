"""Data of another tool's training, as `init` writes them: one manifest, or a list of several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from slurm_jobs.commands.starter.joined_data import held_out_entries, joined_data
from slurm_jobs.commands.starter.other_tools.start_point import AwaitedData, StartData, StartPoint
from slurm_jobs.commands.starter.starter_facts import Data
from slurm_jobs.commands.starter.training_data import FoundData, TrainingDataSearch, as_named


def find_translated_data(
    start: StartPoint, *, folder: Path, name: str, image_root: Path | None
) -> FoundData:
    """Return the data that another tool's file names, also if they are not here yet.

    Args:
        start: What the file names.
        folder: Folder of the spec.
        name: Name of the spec.
        image_root: Folder that the paths of images start from, if it is known.

    Raises:
        InputError: data that are here cannot be read.
    """
    if not start.data:
        assert start.awaited is not None
        return _awaited(start.awaited, folder)
    found = []
    for number, each in enumerate(start.data, 1):
        own_name = name if number == 1 else f"{name}-{number}"
        search = TrainingDataSearch(folder, own_name, image_root, each.columns)
        one = search.search(each.path)
        found.append(_as_in_file(one, each))
        _draw_at_most(start.training.count("max_rows"), one)
    joined = joined_data(found)
    if start.held_out and joined.data.written_evaluation is None:
        _hold_out(joined, start, folder, image_root)
    joined.notes += [f"left out: {name}" for name in start.left_out]
    return joined


def _awaited(awaited: AwaitedData, folder: Path) -> FoundData:
    manifest = as_named(awaited.path, folder)
    data = Data(manifest=manifest)
    if awaited.proportion:
        data = replace(data, entries=({"path": manifest, **awaited.proportion},))
    found = FoundData(data=data)
    how = f"; get them with `{awaited.download}`" if awaited.download else ""
    found.notes.append(
        f"data: {awaited.path} is not here yet{how}; then repeat this command with --replace"
    )
    return found


def _as_in_file(found: FoundData, given: StartData) -> FoundData:
    """Add the share that the tool's file gives a data set."""
    if given.proportion:
        lost = [key for key in found.proportion if key not in given.proportion]
        if lost:
            found.notes.append(f"{lost[0]} of {found.name} has no effect, because it has a weight")
        found.proportion = given.proportion
    return found


def _draw_at_most(max_rows: int | None, found: FoundData) -> None:
    """Draw no more rows of a data set than the tool's file allows for each."""
    num_rows = found.proportion.get("num_samples", found.data.num_rows)
    if max_rows is None or num_rows is None or "weight" in found.proportion:
        return
    if 0 < max_rows < num_rows:
        found.proportion = {"num_samples": max_rows}


def _hold_out(joined: FoundData, start: StartPoint, folder: Path, image_root: Path | None) -> None:
    """Add the held-out rows that the tool's file names."""
    held_out = []
    for number, path in enumerate(start.held_out, 1):
        name = f"heldout-{number}"
        held_out.append(TrainingDataSearch(folder, name, image_root).search(path))
        joined.notes.append(f"evaluation: {path}")
        joined.texts |= held_out[-1].texts
    data, first = joined.data, held_out[0].data
    is_alike = (first.columns, first.image_root) == (data.columns, data.image_root)
    if len(held_out) == 1 and not data.entries and is_alike:
        joined.data = replace(data, evaluation=first.manifest)
    else:
        joined.data = replace(data, evaluations=held_out_entries(held_out))
