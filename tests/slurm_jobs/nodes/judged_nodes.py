"""What `doctor` finds wrong with a node."""

from __future__ import annotations

from typing import Any

from slurm_jobs.formats.node_records.doctor_facts import CardFacts
from slurm_jobs.nodes.doctor.doctor_check import Check
from slurm_jobs.nodes.doctor.node_checks import node_checks
from tests.slurm_jobs.nodes.made_facts import node, spec

REQUIRES = ("pyyaml<7,>=6", 'torch<2.15,>=2.11; extra == "train"')
V100 = CardFacts(name="Tesla V100", capability="7.0")


def judged(*nodes: Any, **of_spec: Any) -> list[Check]:
    needs = spec(requires=REQUIRES, requires_python=">=3.11", **of_spec)
    return node_checks(list(nodes) or [node()], needs)
