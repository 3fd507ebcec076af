"""A cluster profile with comments on what was found, in lines of ordinary width."""

from __future__ import annotations

import yaml

from slurm_jobs.cluster.limits import ClusterLimits, Partition
from slurm_jobs.commands.starter.commented_profile import profile_text
from slurm_jobs.commands.starter.place_choice import choose_place
from slurm_jobs.spec.profile import ClusterProfile
from tests.slurm_jobs.commands.starter.gpu_places import A100, H100, V100, place_of
from tests.slurm_jobs.commands.starter.node_kinds import KINDS


def test_a_profile_has_the_choice_in_comments_of_ordinary_width() -> None:
    place = place_of(A100, V100, a_partition_with_a_long_name=(H100,))
    text = profile_text(place, date="2026-11-29", python="/usr/bin/python3")
    assert "# 2 nodes with 4 x v100 in partition gpu: to train on these, " in text
    assert max(map(len, text.splitlines())) <= 100
    profile = ClusterProfile.model_validate(yaml.safe_load(text))
    assert profile.gpu_slurm == {"partition": "gpu"}


def test_profiles_say_what_was_seen_and_are_profiles() -> None:
    where = choose_place(
        ClusterLimits(
            cluster_name="here",
            partitions={"p": Partition(name="p", kinds=KINDS, is_default=True, max_time_min=60)},
        ),
        node_local_dir="/scratch/local",
    )
    text = profile_text(where, date="2026-11-25", python="/usr/bin/python3")
    assert "# The cluster `here`, as Slurm described it on 2026-11-25" in text
    assert "#   partition p, the default: at most 1 h a job\n" in text
    assert "#     2 nodes: 8 cores, 16 GB, 1 x a100\n" in text
    profile = ClusterProfile.model_validate(yaml.safe_load(text))
    assert profile.slurm == {"partition": "p"}
    assert profile.gpu_slurm == {"partition": "p"}
    assert profile.node_local_dir == "/scratch/local"
    assert max(map(len, text.splitlines())) <= 100
