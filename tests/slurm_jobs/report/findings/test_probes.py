"""Nodes that probes measured slow: planted among their like, and what is said where none can be."""

import json
import re
from dataclasses import replace

import pytest

from slurm_jobs.formats.node_records.probe_files import ProbePaths, keep_probe
from slurm_jobs.report.inputs.read_inputs import read_inputs
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.values.provenance_model import RecordedNode
from slurm_jobs.report.values.report_model import report_to_json
from tests.slurm_jobs.nodes.fabricate_probes import probe
from tests.slurm_jobs.report.builders import (
    check,
    finding,
    notes_with,
    report_from,
    report_on,
    with_stage,
)
from tests.slurm_jobs.report.fabricate_run import CREATED


@pytest.fixture
def read(run_of):
    """Read a run on gpu-01 (ranks 0 to 7) and gpu-02, beside the probes of some nodes."""

    def make(*probes, **properties):
        paths, rows = run_of(**{"num_ranks": 10, "stopped_at": None, **properties})
        for each in probes:
            keep_probe(ProbePaths(paths.run_dir.parent), each, 1)
        return read_inputs(paths, rows)

    return make


@pytest.fixture
def probed(read):
    return lambda *probes, **properties: report_from(read(*probes, **properties))


def at(node, **numbers):
    return probe(node, unix_s=CREATED + 60, **numbers)


def alike(*names):
    return [at(name) for name in names]


OTHERS = alike("gpu-01", "x1", "x2")


def test_a_planted_slow_node_is_named_with_measure_numbers_date_and_knob(probed):
    found = finding(probed(*OTHERS, at("gpu-02", local_read_bytes_per_s=7e8)), "slow-node")
    assert found.title == "gpu-02 measured slow: node-local read is 35 % of similar nodes (train)"
    (evidence,) = found.evidence
    assert evidence.startswith("gpu-02, 2023-11-14 22:14:20 UTC: node-local read 700 MB/s")
    assert evidence.endswith("35 % of the median of 3 others (2.00 GB/s)")
    assert "stages.train.resources.slurm.exclude=gpu-02" in found.next_knob
    assert found.source.startswith("own choice")
    assert found.confidence.startswith("high")


def test_nodes_as_fast_as_the_others_are_clear(probed):
    found = check(probed(*alike("gpu-01", "gpu-02", "x1")), "slow-node")
    assert found.outcome == "clear"
    assert found.reason.startswith("2 of its 2 nodes were probed and compared")


def test_a_slow_node_that_the_training_did_not_use_is_no_finding(probed):
    slow = at("elsewhere", local_read_bytes_per_s=1e6)
    assert check(probed(*alike("gpu-01", "gpu-02", "x1"), slow), "slow-node").outcome == "clear"


def test_without_a_probe_the_rule_abstains_and_names_the_command(probed):
    found = check(probed(), "slow-node")
    assert found.outcome == "abstained"
    assert "`slurm-jobs probe /home/ada/shapes.yaml --nodes 3`" in found.reason


def test_with_one_other_node_the_rule_abstains_and_names_the_command(probed):
    found = check(probed(at("gpu-01"), at("gpu-02", local_read_bytes_per_s=1e6)), "slow-node")
    assert found.outcome == "abstained"
    assert "fewer than 2 other nodes of the same hardware" in found.reason
    assert "--nodes 3" in found.reason


@pytest.mark.parametrize(
    ("days", "busy_cores", "confidence"),
    [
        pytest.param(6, 0.1, "high", id="6 days"),
        pytest.param(9, 0.1, "medium.*9 days", id="9 days"),
        pytest.param(
            0, 30.0, "medium: other processes used 30.0 cores of gpu-02 meanwhile$", id="busy"
        ),
    ],
)
def test_an_old_probe_or_one_of_a_busy_node_is_trusted_less(probed, days, busy_cores, confidence):
    slow = at("gpu-02", local_read_bytes_per_s=7e8, other_busy_cores=busy_cores)
    slow = replace(slow, measured_unix_s=CREATED - days * 86400)
    found = finding(probed(*OTHERS, slow), "slow-node")
    assert re.match(confidence, found.confidence)
    assert ("days" in found.confidence) == (days == 9)


