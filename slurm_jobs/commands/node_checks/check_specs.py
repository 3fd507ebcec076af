"""Specs of a node check and of a drill, and the facts of the user's spec that checks use."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from slurm_jobs.commands.node_checks.one_stage_spec import (
    OneStage,
    a_task_a_node,
    fits,
    num_named_nodes,
    one_stage_spec,
)
from slurm_jobs.commands.run_search.runs_dir import default_runs_dir
from slurm_jobs.commands.spec_reading.disk_files import disk_files
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.formats.configs.command_stages import DRILL_RUN, NODE_RUN
from slurm_jobs.formats.expand import literal_path
from slurm_jobs.formats.records.job_resources import lead_within
from slurm_jobs.nodes.doctor.site_facts import DRILL_STAGE, NODE_STAGE, SpecFacts
from slurm_jobs.plan.make_plan import options_of
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.load import load_spec
from slurm_jobs.spec.model import Resources
from slurm_jobs.spec.profile import ClusterProfile

NODE_MINUTES = 5.0
"""Time limit; it takes 15 s where everything answers."""
ANSWER_PATIENCE_S = 70.0
"""An NFS client may show a listing that is 30 s old (`acdirmin`), at either end."""
_LEAD_S = 10
_DRILL_MINUTES, _DRILL_LEAD_S = 2.0, 45
"""Slurm checks time limits every 30 s, and may signal a minute early: sbatch(1)."""
_LOCAL_DRILL_MINUTES, _LOCAL_DRILL_LEAD_S = 0.2, 6
_NO_FILE = "no-spec.yaml"


def load_or_make(spec: Path | None, overrides: Sequence[str]) -> LoadedSpec:
    """Load the spec; without one, make a stage without requests for this machine's cluster.

    A separate check, which a dead file system does not delay, tests whether runs can be created.

    Raises:
        SpecError: with every problem found.
    """
    if spec is not None:
        return load(spec, overrides=overrides)
    cluster = "auto" if shutil.which("sbatch") is not None else "local"
    values = {
        "name": "site",
        "cluster": cluster,
        "runs_dir": literal_path(str(default_runs_dir())),
        "stages": {"any": {"shell": "true", "resources": {"timeout_min": 60}}},
    }
    file = str(Path.cwd() / _NO_FILE)
    files = disk_files()

    def read_text(name: str) -> str:
        return json.dumps(values) if name == file else files.read_text(name)

    return load_spec(file, replace(files, read_text=read_text), overrides=tuple(overrides))


def spec_facts(loaded: LoadedSpec, profile: ClusterProfile, source: str) -> SpecFacts:
    """Return the facts of a spec that the checks depend on."""
    stages, stage = loaded.spec.stages.values(), loaded.spec.stages[source]
    options = {  # of sbatch, for a job of each stage
        name: {key.replace("_", "-"): value for key, value in options_of(each, profile).items()}
        for name, each in loaded.spec.stages.items()
    }
    partitions = [each["partition"] for each in options.values() if each.get("partition")]
    pythons = [each.python or profile.python for each in stages]
    checkpoint = stage.config.get("checkpoint") or {} if stage.run == "train" else {}
    resources = stage.resources
    return SpecFacts(
        stage=source,
        is_slurm=profile.scheduler == "slurm",
        trains=any(each.run == "train" for each in stages),
        gpus_per_node=resources.gpus_per_node,
        partitions=tuple(dict.fromkeys(map(str, partitions))),
        lead_s=lead_within(resources.timeout_min, resources.signal_lead_s),
        checkpoint_min=checkpoint.get("every_min"),
        may_requeue=not options[source].get("no-requeue"),
        num_slices=max(each.array.num_slices if each.array else 1 for each in stages),
        pythons=tuple(dict.fromkeys(python for python in pythons if python)),
    )


def node_spec(
    loaded: LoadedSpec, profile: ClusterProfile, source: str, num_nodes: int | None
) -> LoadedSpec:
    """Return a spec with one task on each of some nodes of the stage; two if one job can have them.

    Raises:
        InputError: the spec's `nodelist` is invalid.
    """
    asked = loaded.spec.stages[source].resources

    def with_nodes(number: int) -> LoadedSpec:
        resources = a_task_a_node(asked, num_nodes=number, minutes=NODE_MINUTES, lead_s=_LEAD_S)
        config = {"patience_s": ANSWER_PATIENCE_S}
        stage = OneStage(name=NODE_STAGE, run=NODE_RUN, config=config, resources=resources)
        return one_stage_spec(loaded, source, stage)

    number = num_nodes or num_named_nodes(loaded.spec, source, None, profile)
    if number is None:
        number = 2 if fits(with_nodes(2), profile) else 1
    return with_nodes(number)


def drill_spec(loaded: LoadedSpec, profile: ClusterProfile, source: str) -> LoadedSpec:
    """Return a spec that counts instead of the stage: one node, two ranks if the stage has several.

    srun starts several ranks, and must pass the signal on as well.
    """
    asked = loaded.spec.stages[source].resources
    is_local = profile.scheduler == "local"
    resources: Resources = asked.model_copy(
        update={
            "nodes": 1,
            "tasks_per_node": min(2, asked.nodes * asked.tasks_per_node),
            "cpus_per_task": 1,
            "gpus_per_node": min(1, asked.gpus_per_node),
            "mem_gb": None if asked.mem_gb is None else min(asked.mem_gb, 2.0),
            "timeout_min": _LOCAL_DRILL_MINUTES if is_local else _DRILL_MINUTES,
            "signal_lead_s": _LOCAL_DRILL_LEAD_S if is_local else _DRILL_LEAD_S,
        }
    )
    drill = OneStage(name=DRILL_STAGE, run=DRILL_RUN, config={}, resources=resources)
    return one_stage_spec(loaded, source, drill)
