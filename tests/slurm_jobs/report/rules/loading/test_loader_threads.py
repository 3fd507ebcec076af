"""Why steps wait for data, by what the loader's threads did."""

from __future__ import annotations

import pytest

from slurm_jobs.report.rules.loading.loader_threads import cause_by_threads
from slurm_jobs.report.values.load_model import Level, LoaderLoad, NodeLoad

STEP = {"rank": 0, "node": "n1", "step_s": 0.2, "data_wait_s": 0.1}


def loader(work_s, *, computing=0.0, queueing=0.0, num_threads=2, read_blocked_s=None):
    """`computing` and `queueing` (for a core) are shares of `work_s`; the rest is blocked."""
    return LoaderLoad(
        **STEP,
        num_threads=num_threads,
        work_s=work_s,
        cpu_s=computing * work_s,
        core_wait_s=queueing * work_s,
        read_blocked_s=read_blocked_s,
    )


def node(busy, *, iowait=0.0, num_cores=8, num_ranks=1, own_cores=None, num_cores_asked=None):
    means = {"cpu_busy": busy, "cpu_iowait": iowait, "job_cpu_cores": own_cores}
    level = {name: mean if mean is None else Level(mean=mean, p5=mean, p95=mean, num=30)
             for name, mean in means.items()}  # fmt: skip
    held = None if own_cores is None else busy * num_cores - own_cores
    others = dict.fromkeys(
        ["disk_read", "network_receive", "gpu_busy", "gpu_memory_peak_bytes",
         "gpu_memory_bytes", "link_bytes_per_s"]
    )  # fmt: skip
    return NodeLoad(
        node="n1", num_readings=30, num_cores=num_cores, num_ranks=num_ranks, gpu_names=(),
        num_cores_asked=num_cores_asked or num_cores,
        num_cores_unasked=num_cores - (num_cores_asked or num_cores),
        other_cores=None if held is None else Level(mean=held, p5=held, p95=held, num=30),
        **level, **others,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("told", "load", "device", "kind"),
    [
        (loader(0.39, computing=0.1), node(0.1), "cuda", "storage"),
        (loader(0.39, computing=0.1), node(0.1, iowait=0.4), "cuda", "storage"),
        (loader(0.39, computing=0.1), None, "cuda", "storage"),
        (loader(0.39, computing=0.95), node(0.3), "cuda", "threads"),
        (loader(0.39, computing=0.95), node(0.97), "cuda", "decoding"),
        (loader(0.39, computing=0.95), node(0.6, num_ranks=4), "cuda", "decoding"),
        (loader(0.39, computing=0.95), node(0.97), "cpu", "cores"),
        (loader(0.39, computing=0.6, queueing=0.35), node(0.97), "cuda", "cores"),
        (loader(0.20, computing=0.95), node(0.3), "cuda", "read-ahead"),
        (loader(1.55, computing=0.12, num_threads=8), node(0.2), "cuda", "lock"),
        (loader(0.39, computing=0.95), None, "cuda", "threads"),
    ],
)
def test_causes_are_distinguished_by_the_time_of_the_threads(told, load, device, kind):
    found = cause_by_threads(told, load, device)
    assert found.kind == kind
    assert "of rank 0's loader work" in found.evidence[0]


@pytest.mark.parametrize(
    "told", [loader(0.39, computing=0.6, queueing=0.35), loader(0.39, computing=0.95)]
)
def test_cores_that_others_hold_are_neither_free_nor_shared_with_the_model(told):
    found = cause_by_threads(told, node(1.0, own_cores=1.5), "cpu")
    assert found.kind == "cores"
    assert "processes outside of the job have them" in found.text
    assert "other processes use 6.5 of your 8 cores" in found.evidence[-1]
    shared = cause_by_threads(told, node(1.0, own_cores=7.9), "cpu")
    assert "the model and the loader share them" in shared.text


def test_threads_that_would_keep_up_are_counted():
    """Work of 0.39 s a step, and the step takes 0.1 s without its wait."""
    found = cause_by_threads(loader(0.39, computing=0.95), node(0.3), "cuda")
    assert found.next_knob == "Raise num_loader_threads (4 would keep up with the steps)."


def test_a_node_without_readings_leaves_free_cores_unknown():
    found = cause_by_threads(loader(0.39, computing=0.95), None, "cuda")
    assert found.confidence.startswith("medium: without readings of the node")


def one_reads(work_s, **more):
    return loader(work_s, num_threads=None, **more)


def test_storage_behind_one_reading_thread_is_named_by_its_blocked_time():
    slow = one_reads(0.3, computing=0.2, read_blocked_s=0.18)
    found = cause_by_threads(slow, node(0.3), "cuda")
    assert found.kind == "storage"
    assert "`reader: index`" in found.next_knob
    assert "The thread that reads is blocked for 90 % of the step." in found.evidence
    held_up = one_reads(0.4, computing=0.4, read_blocked_s=0.18)
    assert cause_by_threads(held_up, node(0.3), "cuda").kind == "lock"
    for quick in (0.02, None):  # it decodes; records of an older version do not tell
        told = one_reads(0.3, computing=0.9, read_blocked_s=quick)
        assert cause_by_threads(told, node(0.3), "cuda") is None


def test_threads_that_did_nothing_give_no_cause():
    assert cause_by_threads(loader(0.0), None, "cuda") is None
