"""Data set that a user names in a list of another tool: `dataset_info.json::mllm_demo`."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.formats.manifests.containers.data_set_lists import (
    NAME_OF_LIST,
    ListedSet,
    read_data_sets,
)

_MARK = "::"
_ALL = "*"
_MAX_NAMED = 8


def all_listed(path: Path) -> list[Path]:
    """Return the data sets of a list that `LIST::*` means, as `LIST::NAME`; others mean themselves.

    Raises:
        InputError: the list does not exist, or one of its data sets cannot be read.
    """
    file, _, name = str(path).partition(_MARK)
    data_sets = _data_sets(Path(file)) if name == _ALL else None
    if data_sets is None:
        return [path]
    return [Path(f"{file}{_MARK}{each.name}") for each in data_sets]


def _data_sets(place: Path) -> list[ListedSet] | None:
    """Return the data sets of a list, or of a folder with one; None if it is none."""
    file = place / NAME_OF_LIST if (place / NAME_OF_LIST).is_file() else place
    return read_data_sets(file) if file.is_file() else None


def listed_data(path: Path) -> ListedSet | None:
    """Return the data set that a path means in a list; None if it means no list.

    Args:
        path: the list or LLaMA-Factory's folder with one, followed by `::NAME` if there are several
            data sets that can be read.

    Raises:
        InputError: there is no such data set, it cannot be read, or the name is missing.
    """
    file, _, name = str(path).partition(_MARK)
    place = Path(file)
    place = place / NAME_OF_LIST if (place / NAME_OF_LIST).is_file() else place
    data_sets = _data_sets(place)
    if data_sets is None:
        return None
    by_name = {each.name: each for each in data_sets}
    usable = [each.name for each in data_sets if not each.problem]
    if not name and len(usable) == 1:
        return by_name[usable[0]]
    if not name and len(data_sets) == 1:
        name = data_sets[0].name
    if not name:
        named = ", ".join(usable[:_MAX_NAMED]) + (", ..." if len(usable) > _MAX_NAMED else "")
        message = (
            f"{place} lists {len(data_sets)} data sets; name one, `--data {file}{_MARK}NAME`, or "
            f"mix all, `--data '{file}{_MARK}{_ALL}'` "
            f"(these can be read: {named or 'none'})"
        )
        raise InputError(message)
    chosen = by_name.get(name)
    if chosen is None:
        message = f"{place} has no data set `{name}`{did_you_mean(name, by_name)}"
        raise InputError(message)
    if chosen.problem:
        message = f"{place}: data set `{name}` cannot be read: {chosen.problem}"
        raise InputError(message)
    return chosen
