"""Checks of the files and folders that a spec or a profile names, as far as visible. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.errors import Problem
from slurm_jobs.spec.checks.accelerate_checks import accelerate_problems
from slurm_jobs.spec.checks.dataset_checks import dataset_problems
from slurm_jobs.spec.checks.image_checks import image_pixels_problems, image_problems
from slurm_jobs.spec.checks.image_place_checks import image_place_problems
from slurm_jobs.spec.checks.manifest_checks import manifest_problems
from slurm_jobs.spec.checks.model_checks import model_problems
from slurm_jobs.spec.checks.path_checks import path_problems, runs_dir_problems
from slurm_jobs.spec.checks.processor_checks import processor_problems
from slurm_jobs.spec.checks.target_checks import target_problems
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.yaml_values import YamlDocument


def file_problems(
    marked: Sequence[MarkedString],
    document: YamlDocument,
    files: Files,
    profile: ClusterProfile | None,
) -> list[Problem]:
    """Return the problems of the files that a spec names."""
    problems = named_path_problems(marked, document, files, profile)
    marked = [item for item in marked if not item.problem]
    return [
        *problems,
        *processor_problems(marked, document, files.holds, files.read_text),
        *manifest_problems(marked, document, files),
        *image_place_problems(marked, document, files),
        *dataset_problems(marked, document, files),
        *model_problems(marked, document, files),
        *target_problems(document, marked, files),
        *image_problems(marked, document, files),
        *image_pixels_problems(marked, document, files),
        *accelerate_problems(marked, document, files),
        *runs_dir_problems(marked, document, files.write_obstacle),
    ]


def named_path_problems(
    marked: Sequence[MarkedString],
    document: YamlDocument,
    files: Files,
    profile: ClusterProfile | None,
) -> list[Problem]:
    """Return paths of a spec or a profile that are invalid, or do not exist but must."""
    runs_here = profile is not None and profile.scheduler == "local"
    return path_problems(marked, document, files.holds, runs_here=runs_here)
