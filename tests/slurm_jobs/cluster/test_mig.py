import pytest

from slurm_jobs.cluster.limits import NodeKind
from slurm_jobs.cluster.mig import is_slice, slice_gb
from slurm_jobs.cluster.slurm_output import parse_gpus


@pytest.mark.parametrize(
    ("gpu_type", "gb"),
    [
        ("1g.5gb", 5),
        ("a100_3g.20gb", 20),
        ("nvidia_a100_1g.5gb", 5),
        ("nvidia_h100_80gb_hbm3_4g.40gb", 40),
        ("a100l.2g.20gb", 20),
        ("1c.3g.20gb", 20),
        ("1g.10gb+me", 10),
        ("MIG-2G.10GB", 10),
    ],
)
def test_slices_are_known_by_their_profile(gpu_type: str, gb: int) -> None:
    assert is_slice(gpu_type)
    assert slice_gb(gpu_type) == gb


@pytest.mark.parametrize(
    "gpu_type",
    ["", "a100", "a100_80gb", "nvidia_h100_80gb_hbm3", "a100-sxm4-40gb", "rtx6000", "gh200.96gb"],
)
def test_cards_are_no_slices(gpu_type: str) -> None:
    assert not is_slice(gpu_type)


def test_a_node_with_both_has_fewer_cards_than_gpus() -> None:
    gpus = parse_gpus("gpu:a100:2(S:0-1),gpu:a100_1g.5gb:14(S:0-1),gpu:1g.10gb+me:1")
    node = NodeKind(num_nodes=1, cpus=8, mem_mb=1, gpus=gpus, features=frozenset({"ampere"}))
    assert [node.num_gpus(name) for name in (None, "ampere", "a100", "a100_1g.5gb")] == [
        *(17, 17, 2, 14)
    ]
    assert [node.num_cards(name) for name in (None, "ampere", "a100", "a100_1g.5gb")] == [
        *(2, 2, 2, 0)
    ]
