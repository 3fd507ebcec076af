"""Probes of the nodes that a run used, and of no other machine."""

from tests.slurm_jobs.report.probed_nodes import alike, at, on_desk, read

__all__ = ["read"]


def test_a_local_run_has_the_probe_of_its_host_and_not_another_machines(read):
    inputs = read(*alike("desk", "x1", "x2"), at("local0", local_read_bytes_per_s=1e6))
    (found,) = on_desk(inputs).training[0].probes.probed
    assert (found.node, found.num_compared) == ("gpu-01", 3)  # as the run calls it
