"""Runs of the report's own fabrication, for what reads them."""

from tests.slurm_jobs.report import fabricate_run as fabrication


def fabricated(run_dir, **properties):
    """A run folder with the given properties; its paths."""
    paths, _ = fabrication.fabricate(run_dir, fabrication.Scenario(**properties))
    return paths
