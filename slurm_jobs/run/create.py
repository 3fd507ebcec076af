"""Creation of a run folder: private, and complete before the first job is submitted."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import time
from dataclasses import asdict
from pathlib import Path

from slurm_jobs import __version__
from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.errors import InputError
from slurm_jobs.common.files import (
    PRIVATE_DIR_MODE,
    make_private_dir,
    write_json_atomic,
    write_text_atomic,
)
from slurm_jobs.run.model import RunMeta
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.spec.loader import LoadedSpec
from slurm_jobs.spec.model import RunSpec


def create_run(
    loaded: LoadedSpec, profile: ClusterProfile, *, cluster_name: str | None = None
) -> RunPaths:
    """Create the folder of a new run and record the request.

    Args:
        loaded: the spec.
        profile: of its cluster.
        cluster_name: name that Slurm gives the cluster, if any.

    Raises:
        InputError: the folder cannot be created.
    """
    created_unix_s = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(created_unix_s))
    runs_dir = Path(loaded.spec.runs_dir)
    paths = RunPaths(runs_dir / f"{loaded.spec.name}-{stamp}-{secrets.token_hex(2)}")
    try:
        make_private_dir(runs_dir)
        paths.run_dir.mkdir(mode=PRIVATE_DIR_MODE)
        paths.given_spec.parent.mkdir(mode=PRIVATE_DIR_MODE)
    except OSError as error:
        message = f"runs_dir: cannot make {paths.run_dir}: {error.strerror}"
        raise InputError(message) from error
    _write_spec(paths, loaded, profile)
    meta = RunMeta(
        run_id=paths.run_dir.name,
        name=loaded.spec.name,
        created_unix_s=created_unix_s,
        submitted_by=getpass.getuser(),
        host=socket.gethostname(),
        scheduler=profile.scheduler,
        version=__version__,
        spec_file=loaded.file,
        max_cpus=profile.max_cpus,
        cluster_name=cluster_name,
        uid=os.getuid(),
    )
    write_json_atomic(paths.run_json, asdict(meta))
    return paths


def _write_spec(paths: RunPaths, loaded: LoadedSpec, profile: ClusterProfile) -> None:
    write_text_atomic(paths.given_spec, loaded.text)
    write_resolved_spec(paths, loaded.spec)
    origin = {
        "profile": profile.model_dump(mode="json"),
        "spec_file": loaded.file,
        "spec_dir": loaded.spec_dir,
        "overrides": list(loaded.overrides),
        "num_submitted_overrides": len(loaded.overrides),  # resumes add theirs
    }
    write_json_atomic(paths.spec_origin, origin)


def write_resolved_spec(paths: RunPaths, spec: RunSpec) -> None:
    """Write the complete spec; its stages keep the file's order, which status uses."""
    write_text_atomic(paths.resolved_spec, spec.model_dump_json(indent=1) + "\n")
