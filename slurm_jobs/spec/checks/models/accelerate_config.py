"""Check of the file of `strategy: accelerate` against its stage, without accelerate. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import yaml

from slurm_jobs.base.errors import Problem
from slurm_jobs.formats.accelerate_file import SpecValues, find_problems
from slurm_jobs.spec.checked_spec import CheckedSpec

_PLACE = ("config", "accelerate", "config")
_SHARDS_NOT = (
    "distributed_type is FSDP, and the stage's device is cpu, on which accelerate shards nothing "
    "(it would silently train as ddp): set `device: cuda`, or `strategy: fsdp2`"
)


def accelerate_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield the problems of files of accelerate, at the line that names them.

    A file that does not exist, or will be another stage's output, is not read. An invalid setting
    of the stage counts as its default.
    """
    for item in spec.expanded:
        text = spec.files.small_text(item.resolved) if item.path[2:] == _PLACE else None
        if text is None:
            continue
        view = spec.views[str(item.path[1])]
        counts = [view.resources.get(key, 1) for key in ("nodes", "tasks_per_node")]
        num_nodes, num_tasks = (n if type(n) is int and n > 0 else 1 for n in counts)
        config = view.config or {}
        asker = SpecValues(
            num_ranks=num_nodes * num_tasks,
            num_nodes=num_nodes,
            device=str(config.get("device", "cuda")),
            precision=str(config.get("precision", "auto")),
        )
        try:
            values = yaml.safe_load(text)
            messages = find_problems(values, asker)
            is_sharded = isinstance(values, Mapping) and values.get("distributed_type") == "FSDP"
            if is_sharded and asker.device == "cpu":
                messages = [*messages, _SHARDS_NOT]
        except yaml.YAMLError as error:
            described = " ".join(str(error).split())
            messages = [f"not YAML as `accelerate config` writes it: {described}"]
        for message in messages:
            yield spec.problem(item.path, f"{item.given}: {message}")
