"""Reports of a run whose nodes were probed, next to probes of others."""

from dataclasses import replace

import pytest

from slurm_jobs.formats.node_records.probe_files import ProbePaths, keep_probe
from slurm_jobs.report.inputs.read_inputs import read_inputs
from slurm_jobs.report.values.provenance_model import RecordedNode
from tests.slurm_jobs.nodes.fabricate_probes import probe
from tests.slurm_jobs.report.builders import report_from, with_stage
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


def on_desk(inputs):
    """The report of a run of the local scheduler, whose node is the machine `desk`."""
    facts = {"cpu": "", "num_cores": 1, "memory_bytes": None, "gpus": (), "drivers": ()}
    facts |= {"gpu_problem": "", "system": "", "modules": (), "python": ""}
    here = RecordedNode(node_name="gpu-01", host_name="desk", **facts)
    local = replace(inputs, run={**inputs.run, "scheduler": "local"})
    return report_from(with_stage(local, "train", nodes=(here,)))
