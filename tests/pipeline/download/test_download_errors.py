"""Errors of the disk during a download."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pipeline.download.download_errors import failed_download
from pipeline.models.hub import download_failure
from slurm_jobs.base.errors import FullDiskError, StageConfigError, StageError
from slurm_jobs.formats.configs.download import RepositoryRequest
from slurm_jobs.worker.exception_kind import kind_of
from tests.pipeline.download.hub_stage import context_of

REQUEST = RepositoryRequest(kind="model", repo="a/b", revision=None, include=(), exclude=())


@pytest.mark.parametrize(
    ("number", "error", "kind", "words"),
    [
        (errno.ENOSPC, FullDiskError, "full disk", "the disk of /full/file is full"),
        (
            errno.EDQUOT,
            FullDiskError,
            "full disk",
            "or your quota is used up. Make room, then `slu",
        ),
        (
            errno.EROFS,
            StageConfigError,
            "wrong config",
            "node-0 cannot write to /full/file. Set `r",
        ),
    ],
)
def test_a_disk_that_takes_no_file_is_named(
    tmp_path: Path, number: int, error: type[StageError], kind: str, words: str
) -> None:
    failure = download_failure(OSError(number, "no", "/full/file"))
    assert failure is not None
    raised = failed_download(failure, REQUEST, context_of(tmp_path), None)
    assert type(raised) is error
    assert kind_of(raised) == kind
    assert words in str(raised)
