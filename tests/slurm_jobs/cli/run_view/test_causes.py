"""Which failures count as one, and how they are named."""

import dataclasses

from slurm_jobs.cli.run_view.causes import MAX_SLICES_READ, causes_of
from slurm_jobs.cli.run_view.problems import problem_lines
from slurm_jobs.formats.records.attempt_records import CompletionName
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.status.run_status import RunStatus
from tests.slurm_jobs.cli.run_view.failed_slices import (
    FAILED,
    HEAD,
    NUM_SLICES,
    fail,
    lines_of,
    paths,
)
from tests.slurm_jobs.cli.statuses import stage

__all__ = ["paths"]


def test_slices_that_failed_for_one_reason_are_one_line(paths: RunPaths) -> None:
    fail(paths, range(NUM_SLICES))
    assert lines_of(paths, FAILED) == [
        f"a slices 0-63 {HEAD} rank 0 on n1: ValueError: caption is empty"
    ]
    fail(paths, [7, 31], reason=": KeyError: 'image'")
    numbers = "0-6,8-30,32-63"
    assert lines_of(paths, FAILED) == [
        f"a slices {numbers} {HEAD} rank 0 on n1: ValueError: caption is empty",
        f"a slices 7,31 {HEAD} rank 0 on n1: KeyError: 'image'",
    ]


def test_a_late_accounting_of_some_slices_does_not_divide_them(paths: RunPaths) -> None:
    fail(paths, range(NUM_SLICES))
    late = tuple(
        dataclasses.replace(part, state=None, source="record") if part.slice_index % 2 else part
        for part in FAILED.slices
    )
    (line,) = lines_of(paths, dataclasses.replace(FAILED, slices=late))
    assert line == f"a slices 0-63 {HEAD} rank 0 on n1: ValueError: caption is empty"


def test_the_end_of_a_log_offers_no_command(paths: RunPaths) -> None:
    command = "`slurm-jobs resume RUN --set stages.a.config.size=7`"
    fail(paths, [0], reason=" ended with exit code 3", last_line=command)
    part = dataclasses.replace(FAILED.slices[0], ending=CompletionName(0, 1, "t-a-1", "failed"))
    status = RunStatus(status="failed", stages=(dataclasses.replace(FAILED, slices=(part,)),))
    first, *others = problem_lines(paths.run_dir, status)
    assert command in first
    assert not any("--set" in line for line in others)


def test_many_numbers_are_cut_and_counted(paths: RunPaths) -> None:
    fail(paths, range(1, NUM_SLICES, 2), reason=": KeyError: 'x'")
    fail(paths, range(0, NUM_SLICES, 2))
    first, _ = lines_of(paths, FAILED)
    assert first.startswith("a slices 0,2,4,6,")
    assert "38,40,... (32 slices) failed" in first


def test_at_most_so_many_slices_are_read(paths: RunPaths) -> None:
    made = stage("a", ["unknown"] * (MAX_SLICES_READ + 5), reason="the scheduler does not know it")
    (cause,) = causes_of(paths.run_dir, [(made, part) for part in made.slices])
    assert len(cause.parts) == MAX_SLICES_READ
    status = RunStatus(status="unknown", stages=(made,))
    assert "... and 5 more slices (--json has all)" in problem_lines(paths.run_dir, status)
