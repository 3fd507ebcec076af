"""Outputs of Slurm 22.05 as they were printed, and forms that its manuals name."""

import pytest

from slurm_jobs.cluster.limits import NodeKind
from slurm_jobs.cluster.slurm_output import (
    parse_associations,
    parse_config,
    parse_gpus,
    parse_kinds,
    parse_partitions,
    parse_qos,
)

CONFIG = """Configuration data as of 2026-11-21T07:50:00
AccountingStorageEnforce = associations,limits,qos
AccountingStorageTRES   = cpu,mem,energy,node,billing,gres/gpu
MaxArraySize            = 1001
LaunchParameters        =
SchedulerParameters     = batch_sched_delay=0,sched_interval=2
Slurmctld(primary) at vm is UP
"""
PARTITIONS = (
    "PartitionName=cpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES QoS=N/A "
    "MaxNodes=UNLIMITED MaxTime=1-00:00:00 Nodes=cpu[1-2] State=UP TotalNodes=2\n"
    "PartitionName=gpu AllowAccounts=vision,speech AllowQos=long Default=NO QoS=gpuq "
    "MaxNodes=2 MaxTime=UNLIMITED State=DOWN TotalNodes=4\n"
)
KINDS = """cpu|2|8|16000|(null)|cpu
gpu|2|64|512000|gpu:a100:4(S:0-1)|a100,ib
gpu|2+|8+|16000+|gpu:v100:4|v100
"""


def test_settings_are_read_by_name() -> None:
    config = parse_config(CONFIG)
    assert config["MaxArraySize"] == "1001"
    assert config["AccountingStorageEnforce"] == "associations,limits,qos"
    assert config["LaunchParameters"] == ""
    assert config["SchedulerParameters"] == "batch_sched_delay=0,sched_interval=2"


def test_partitions_have_their_limits_and_their_kinds_of_nodes() -> None:
    partitions = parse_partitions(PARTITIONS, parse_kinds(KINDS))
    cpu, gpu = partitions["cpu"], partitions["gpu"]
    assert (cpu.is_default, cpu.max_time_min, cpu.max_nodes) == (True, 1440, None)
    assert cpu.qos is None
    assert cpu.kinds == (NodeKind(num_nodes=2, cpus=8, mem_mb=16000, features=frozenset({"cpu"})),)
    assert (gpu.is_default, gpu.max_time_min, gpu.max_nodes) == (False, None, 2)
    assert gpu.qos == "gpuq"
    assert [kind.gpus for kind in gpu.kinds] == [{"a100": 4}, {"v100": 4}]
    assert gpu.kinds[0].features == frozenset({"a100", "ib"})


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", {}),
        ("gpu:4", {"": 4}),
        ("gpu:a100:4(S:0-1)", {"a100": 4}),
        ("gpu:a100:2,gpu:v100:2,nvme:1", {"a100": 2, "v100": 2}),
        ("gpu:a100_80gb:8", {"a100_80gb": 8}),
        ("gpu:tesla:2(S:0),gpu:tesla:2(S:1)", {"tesla": 4}),
        ("nvme:1", {}),
        ("gpu:2080ti:4", {"2080ti": 4}),
        ("gpu:1g.5gb:7(S:0-1),gpu:3g.20gb:2", {"1g.5gb": 7, "3g.20gb": 2}),
        ("gpu:3090:8(IDX:0-3,5)", {"3090": 8}),
    ],
)
def test_gpus_are_counted_by_type(gres: str, gpus: dict[str, int]) -> None:
    assert parse_gpus(gres) == gpus


def test_qos_and_associations_have_the_tighter_of_two_limits() -> None:
    qos = parse_qos("normal||||\nlong|7-00:00:00|100|40|cpu=64,gres/gpu=8,node=4\n\nbroken|x\n")
    assert qos["normal"].max_submit is None
    assert (qos["long"].max_wall_min, qos["long"].max_submit) == (10080, 40)
    assert (qos["long"].max_nodes, qos["long"].max_gpus) == (4, 8)
    (one, two) = parse_associations(
        "vision||normal,long|normal|1-00:00:00|500|200\nspeech|gpu|normal||||\n"
    )
    assert (one.account, one.partition, one.qos) == ("vision", None, ("normal", "long"))
    assert (one.default_qos, one.max_wall_min, one.max_submit) == ("normal", 1440, 200)
    assert (two.partition, two.max_submit) == ("gpu", None)
