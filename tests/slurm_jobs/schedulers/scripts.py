"""Batch scripts of a spec as `plan` prints them, from files that live in memory alone."""

from slurm_jobs.cluster.limits import NO_LIMITS, ClusterLimits
from slurm_jobs.commands.plan_preview import render_scripts
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.spec.load import load_spec
from slurm_jobs.spec.spec_files import Files

FOLDER = "/shared/project"


def scripts(
    spec: str,
    profile: str = "python: /shared/env/bin/python\n",
    limits: ClusterLimits = NO_LIMITS,
) -> dict[str, str]:
    """Script by stage (`stage 2` for a second job), through submitit; nothing is submitted."""
    texts = {f"{FOLDER}/spec.yaml": spec, f"{FOLDER}/cluster.yaml": profile}

    def read_text(path: str) -> str:
        if path not in texts:
            raise FileNotFoundError(path)
        return texts[path]

    files = Files(read_text=read_text, exists=lambda path: path in texts)
    loaded = load_spec(f"{FOLDER}/spec.yaml", files)
    assert loaded.profile is not None
    plan = make_plan(loaded.spec, loaded.profile, limits=limits)
    found: dict[str, str] = {}
    for job, text in zip(plan.jobs, render_scripts(loaded, loaded.profile, plan), strict=True):
        number = sum(name.partition(" ")[0] == job.stage for name in found)
        found[job.stage if not number else f"{job.stage} {number + 1}"] = text
    return found
