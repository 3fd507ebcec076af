"""Download of the files of a plan, on several threads, each compared with its checksum."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from huggingface_hub import hf_hub_download

from pipeline.download.file_checksums import damage
from pipeline.download.received_bytes import ReceivedBytes, check_stop
from pipeline.download.repository_plan import HubFile, RepositoryPaths, RepositoryPlan
from pipeline.models.hub import DOWNLOAD_ERRORS, FailureKind, download_failure
from slurm_jobs.base.errors import StageError
from slurm_jobs.base.files import make_private_dir, sync_dir

log = logging.getLogger(__name__)

WAITS_S = (2.0, 10.0, 30.0)
"""Waits before a file is tried again: a hub that is busy answers within a minute."""
_REPEATED: frozenset[FailureKind] = frozenset({"interrupted", "hub fault", "unreachable"})
_POLL_S = 0.5
_HUB_DIR = ".cache"
"""Folder in which huggingface_hub keeps its own records of a download."""


def is_complete(paths: RepositoryPaths, plan: RepositoryPlan) -> bool:
    """Check whether an earlier attempt has completed a repository, by the sizes of its files."""
    folder = paths.folder
    if folder.is_symlink():  # to a mirror
        return False
    return all(_has_size(folder / file.name, file) for file in plan.files)


def missing_bytes(paths: RepositoryPaths, plan: RepositoryPlan) -> int:
    """Return the size of the files that are still to be downloaded."""
    return sum(f.num_bytes for f in plan.files if not _has_size(paths.files / f.name, f))


def _has_size(path: Path, file: HubFile) -> bool:
    try:
        return path.stat().st_size == file.num_bytes
    except FileNotFoundError:
        return False


class RepositoryDownload:
    """Downloads the files of one plan and puts the folder in its place; use once."""

    def __init__(
        self, paths: RepositoryPaths, plan: RepositoryPlan, received: ReceivedBytes
    ) -> None:
        self._paths, self._plan, self._received = paths, plan, received
        self._is_over = threading.Event()

    def run(self, num_threads: int) -> None:
        """Download what is missing, check all files, and make the folder visible.

        Raises:
            StageError: a file arrives damaged each time.
            StageStoppedError: a stop was requested; complete files are kept.
            OSError, ValueError, HTTPError: the hub did not answer, refused, or the disk is full.
        """
        make_private_dir(self._paths.files)
        for leftover in (self._paths.files / _HUB_DIR).rglob("*.incomplete"):
            leftover.unlink()  # of a killed attempt; huggingface_hub starts such a file again
        largest_first = sorted(self._plan.files, key=lambda file: -file.num_bytes)
        with ThreadPoolExecutor(num_threads, thread_name_prefix="download") as pool:
            downloads = [pool.submit(self._download, file) for file in largest_first]
            try:
                for download in as_completed(downloads):
                    download.result()
            except BaseException:
                self._is_over.set()
                for download in downloads:
                    download.cancel()
                raise
        self._make_visible()

    def _download(self, file: HubFile) -> None:
        """Download a file unless it is here, and compare it with its checksum."""
        request, name = self._plan.request, f"{self._plan.request.folder}/{file.name}"
        problem: str | None = None
        path = self._paths.files / file.name
        was_here = _has_size(path, file)
        for wait_s in (*WAITS_S, None):
            try:
                hf_hub_download(
                    request.repo,
                    file.name,
                    repo_type=request.kind,
                    revision=self._plan.commit,
                    local_dir=self._paths.files,
                    force_download=problem is not None,
                    tqdm_class=self._received.bar_class(name, self._is_over.is_set),
                )
            except DOWNLOAD_ERRORS as error:
                failure = download_failure(error)
                if wait_s is None or failure is None or failure.kind not in _REPEATED:
                    raise
                reason = f"{failure.kind} ({type(failure.cause).__name__})"
            else:
                problem = damage(path, file)
                if problem is None:
                    self._note_complete(name, file, was_here=was_here)
                    return
                was_here, reason = False, problem
                if wait_s is None:
                    break
            log.warning("%s: %s; it is tried again in %.0f s", name, reason, wait_s)
            self._wait(wait_s)
        message = (
            f"{name} at commit {self._plan.commit} arrives damaged each time: {problem}. Resume "
            "the run later. If it happens again, ask the owner of the hub or mirror"
        )
        raise StageError(message)

    def _note_complete(self, name: str, file: HubFile, *, was_here: bool) -> None:
        with (self._paths.files / file.name).open("rb") as stream:
            os.fsync(stream.fileno())
        if was_here:
            self._received.update(name, file.num_bytes)
        else:
            self._received.complete(name, file.num_bytes)

    def _wait(self, duration_s: float) -> None:
        while duration_s > 0 and not self._is_over.wait(min(_POLL_S, duration_s)):
            duration_s -= _POLL_S
            check_stop()

    def _make_visible(self) -> None:
        folder = self._paths.folder
        shutil.rmtree(self._paths.files / _HUB_DIR, ignore_errors=True)
        clear_place(folder)
        make_private_dir(folder.parent)
        self._paths.files.rename(folder)
        sync_dir(folder.parent)


def clear_place(folder: Path) -> None:
    """Remove what an earlier config put where a repository belongs: its files, or a link."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
