"""Facts of a node read back as they were written."""

from __future__ import annotations

from dataclasses import asdict, replace

from slurm_jobs.formats.node_records.doctor_facts import ClockFacts, node_from_json
from tests.slurm_jobs.nodes.judged_nodes import V100
from tests.slurm_jobs.nodes.made_facts import node


def test_facts_read_back_as_they_were_written() -> None:
    facts = node(torch=replace(node().torch, cards=(V100,)), first=ClockFacts(least_s=1, most_s=2))
    import json

    assert node_from_json(json.loads(json.dumps(asdict(facts)))) == facts
