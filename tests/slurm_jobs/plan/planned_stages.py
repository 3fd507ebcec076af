"""A spec of five stages, and its plan."""

from typing import Any

from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import Done, Plan
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile


def spec(**changes: dict[str, Any]) -> RunSpec:
    """fetch -> tokens (4 slices) -> train -> report (afterany), mend (afternotok of tokens)."""
    stages: dict[str, dict[str, Any]] = {
        "fetch": {"run": "own:fetch", "config": {"url": "x"}},
        "tokens": {
            "run": "own:tokens",
            "after": "fetch",
            "array": {"num_slices": 4, "max_running": 2},
        },
        "train": {
            "run": "own:train",
            "after": "tokens",
            "resources": {"nodes": 2, "gpus_per_node": 4, "timeout_min": 90},
        },
        "report": {"run": "report", "after": {"train": "afterany"}},
        "mend": {"shell": "make mend", "after": {"tokens": "afternotok"}},
    }
    for name, values in changes.items():
        stages[name] = {**stages[name], **values}
    return RunSpec.model_validate({"name": "a", "cluster": "local", "stages": stages})


def plan(given: RunSpec | None = None, done: Done | None = None, code: str = "c") -> Plan:
    return make_plan(given or spec(), ClusterProfile(), code_fingerprint=code, done=done)
