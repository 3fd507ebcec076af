"""Reasons that differ in their node alone are one, and the last line of a log is part of one."""

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.run_view.failed_slices import (
    FAILED,
    HEAD,
    NUM_SLICES,
    fail,
    lines_of,
    paths,
)

__all__ = ["paths"]


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
