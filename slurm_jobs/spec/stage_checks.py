"""What a built-in stage's config and its resources must agree on. PURE."""

from __future__ import annotations

from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.spec.model import Stage
from slurm_jobs.spec.validation import problem_at
from slurm_jobs.spec.yaml_values import YamlDocument


def stage_problems(name: str, stage: Stage, config: Any, document: YamlDocument) -> list[Problem]:
    """Contradictions that would only show hours later, in the job."""
    if stage.run == "train":
        return _train_problems(name, stage, config, document)
    return []


def _train_problems(
    name: str, stage: Stage, config: Any, document: YamlDocument
) -> list[Problem]:
    problems = []
    resources = stage.resources
    num_ranks = resources.nodes * resources.tasks_per_node
    if config.device == "cuda" and resources.gpus_per_node < resources.tasks_per_node:
        message = (
            f"stage `{name}` trains on GPUs with {resources.tasks_per_node} ranks a node, but "
            f"resources.gpus_per_node is {resources.gpus_per_node}; ask for one a rank, or say "
            "`device: cpu` in its config"
        )
        place = ("stages", name, "resources")
        problems.append(problem_at(document, place, message, at_key=True))
    if config.strategy == "fsdp2" and num_ranks < 2:
        message = (
            f"stage `{name}` shards with fsdp2, which needs two ranks or more, but nodes x "
            f"tasks_per_node is {num_ranks}; ask for more, or say `strategy: single`"
        )
        place = ("stages", name, "config")
        problems.append(problem_at(document, place, message, at_key=True))
    if config.strategy == "single" and num_ranks > 1:
        message = (
            f"stage `{name}` has {num_ranks} ranks, but `strategy: single` uses one; "
            "say `strategy: fsdp2`, or ask for one rank"
        )
        place = ("stages", name, "config", "strategy")
        problems.append(problem_at(document, place, message))
    problems += _lane_problems(name, num_ranks, config, document)
    return problems


def _lane_problems(
    name: str, num_ranks: int, config: Any, document: YamlDocument
) -> list[Problem]:
    problems = []
    place = ("stages", name, "config", "num_lanes")
    if config.num_lanes % num_ranks:
        message = (
            f"stages.{name}.config.num_lanes: {config.num_lanes} lanes cannot be shared out "
            f"evenly to {num_ranks} ranks; take a multiple of {num_ranks}"
        )
        problems.append(problem_at(document, place, message))
    if config.global_batch_size % config.num_lanes:
        message = (
            f"stages.{name}.config.global_batch_size: {config.global_batch_size} samples cannot "
            f"be cut into {config.num_lanes} equal lanes; take a multiple of {config.num_lanes}"
        )
        problems.append(problem_at(document, (*place[:-1], "global_batch_size"), message))
    return problems
