"""Stage `download`: every repository of the config becomes a folder in the output."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.download.download_errors import failed_download, no_room
from pipeline.download.mirror import link_mirrored
from pipeline.download.received_bytes import ReceivedBytes, check_stop, megabytes
from pipeline.download.repository_files import RepositoryDownload, is_complete, missing_bytes
from pipeline.download.repository_plan import (
    RepositoryPaths,
    RepositoryPlan,
    plan_repository,
    stored_plan,
)
from pipeline.models.hub import DOWNLOAD_ERRORS, download_failure
from pipeline.stopping import NEAR_S
from slurm_jobs.base.errors import StageConfigError, StageStoppedError
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.download import DownloadConfig, RepositoryRequest, requests_of
from slurm_jobs.formats.records.progress_file import Progress
from slurm_jobs.formats.records.stage_outputs import describe_outputs
from slurm_jobs.formats.records.task_context import TaskContext

log = logging.getLogger(__name__)

_MOST_OUTPUTS = 10_000
"""Number of files above which the result does not list them: a resume would ask for each."""


def run(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Download the repositories, or link those of a mirror.

    Raises:
        StageConfigError: a repository or revision does not exist or may not be read, the disk is
            full, or the time limit is too short.
        StageError: the hub cannot be reached or failed; complete files are kept.
        StageStoppedError: a stop was requested; complete files are kept.
    """
    started_s = time.perf_counter()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # They log addresses, and those of a storage server are signed: whoever has one may read.
    for name in ("httpx", "httpx2", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.ERROR)
    stage = build_config(DownloadConfig, config)
    places = [
        RepositoryPaths(output_dir=context.output_dir, request=request)
        for request in requests_of(stage)
    ]
    commits: dict[str, str | None] = {}
    if stage.mirror is not None:
        for paths in places:
            commits[paths.request.folder] = link_mirrored(Path(stage.mirror), paths)
    else:
        plans = [_plan(paths, context) for paths in places]
        _download_all(places, plans, stage, context)
        commits = {plan.request.folder: plan.commit for plan in plans}
    return {**_result(places, commits), "duration_s": round(time.perf_counter() - started_s, 3)}


def _plan(paths: RepositoryPaths, context: TaskContext) -> RepositoryPlan:
    plan = stored_plan(paths)
    if plan is None:
        check_stop()
        shutil.rmtree(paths.files, ignore_errors=True)  # of another revision, perhaps
        with _explained(paths.request, context, None):
            plan = plan_repository(paths)
    log.info(
        "%s at commit %s: %d files, %d MB",
        plan.request.folder, plan.commit, len(plan.files), megabytes(plan.num_bytes),
    )  # fmt: skip
    return plan


def _download_all(
    places: Sequence[RepositoryPaths],
    plans: Sequence[RepositoryPlan],
    stage: DownloadConfig,
    context: TaskContext,
) -> None:
    started_unix_s = time.time()
    waiting = [
        (paths, plan)
        for paths, plan in zip(places, plans, strict=True)
        if not is_complete(paths, plan)
    ]
    needed_bytes = sum(missing_bytes(paths, plan) for paths, plan in waiting)
    free_bytes = shutil.disk_usage(context.output_dir).free
    if needed_bytes > free_bytes:
        raise no_room(needed_bytes, free_bytes, context)
    total = megabytes(sum(plan.num_bytes for _, plan in waiting))
    received = ReceivedBytes(Progress(context.task_dir, "MB", total))
    try:
        for paths, plan in waiting:
            with _explained(paths.request, context, plan.commit):
                RepositoryDownload(paths, plan, received).run(stage.num_threads)
    except StageStoppedError:
        _refuse_short_limit(received.num_complete, started_unix_s, context)
        raise


@contextmanager
def _explained(
    request: RepositoryRequest, context: TaskContext, commit: str | None
) -> Iterator[None]:
    """Raise failures of a download with their remedy."""
    try:
        yield
    except DOWNLOAD_ERRORS as error:
        failure = download_failure(error)
        if failure is None:
            raise
        # Without the causes, whose texts may have signed addresses.
        raise failed_download(failure, request, context, commit) from None


def _refuse_short_limit(num_complete: int, started_unix_s: float, context: TaskContext) -> None:
    """Refuse another attempt if this one had the whole time limit and completed no file.

    Raises:
        StageConfigError: in this case.
    """
    now, deadline = time.time(), context.deadline_unix_s
    if num_complete or deadline is None or deadline - now > NEAR_S:
        return
    minutes = (now - started_unix_s) / 60
    message = (
        f"the time limit is too short: no file was completed in {minutes:.0f} min, and another "
        "attempt would start the same files again: raise resources.timeout_min"
    )
    raise StageConfigError(message)


def _result(places: Sequence[RepositoryPaths], commits: Mapping[str, str | None]) -> dict[str, Any]:
    repositories, outputs = [], {}
    for paths in places:
        files = [path for path in paths.folder.rglob("*") if _is_of_repository(path, paths.folder)]
        sizes = describe_outputs(paths.output_dir, files)
        outputs.update(sizes)
        repositories.append(
            {
                "folder": paths.request.folder,
                "revision": paths.request.revision,
                "commit": commits[paths.request.folder],
                "num_files": len(sizes),
                "num_bytes": sum(sizes.values()),
            }
        )
    return {
        "repositories": repositories,
        "num_files": len(outputs),
        "num_bytes": sum(outputs.values()),
        **({"outputs": outputs} if len(outputs) <= _MOST_OUTPUTS else {}),
    }


def _is_of_repository(path: Path, folder: Path) -> bool:
    """Check for a file that is no record of `hf download`, which a mirror may have."""
    return path.is_file() and ".cache" not in path.relative_to(folder).parts
