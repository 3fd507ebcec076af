"""Errors of the stage for downloads that failed: what happened, and the command that helps."""

from __future__ import annotations

import shlex

from huggingface_hub import constants

from pipeline.models.hub import DownloadFailure, failure_text
from slurm_jobs.base.errors import FullDiskError, StageConfigError, StageError
from slurm_jobs.base.units import num_bytes as bytes_text
from slurm_jobs.formats.configs.download import RepositoryRequest
from slurm_jobs.formats.records.task_context import TaskContext, resume_command


def failed_download(
    failure: DownloadFailure, request: RepositoryRequest, context: TaskContext, commit: str | None
) -> StageError:
    """Return the error to raise; one that a retry cannot fix is a StageConfigError."""
    again = resume_command(context.run_dir)
    if failure.kind in {"no space", "no access"}:
        place = getattr(failure.cause, "filename", None) or context.output_dir
        if failure.kind == "no space":
            message = (
                f"{request.folder} cannot be downloaded: the disk of {place} is full, or your "
                f"quota is used up. Make room, then `{again}`: complete files are kept"
            )
            return FullDiskError(message)
        message = (
            f"{request.folder} cannot be downloaded: {context.node_name} cannot write to {place}. "
            "Set `runs_dir` to a folder of yours that all nodes see"
        )
        return StageConfigError(message)
    setting = f"stages.{context.stage}.config.mirror=FOLDER"
    resumes = [("--set", setting)]
    elsewhere = (
        f"type `{_command(request, commit)}` where there is a network, copy FOLDER to where the "
        f"nodes read it, then `{resume_command(context.run_dir, '--set', setting)}`"
    )
    if failure.kind == "offline":
        message = (
            f"{request.folder} cannot be downloaded, because HF_HUB_OFFLINE is set for this job. "
            f'If its node has a network, set `environment: {{HF_HUB_OFFLINE: "0"}}` for stage '
            f"`{context.stage}`, or {elsewhere}"
        )
        return StageConfigError(message, resumes=resumes)
    if failure.kind == "unreachable":
        message = (
            f"{request.folder} cannot be downloaded: {context.node_name} does not reach "
            f"{constants.ENDPOINT} ({type(failure.cause).__name__}). Choose a partition with a "
            f"network in `resources.slurm`, or {elsewhere}"
        )
        return StageError(message, resumes=resumes)  # a short fault may be over
    message = failure_text(failure, request.folder, request.revision, elsewhere=elsewhere)
    return StageError(message) if failure.is_transient else StageConfigError(message)


def no_room(needed_bytes: int, free_bytes: int, context: TaskContext) -> FullDiskError:
    """Return the error for a disk that has no room for the files that are still missing."""
    message = (
        f"the files that are still to be downloaded have {bytes_text(needed_bytes)}, and "
        f"{context.output_dir} has {bytes_text(free_bytes)} free. Make room, or set `runs_dir` to "
        f"a larger disk, then `{resume_command(context.run_dir)}`: complete files are kept"
    )
    return FullDiskError(message)


def _command(request: RepositoryRequest, commit: str | None) -> str:
    revision = commit or request.revision
    words = ["hf", "download", request.repo]
    words += ["--repo-type", "dataset"] if request.kind == "dataset" else []
    words += [] if revision is None else ["--revision", revision]
    return f"{shlex.join(words)} --local-dir FOLDER/{request.folder}"
