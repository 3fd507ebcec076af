"""A row that cannot be used keeps no unbounded text of its manifest."""

from slurm_jobs.base.texts.truncation import MAX_LINE_CHARS
from slurm_jobs.formats.manifests.messages import RowOrigin, bad_row

HUGE = "/9j/4AAQSkZJRgABAQ" * 50_000


def test_a_row_keeps_no_unbounded_source_and_no_unbounded_problem(tmp_path) -> None:
    row = bad_row(RowOrigin(row=0, line=1, manifest=tmp_path), f"role {HUGE}", source=HUGE)
    assert len(row.source) <= MAX_LINE_CHARS
    assert len(row.problem) <= MAX_LINE_CHARS
