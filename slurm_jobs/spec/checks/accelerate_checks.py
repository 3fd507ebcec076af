"""Check of `strategy: accelerate`'s file against its stage, without accelerate. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from slurm_jobs.common.accelerate_file import Asker, find_problems
from slurm_jobs.common.errors import Problem
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.graph import StageView, stage_views
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import YamlDocument

_PLACE = ("config", "accelerate", "config")
_SHARDS_NOT = (
    "distributed_type is FSDP, and the stage's device is cpu, on which accelerate shards nothing "
    "(it would silently train as ddp): set `device: cuda`, or `strategy: fsdp2`"
)


def accelerate_problems(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    """Return the problems of files of accelerate, at the line that names them.

    A file that does not exist, or will be another stage's output, is not read.
    """
    views = stage_views(document.value)
    problems = []
    for item in marked:
        text = files.small_text(item.resolved) if item.path[2:] == _PLACE else None
        if text is None:
            continue
        for message in _messages(text, views[str(item.path[1])]):
            told = f"{path_text(item.path)}: {item.given}: {message}"
            problems.append(problem_at(document, item.path, told))
    return problems


def _messages(text: str, view: StageView) -> list[str]:
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return [f"not YAML as `accelerate config` writes it: {' '.join(str(error).split())}"]
    asker = _asker_of(view)
    found = find_problems(values, asker)
    is_sharded = isinstance(values, Mapping) and values.get("distributed_type") == "FSDP"
    return [*found, _SHARDS_NOT] if is_sharded and asker.device == "cpu" else found


def _asker_of(view: StageView) -> Asker:
    """Return the stage's settings; an invalid value counts as its default."""
    resources = view.keys.get("resources")
    config = view.config if isinstance(view.config, dict) else {}
    num_nodes = _count(resources, "nodes")
    return Asker(
        num_ranks=num_nodes * _count(resources, "tasks_per_node"),
        num_nodes=num_nodes,
        device=str(config.get("device", "cuda")),
        precision=str(config.get("precision", "auto")),
    )


def _count(resources: Any, key: str) -> int:
    given = resources.get(key, 1) if isinstance(resources, dict) else 1
    return given if type(given) is int and given > 0 else 1
