"""The report's page in a browser: `docs/tools/check_page.py` on a page with every section."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_jobs.formats.configs.stages import ReportConfig
from slurm_jobs.report.inputs.read_inputs import read_inputs
from slurm_jobs.report.numbers.build_report import build_report
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.stage import build_and_write
from tests.slurm_jobs.report import fabricate_run
from tests.slurm_jobs.report.fabricate_array import fabricate_array, mixed_ends
from tests.slurm_jobs.report.fabricate_readings import write_readings

ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
needs_a_browser = pytest.mark.skipif(
    not any(map(shutil.which, BROWSERS)), reason=f"none of {', '.join(BROWSERS)} is installed"
)


@pytest.fixture
def paths(tmp_path):
    """A run with findings, failures, repeated steps, readings of GPUs and what is ahead."""
    scenario = fabricate_run.Scenario(
        num_ranks=8, data_wait_s=0.4, slow_rank_forward_s=0.2, padding_share=0.3
    )
    paths, accounting = fabricate_run.fabricate(tmp_path / "run", scenario)
    for attempt in (1, 2):
        write_readings(
            paths.timing_dir("train", 0, attempt),
            host={"cpu_busy_share": 0.1, "cpu_iowait_share": 0.3, "disk_read_bytes_per_s": 1e7},
            gpu_busy=lambda number: 0.9 if number % 4 == 0 else 0.05,
        )
    report = build_report(read_inputs(paths, accounting), ReportConfig(), num_epochs=3)
    paths.report_dir.mkdir()
    paths.report_html.write_text(render_html(report))
    return paths


def check(paths):
    argv = [sys.executable, str(ROOT / "docs/tools/check_page.py"), str(paths.run_dir)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
@needs_a_browser
def test_nothing_is_wrong_with_the_page_in_any_window(paths):
    done = check(paths)
    assert done.stdout.count("nothing wrong") == 4, done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.slow
@needs_a_browser
def test_nothing_is_wrong_with_the_page_of_an_array(tmp_path):
    run = fabricate_array(tmp_path / "run", mixed_ends(500), queue_s=30.0)
    build_and_write(run.paths, run.accounting, answer=run.answer)
    done = check(run.paths)
    assert done.stdout.count("nothing wrong") == 4, done.stdout + done.stderr


@pytest.mark.slow
@needs_a_browser
def test_what_is_planted_is_found(paths):
    planted = (
        '<p style="width:3000px">wide</p><p style="color:#bbb;background:#fff">faint</p>'
        "<p>run me</p></main>"
    )
    page = paths.report_html.read_text()
    page = page.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';")
    page = page.replace(
        "</body>", "<script>console.log('hm'); document.body.prepend('ran')</script></body>"
    )
    paths.report_html.write_text(page.replace("</main>", planted))
    done = check(paths)
    assert done.returncode == 1
    for line in done.stdout.splitlines():
        assert " px wide in a window of " in line
        assert "contrast 1.9" in line
        assert "(faint)" in line
        assert "console: " in line
        assert "looks otherwise without JavaScript" in line
