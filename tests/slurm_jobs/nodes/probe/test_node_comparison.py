"""Which nodes are slow among their like."""

from __future__ import annotations

import dataclasses

from slurm_jobs.nodes.probe.node_comparison import JUDGED, compare, others_busy
from slurm_jobs.nodes.probe.probe_text import BY_NAME, slow_text
from tests.slurm_jobs.nodes.fabricate_probes import DETAILS, probe


def _nodes(*more):
    return [probe("n1"), probe("n2"), probe("n3"), *more]


def test_a_node_as_fast_as_the_others_is_not_slow() -> None:
    found = compare(probe("n4"), _nodes())
    assert (found.slow, found.num_compared) == ((), 3)


def test_a_planted_slow_disk_is_named_with_its_share() -> None:
    slow = probe("n4", local_read_bytes_per_s=7e8)
    (measure,) = compare(slow, _nodes(slow)).slow
    assert measure.name == "local_read_bytes_per_s"
    assert measure.share == 0.35
    assert slow_text(measure) == (
        "node-local read 700 MB/s, 35 % of the median of 3 others (2.00 GB/s)"
    )


def test_eighty_percent_is_not_slow_and_less_is() -> None:
    assert compare(probe("n4", cores_usable=0.8 * 15.8), _nodes()).slow == ()
    assert len(compare(probe("n4", cores_usable=0.79 * 15.8), _nodes()).slow) == 1


def test_a_disk_that_was_once_as_fast_as_the_others_is_not_slow() -> None:
    """On a healthy node of the test cluster: 866 MB/s of the median read, next to 1.13 GB/s."""
    for fastest, num_slow in ((1.7e9, 0), (1.5e9, 1)):
        details = {"local": {**DETAILS["local"], "fastest_read_bytes_per_s": fastest}}
        busy = probe("n4", details, local_read_bytes_per_s=1.5e9)
        assert len(compare(busy, _nodes(busy)).slow) == num_slow


def test_two_others_are_needed() -> None:
    slow = probe("n4", local_read_bytes_per_s=1e6)
    assert compare(slow, [probe("n1"), slow]).slow == ()
    assert compare(slow, [probe("n1"), probe("n2"), slow]).slow != ()


def test_a_fast_node_makes_no_usual_one_slow() -> None:
    fast = probe("n3", local_read_bytes_per_s=3.2e9)
    three = [probe("n1"), probe("n2"), fast]
    assert [compare(each, three).slow for each in three] == [(), (), ()]
    fast_ones = [probe(name, matmul_bf16_flops_per_s=4e14) for name in ("n4", "n5")]
    five = _nodes(*fast_ones)
    assert all(compare(each, five).slow == () for each in five)


def test_two_slow_nodes_of_five_hide_neither() -> None:
    slow = [probe(name, local_read_bytes_per_s=7e8) for name in ("n4", "n5")]
    assert all(len(compare(each, _nodes(*slow)).slow) == 1 for each in slow)


def test_that_the_others_were_probed_long_ago_is_reported() -> None:
    day_s = 86400.0
    for days, is_said in ((29, False), (31, True)):
        slow = probe("n4", unix_s=1e9 + days * day_s, local_read_bytes_per_s=7e8)
        (measure,) = compare(slow, _nodes(slow)).slow
        said = f"; others were probed up to {days} days before or after it"
        assert slow_text(measure).endswith(said) == is_said


def test_other_hardware_and_another_number_of_cores_are_not_compared() -> None:
    slow = probe("n4", cores_usable=1.0)
    for change in ({"cpu": "Intel"}, {"gpus": ("V100",)}, {"num_asked_cores": 8}):
        others = [dataclasses.replace(p, **change) for p in _nodes()]
        assert compare(slow, others).num_compared == 0


def test_a_read_from_memory_is_not_compared_with_one_from_a_disk() -> None:
    warm = {"local": {"file_system": "xfs", "reads_are_cold": False}}
    others = [probe(name, warm, local_read_bytes_per_s=2e10) for name in ("n1", "n2", "n3")]
    assert compare(probe("n4"), others).slow == ()


def test_another_version_of_torch_multiplies_otherwise() -> None:
    newer = {"matmul": {"device": "cuda", "torch": "2.14.0"}}
    others = [probe(n, newer, matmul_bf16_flops_per_s=9e14) for n in ("n1", "n2", "n3")]
    assert compare(probe("n4"), others).slow == ()


def test_a_slow_network_names_the_node_at_the_other_end() -> None:
    details = {"network": [{"with": "n3", "bytes_per_s": 1e8, "latency_s": 1e-3}]}
    (measure,) = compare(probe("n4", details, network_bytes_per_s=1e8), _nodes()).slow
    assert measure.partner == "n3"


def test_the_slowest_measure_comes_first() -> None:
    slow = probe("n4", cores_usable=8.0, local_read_bytes_per_s=1e8)
    names = [measure.name for measure in compare(slow, _nodes()).slow]
    assert names == ["local_read_bytes_per_s", "cores_usable"]


def test_busy_cores_of_others_count_above_the_share_of_daemons() -> None:
    assert others_busy(probe("n1", other_busy_cores=6.0)) is None  # of 128
    assert others_busy(probe("n1", other_busy_cores=7.0)) == 7.0


def test_every_measure_that_is_judged_exists_and_more_of_it_is_better() -> None:
    assert set(BY_NAME) >= JUDGED
    assert {BY_NAME[name].unit for name in JUDGED}.isdisjoint({"s"})
