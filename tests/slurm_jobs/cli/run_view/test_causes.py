"""Which failures count as one, and how they are named."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.cli.run_view.causes import MAX_SLICES_READ, causes_of
from slurm_jobs.cli.run_view.problems import problem_lines
from slurm_jobs.formats.records.attempt_records import CompletionName
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.status.run_status import RunStatus, StageStatus
from tests.slurm_jobs.cli.statuses import stage
from tests.slurm_jobs.run.fabricate import end, submitted_run

NUM_SLICES = 64


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return submitted_run(tmp_path / "run", NUM_SLICES)


def lines_of(paths: RunPaths, made: StageStatus) -> list[str]:
    """Return the lines on failures; every failed slice has a record."""
    slices = tuple(
        dataclasses.replace(part, ending=CompletionName(part.slice_index, 1, "t-a-1", "failed"))
        for part in made.slices
    )
    status = RunStatus(status="failed", stages=(dataclasses.replace(made, slices=slices),))
    return [line for line in problem_lines(paths.run_dir, status) if line.startswith("a ")]


def fail(paths: RunPaths, slices: Sequence[int], *, node: str = "n1", **values: Any) -> None:
    rank = values.pop("rank", 0)
    reason = values.pop("reason", ": ValueError: caption is empty")
    end(
        paths,
        "a",
        slices,
        "failed",
        failed_rank=rank,
        failed_node=node,
        reason=f"rank {rank} on {node}{reason}",
        **values,
    )


FAILED = stage("a", ["failed"] * NUM_SLICES, state="FAILED", source="sacct")
HEAD = "failed (sacct: FAILED):"


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


@pytest.mark.parametrize(
    ("nodes", "place"),
    [
        (("n1", "n2"), "rank 0 on n1, n2"),
        (("n1", "n2", "n3", "n4"), "rank 0 on 4 nodes"),
    ],
)
def test_the_node_does_not_divide_slices_and_is_named(
    paths: RunPaths, nodes: tuple[str, ...], place: str
) -> None:
    for index in range(NUM_SLICES):
        node = nodes[index % len(nodes)]
        fail(paths, [index], node=node, reason=" ended with exit code 3")
    assert lines_of(paths, FAILED) == [f"a slices 0-63 {HEAD} {place} ended with exit code 3"]


def test_the_last_line_of_the_log_is_shown_and_divides_slices(paths: RunPaths) -> None:
    code = " ended with exit code 3"
    fail(paths, range(NUM_SLICES), reason=code, last_line="no file a.csv")
    fail(paths, [5], reason=code, last_line="no file b.csv")
    assert [line.partition("code 3")[2] for line in lines_of(paths, FAILED)] == [
        "; its log ends with: no file a.csv",
        "; its log ends with: no file b.csv",
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
