"""Inputs of a run as flat names and values, and differences between two arms. PURE."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slurm_jobs.comparison.model import Difference, RunMeasure
from slurm_jobs.report.inputs.records import ReportInputs, StageInputs

ABSENT = "-"
"""Shown for a setting that a run does not have."""
TRAINING = "train"
"""Name of the compared stage, regardless of its name in each spec."""
OWN_OF_A_RUN = ("node.", f"{TRAINING}.config.seed", f"{TRAINING}.config.profile.")
"""Prefixes of settings in which repeats may differ: Slurm chooses the nodes, another seed is a
valid repeat, and steps that were profiled are excluded."""
_OTHER_STAGE = "stage "
_WHOLE = "a stage of its own"
_RUN_WIDE = ("environment", "setup", "limit")
"""Keys of the spec that affect all stages."""
_CLUSTER_WIDE = ("environment", "setup", "python", "node_local_dir", "slurm", "gpu_slurm")
"""Keys of the cluster profile."""
_NO_SETTING = frozenset({"name", "run", "after", "description"})
"""Keys of a stage in the resolved spec that are no setting."""


def settings_of(inputs: ReportInputs, stage: StageInputs, num_ranks: int) -> dict[str, str]:
    """Return all known inputs of `stage` and its nodes, with secrets hidden."""
    flat = {"num_ranks": str(num_ranks)}
    for name, values in inputs.spec["stages"].items():
        if values.get("run") == "report":
            continue
        own = {key: value for key, value in values.items() if key not in _NO_SETTING}
        flat |= dict(_flatten(own, TRAINING if name == stage.name else f"{_OTHER_STAGE}{name}"))
    for name in _RUN_WIDE:
        flat |= dict(_flatten(inputs.spec.get(name), f"run.{name}"))
    for name in _CLUSTER_WIDE:
        flat |= dict(_flatten(inputs.profile.get(name), f"cluster.{name}"))
    if inputs.submissions:
        newest = inputs.submissions[-1]
        dirty = " with uncommitted changes" if newest.is_dirty else ""
        flat["code"] = f"{newest.commit or 'not known'}{dirty}"
        flat["slurm-jobs"] = newest.slurm_jobs_version
    for kind, values in _of_nodes(inputs, stage).items():
        flat[kind] = ", ".join(sorted(values))
    return flat


def differences(first: Sequence[RunMeasure], second: Sequence[RunMeasure]) -> list[Difference]:
    """Return settings of which the arms have different sets of values: the training's first."""
    names = sorted({name for run in (*first, *second) for name in run.settings}, key=_weight)
    found = [
        Difference(name=name, first=_values(first, name), second=_values(second, name))
        for name in names
    ]
    return [one for one in found if set(one.first) != set(one.second)]


def _weight(name: str) -> tuple[bool, bool, str]:
    """Return the sort key: the compared training, then the run, then its other stages."""
    is_own = name == "num_ranks" or name.startswith(f"{TRAINING}.")
    return name.startswith(_OTHER_STAGE), not is_own, name


def in_short(
    found: Sequence[Difference], first: Sequence[RunMeasure], second: Sequence[RunMeasure]
) -> list[Difference]:
    """Return the differences, with only one line for a stage that one arm does not have."""
    stages = [_stages(first), _stages(second)]
    whole = {
        stage: Difference(name=stage, first=sides[0], second=sides[1])
        for stage in sorted(stages[0] ^ stages[1])
        for sides in [[(_WHOLE if stage in arm else ABSENT,) for arm in stages]]
    }
    others = [one for one in found if one.name.partition(".")[0] not in whole]
    return [*others, *whole.values()]


def _stages(arm: Sequence[RunMeasure]) -> set[str]:
    """Return the stages other than the training that any run of an arm has."""
    names = (name.partition(".")[0] for run in arm for name in run.settings)
    return {name for name in names if name.startswith(_OTHER_STAGE)}


def unlike_within(arm: Sequence[RunMeasure]) -> list[str]:
    """Return names of settings that the runs of one arm do not share, but repeats would."""
    names = sorted({name for run in arm for name in run.settings})
    own = [name for name in names if not name.startswith(OWN_OF_A_RUN)]
    return [name for name in own if len(_values(arm, name)) > 1]


def _values(arm: Sequence[RunMeasure], name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run.settings.get(name, ABSENT) for run in arm))


def _flatten(value: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield nested mappings by dotted names, list items by number; other values as JSON.

    Strings have no quotes, and null values are omitted.
    """
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flatten(inner, f"{prefix}.{key}")
    elif isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        for number, inner in enumerate(value):
            yield from _flatten(inner, f"{prefix}[{number}]")
    elif isinstance(value, str):
        yield prefix, value
    elif value is not None and value not in ({}, []):
        yield prefix, json.dumps(value, sort_keys=True)


def _of_nodes(inputs: ReportInputs, stage: StageInputs) -> dict[str, set[str]]:
    """Return kinds of processors and GPUs, drivers, and package versions of all its nodes."""
    found: dict[str, set[str]] = {}
    for node in stage.nodes:
        found.setdefault("node.cpu", set()).add(node.cpu)
        found.setdefault("node.gpus", set()).update(node.gpus)
        found.setdefault("node.driver", set()).update(node.drivers)
        python = inputs.pythons.get(node.python)
        if python is not None:
            found.setdefault("python", set()).add(python.version)
            for name, version in python.packages.items():
                found.setdefault(f"package {name}", set()).add(version)
    return {kind: values for kind, values in found.items() if values}
