"""Read rates of file systems, from the newest probes."""

from __future__ import annotations

from slurm_jobs.nodes.doctor.file_rates import probe_checks
from tests.slurm_jobs.nodes.fabricate_probes import probe

COMMAND = "slurm-jobs probe SPEC"
NUMBERS = {
    "local_read_bytes_per_s": 2e9,
    "local_write_bytes_per_s": 1e9,
    "shared_read_bytes_per_s": 5e8,
    "shared_write_bytes_per_s": 3e8,
}


def test_without_a_probe_the_rates_are_unknown_and_the_command_is_named() -> None:
    (check,) = probe_checks((), ["x: damaged"], 0.0, COMMAND)
    assert (check.standing, check.remedy) == ("unknown", COMMAND)
    assert "x: damaged" in check.told


def test_the_slowest_node_is_named_and_a_slow_one_is_a_warning() -> None:
    fast = probe("n1", **NUMBERS)
    slow = probe("n2", **{**NUMBERS, "shared_read_bytes_per_s": 1e7})
    now_unix_s = fast.measured_unix_s + 60
    local, shared = probe_checks((fast, slow), [], now_unix_s, COMMAND)
    assert (local.standing, shared.standing) == ("ok", "warning")
    assert "on n2, the slowest of 2 probed" in shared.told
