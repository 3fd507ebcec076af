"""What `init` chooses from what a cluster says of itself."""

from __future__ import annotations

import math
from dataclasses import replace

from slurm_jobs.cluster.limits import Association, ClusterLimits, NodeKind, Partition, Qos
from slurm_jobs.commands.starter.gpu_choice import room_text
from slurm_jobs.commands.starter.place_choice import (
    choose_place,
    minutes,
    needs_4_bits,
    num_slices,
    train_mem_gb,
)
from slurm_jobs.commands.starter.starter_facts import Data, Model, PartitionRoom

CPU = NodeKind(num_nodes=20, cpus=64, mem_mb=256 * 1024)
A100 = NodeKind(num_nodes=2, cpus=32, mem_mb=512 * 1024, gpus={"a100": 4})
OLD = NodeKind(num_nodes=8, cpus=40, mem_mb=192 * 1024, gpus={"v100": 2})
SMALL_A100 = NodeKind(num_nodes=9, cpus=16, mem_mb=128 * 1024, gpus={"a100": 1})


def limits(*partitions: Partition, **rest: object) -> ClusterLimits:
    return ClusterLimits(cluster_name="here", partitions={p.name: p for p in partitions}, **rest)


def test_cpu_jobs_go_to_the_default_partition_and_gpu_jobs_to_most_gpus() -> None:
    place = choose_place(
        limits(
            Partition(name="gpu", kinds=(A100, OLD), max_time_min=2880),
            Partition(name="wide", kinds=(CPU, CPU)),
            Partition(name="cpu", kinds=(CPU,), is_default=True, max_time_min=60),
        )
    )
    assert place.cpu == PartitionRoom(
        partition="cpu", num_nodes=20, cpus=64, mem_gb=256.0, max_time_min=60
    )
    assert place.gpu == PartitionRoom(
        partition="gpu", num_nodes=8, cpus=40, mem_gb=192.0, gpu_type="v100", gpus=2,
        max_time_min=2880,
    )  # fmt: skip
    assert [(room.gpu_type, room.gpus) for room in place.gpu_rooms] == [("v100", 2), ("a100", 4)]


def test_cpu_jobs_stay_off_a_default_partition_that_has_gpus_alone() -> None:
    place = choose_place(
        limits(
            Partition(name="gpu", kinds=(A100,), is_default=True),
            Partition(name="cpu", kinds=(CPU,)),
        )
    )
    assert place.cpu.partition == "cpu"


def test_gpu_jobs_get_nodes_with_most_cards_and_request_the_least_of_these() -> None:
    bare = NodeKind(num_nodes=1, cpus=24, mem_mb=64 * 1024, gpus={"a100": 4})
    place = choose_place(limits(Partition(name="gpu", kinds=(SMALL_A100, A100, bare))))
    assert place.gpu is not None
    assert (place.gpu.gpus, place.gpu.num_nodes) == (4, 3)
    assert (place.gpu.cpus, place.gpu.mem_gb) == (24, 64.0)


SLICES = NodeKind(num_nodes=9, cpus=64, mem_mb=512 * 1024, gpus={"a100_1g.5gb": 14})


def test_whole_cards_come_before_slices_however_many() -> None:
    one_card = replace(A100, num_nodes=1, gpus={"a100": 1, "1g.5gb": 7})
    place = choose_place(limits(Partition(name="gpu", kinds=(SLICES, one_card))))
    assert [(room.gpu_type, room.gpus) for room in place.gpu_rooms] == [
        ("a100", 1),
        ("a100_1g.5gb", 1),
        ("1g.5gb", 1),
    ]


def test_a_training_on_slices_gets_one_per_node() -> None:
    room = choose_place(limits(Partition(name="gpu", kinds=(SLICES,)))).gpu
    assert room is not None
    assert (room.gpus, room.num_nodes) == (1, 9)
    assert "1 x a100_1g.5gb (a MIG slice; a training can use one per node)" in room_text(room)
    assert needs_4_bits(Model(name="m", is_on_hub=True, weights_gb=2.0), room)  # of 5 GB


