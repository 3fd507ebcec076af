"""Batch scripts of a spec as `plan` prints them, from files that live in memory alone."""

from slurm_jobs.cli.plan import render_scripts
from slurm_jobs.plan import make_plan
from slurm_jobs.spec.loader import Files, load_spec

FOLDER = "/shared/project"


def scripts(spec: str, profile: str = "python: /shared/env/bin/python\n") -> dict[str, str]:
    """Script by stage, through submitit; nothing is submitted."""
    texts = {f"{FOLDER}/spec.yaml": spec, f"{FOLDER}/cluster.yaml": profile}

    def read_text(path: str) -> str:
        if path not in texts:
            raise FileNotFoundError(path)
        return texts[path]

    files = Files(read_text=read_text, exists=lambda path: path in texts)
    loaded = load_spec(f"{FOLDER}/spec.yaml", files)
    assert loaded.profile is not None
    return render_scripts(loaded, make_plan(loaded.spec, loaded.profile))
