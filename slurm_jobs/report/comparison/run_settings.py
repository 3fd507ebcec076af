"""Inputs of a run as flat names and values, and differences between two arms. PURE."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slurm_jobs.report.comparison.comparison_model import Difference, RunMeasure
from slurm_jobs.report.inputs.run_inputs import ReportInputs, StageInputs

ABSENT = "-"
"""Shown for a setting that a run does not have."""
TRAINING = "train"
"""Name of the compared stage, regardless of its name in each spec."""
DIFFERS_BETWEEN_REPEATS = ("node.", f"{TRAINING}.config.seed", f"{TRAINING}.config.profile.")
"""Prefixes of settings in which repeats may differ: Slurm chooses the nodes, another seed is a
valid repeat, and steps that were profiled are excluded."""
_OTHER_STAGE = "stage "
_WHOLE = "only here"
_RUN_WIDE = ("environment", "setup", "limit")
"""Keys of the spec that affect all stages."""
_CLUSTER_WIDE = ("environment", "setup", "python", "node_local_dir", "slurm", "gpu_slurm")
"""Keys of the cluster profile."""
_NO_SETTING = frozenset({"name", "run", "after", "description"})
"""Keys of a stage in the resolved spec that are not settings."""


def settings_of(inputs: ReportInputs, stage: StageInputs, num_ranks: int) -> dict[str, str]:
    """Return all known inputs of `stage` and its nodes, with secrets hidden."""
    flat = {"num_ranks": str(num_ranks)}
    for name, values in inputs.spec["stages"].items():
        if values.get("run") == "report":
            continue
        settings = {key: value for key, value in values.items() if key not in _NO_SETTING}
        flat |= dict(
            _flatten(settings, TRAINING if name == stage.name else f"{_OTHER_STAGE}{name}")
        )
    for name in _RUN_WIDE:
        flat |= dict(_flatten(inputs.spec.get(name), f"run.{name}"))
    for name in _CLUSTER_WIDE:
        flat |= dict(_flatten(inputs.profile.get(name), f"cluster.{name}"))
    if inputs.submissions:
        newest = inputs.submissions[-1]
        dirty = " with uncommitted changes" if newest.is_dirty else ""
        flat["code"] = f"{newest.commit or 'not known'}{dirty}"
        flat["slurm-jobs"] = newest.slurm_jobs_version
    of_nodes: defaultdict[str, set[str]] = defaultdict(set)
    for node in stage.nodes:
        of_nodes["node.cpu"].add(node.cpu)
        of_nodes["node.gpus"].update(node.gpus)
        of_nodes["node.driver"].update(node.drivers)
        python = inputs.pythons.get(node.python)
        if python is not None:
            of_nodes["python"].add(python.version)
            for name, version in python.packages.items():
                of_nodes[f"package {name}"].add(version)
    return flat | {kind: ", ".join(sorted(values)) for kind, values in of_nodes.items() if values}


def differences(first: Sequence[RunMeasure], second: Sequence[RunMeasure]) -> list[Difference]:
    """Return settings whose values differ between the arms, those of the training first."""

    def order(name: str) -> tuple[bool, bool, str]:
        is_training = name == "num_ranks" or name.startswith(f"{TRAINING}.")
        return name.startswith(_OTHER_STAGE), not is_training, name

    names = sorted({name for run in (*first, *second) for name in run.settings}, key=order)
    both = [
        Difference(name=name, first=_values(first, name), second=_values(second, name))
        for name in names
    ]
    return [setting for setting in both if set(setting.first) != set(setting.second)]


def in_short(
    listed: Sequence[Difference], first: Sequence[RunMeasure], second: Sequence[RunMeasure]
) -> list[Difference]:
    """Return the differences, with only one line for a stage that one arm does not have."""
    in_first, in_second = _groups(first), _groups(second)
    missing = sorted(name for name in in_first ^ in_second if name.startswith(_OTHER_STAGE))
    short = [setting for setting in listed if setting.name.partition(".")[0] not in missing]
    for stage in missing:
        values = (_WHOLE,), (ABSENT,)
        of_first, of_second = values if stage in in_first else reversed(values)
        short.append(Difference(name=stage, first=of_first, second=of_second))
    return short


def _groups(arm: Sequence[RunMeasure]) -> set[str]:
    """Return the first parts of the settings' names, such as `stage preprocess`."""
    return {name.partition(".")[0] for run in arm for name in run.settings}


def unlike_within(arm: Sequence[RunMeasure]) -> list[str]:
    """Return names of settings that the runs of one arm do not share, but repeats would."""
    names = sorted({name for run in arm for name in run.settings})
    settings = [name for name in names if not name.startswith(DIFFERS_BETWEEN_REPEATS)]
    return [name for name in settings if len(_values(arm, name)) > 1]


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
