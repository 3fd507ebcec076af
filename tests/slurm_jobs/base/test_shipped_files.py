"""A file that should have come with the code and did not is named."""

from __future__ import annotations

import pytest

from slurm_jobs.base.shipped_files import shipped_path


def test_a_file_that_did_not_ship_is_named():
    assert shipped_path("templates", "report", "page.html").is_file()
    with pytest.raises(FileNotFoundError, match=r"templates/report/none\.html"):
        shipped_path("templates", "report", "none.html")