def test_a_slow_network_does_not_blame_one_end_for_certain(probed):
    slow = at("gpu-02", network_bytes_per_s=1e8)
    found = finding(probed(*OTHERS, slow), "slow-node")
    assert "with n9, which may be the slow one" in found.confidence


def test_the_straggler_says_that_its_node_was_measured_slow(probed):
    slow = at("gpu-02", matmul_bf16_flops_per_s=1e14)
    report = probed(*OTHERS, slow, slow_rank_forward_s=0.2)
    found = finding(report, "straggler")
    assert "rank 9 on gpu-02" in found.title
    assert found.evidence[-1].startswith(
        "probe of gpu-02, 2023-11-14 22:14:20 UTC: measured slow: matmul bf16 100 TFLOP/s, 40 %"
    )


def test_the_straggler_says_that_its_node_was_measured_equal(probed):
    report = probed(*alike("gpu-01", "gpu-02", "x1", "x2"), slow_rank_forward_s=0.2)
    assert finding(report, "straggler").evidence[-1] == (
        "probe of gpu-02, 2023-11-14 22:14:20 UTC: as fast as the other 3 probed nodes of the same "
        "hardware"
    )


def test_a_rank_that_waits_for_data_has_the_probe_of_its_node_as_evidence(probed):
    slow = at("gpu-02", local_read_bytes_per_s=7e8)
    report = probed(*OTHERS, slow, slow_rank_extra_s=0.3)
    assert "node-local read" in finding(report, "straggler").evidence[-1]


def test_without_a_probe_the_straggler_says_nothing_of_one(probed):
    evidence = finding(probed(slow_rank_forward_s=0.2), "straggler").evidence
    assert not any("probe" in line for line in evidence)


def test_page_and_json_show_the_numbers_of_the_runs_nodes_alone(probed):
    report = probed(*alike("gpu-01", "gpu-02", "x1"))
    page = render_html(report)
    section = page.partition('id="provenance"')[2]
    assert "Probes of its nodes" in section
    assert "250 TFLOP/s bf16, 18.0 TFLOP/s fp32" in section
    assert "x1" not in section.partition("Software")[0].partition("Probes of its nodes")[2]
    values = json.loads(json.dumps(report_to_json(report)))
    nodes = [entry["node"] for entry in values["provenance"]["probes"]]
    assert nodes == ["gpu-01", "gpu-02"]
    assert values["provenance"]["probes"][0]["numbers"]["local_read_bytes_per_s"] == 2e9


def test_without_a_probe_the_page_has_no_such_table(probed):
    assert "Probes of its nodes" not in render_html(probed())


def test_a_probe_that_cannot_be_read_is_a_note_and_no_traceback(run_of):
    paths, rows = run_of(num_steps=1, stopped_at=None)
    keep_probe(ProbePaths(paths.run_dir.parent), at("gpu-01"), 1).write_text("[]")
    assert notes_with(report_on(paths, rows), "not read as a probe")


def on_desk(inputs):
    """The report of a run of the local scheduler, whose node is the machine `desk`."""
    facts = {"cpu": "", "num_cores": 1, "memory_bytes": None, "gpus": (), "drivers": ()}
    facts |= {"gpu_problem": "", "system": "", "modules": (), "python": ""}
    here = RecordedNode(node_name="gpu-01", host_name="desk", **facts)
    local = replace(inputs, run={**inputs.run, "scheduler": "local"})
    return report_from(with_stage(local, "train", nodes=(here,)))


def test_a_local_run_has_the_probe_of_its_host_and_not_another_machines(read):
    inputs = read(*alike("desk", "x1", "x2"), at("local0", local_read_bytes_per_s=1e6))
    (found,) = on_desk(inputs).training[0].probes.probed
    assert (found.node, found.num_compared) == ("gpu-01", 3)  # as the run calls it


def test_a_single_machine_gets_no_command_that_cannot_help(read):
    found = check(on_desk(read(at("desk"))), "slow-node")
    assert found.outcome == "abstained"
    assert "there is no other machine" in found.reason
    assert "`" not in found.reason