def test_partitions_that_are_down_or_closed_to_the_user_are_not_chosen() -> None:
    def partition(name: str, **rest: object) -> Partition:
        return Partition(name=name, kinds=(A100,), **rest)

    place = choose_place(
        limits(
            partition("down", is_up=False),
            partition("theirs", allow_groups=("physics",)),
            partition("paid", allow_accounts=("rich",)),
            partition("ours", allow_groups=("vision", "other"), allow_accounts=("lab",)),
            associations=(Association(account="lab"),),
        ),
        groups=["users", "vision"],
    )
    assert [room.partition for room in place.gpu_rooms] == ["ours"]


def test_a_partition_is_as_long_as_its_qos_allows() -> None:
    place = choose_place(
        limits(
            Partition(name="gpu", kinds=(A100,), max_time_min=2880, qos="short"),
            qos={"short": Qos(name="short", max_wall_min=240)},
        )
    )
    assert place.gpu is not None
    assert place.gpu.max_time_min == 240
    assert minutes(720, place.gpu) == 240
    assert minutes(720, PartitionRoom(partition="x", num_nodes=1, cpus=1, mem_gb=1)) == 720


def test_the_account_is_left_to_slurm_which_knows_the_users_default() -> None:
    one = (Association(account="lab"), Association(account="lab", partition="gpu"))
    two = (*one, Association(account="grant"))
    assert choose_place(limits(associations=one)).account is None
    assert choose_place(limits(associations=two)).account is None
    assert choose_place(limits(associations=two), account="lab").account == "lab"


def test_nodes_whose_memory_the_site_does_not_state_have_no_limit_of_it() -> None:
    """Slurm says 1 MB of them; nodes of which nothing is known are no room at all."""
    unstated = NodeKind(num_nodes=2, cpus=8, mem_mb=1)
    cluster = limits(Partition(name="a", kinds=(unstated,)), Partition(name="b", is_default=True))
    room = choose_place(cluster).cpu
    assert (room.partition, room.mem_gb) == ("a", math.inf)


def test_a_named_partition_is_taken_and_without_gpus_there_are_none() -> None:
    cluster = limits(
        Partition(name="big", kinds=(OLD,)),
        Partition(name="fast", kinds=(A100,)),
        Partition(name="cpu", kinds=(CPU,)),
    )
    assert choose_place(cluster, partition="fast").gpu == choose_place(cluster).gpu_rooms[1]
    assert choose_place(limits(Partition(name="cpu", kinds=(CPU,)))).gpu is None


def test_slices_follow_the_rows_within_what_the_site_allows() -> None:
    def slices(num_rows: int | None, most: int | None = None) -> int:
        return num_slices(Data(manifest="m", num_rows=num_rows), limits(max_array_size=most))

    assert [slices(n) for n in (0, 1, 2000, 2001, 10_000_000)] == [1, 1, 1, 2, 400]
    assert slices(10_000_000, 101) == 101
    assert slices(None) == 8


def test_four_bits_where_a_third_of_the_cards_does_not_hold_the_weights() -> None:
    def room(gpu_type: str, gpus: int) -> PartitionRoom:
        return PartitionRoom(
            partition="gpu", num_nodes=1, cpus=8, mem_gb=64, gpu_type=gpu_type, gpus=gpus
        )

    large = Model(name="m", is_on_hub=True, weights_gb=14.0)
    assert needs_4_bits(large, room("v100", 2))
    assert not needs_4_bits(large, room("v100", 4))
    assert not needs_4_bits(large, room("A100", 2))
    assert not needs_4_bits(large, room("unheard-of", 1))
    assert not needs_4_bits(Model(name="m", is_on_hub=True), room("v100", 1))


def test_memory_fits_the_export_within_nine_tenths_of_the_node() -> None:
    model = Model(name="m", is_on_hub=True, weights_gb=6.0)
    node = PartitionRoom(partition="gpu", num_nodes=1, cpus=8, mem_gb=512, gpus=4)
    assert train_mem_gb(model, node) == 33  # 1.6 x 12 GB in fp32, 4 x 3 GB of processes, 2 GB
    assert (
        train_mem_gb(model, PartitionRoom(partition="g", num_nodes=1, cpus=8, mem_gb=20, gpus=4))
        == 18
    )
