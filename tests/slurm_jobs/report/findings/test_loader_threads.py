"""Why the steps wait for data, told from what the loader's threads did."""

import pytest

from slurm_jobs.report.report_model import Level, LoaderLoad, NodeLoad
from slurm_jobs.report.rules.data_wait import cause_by_threads

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
def test_causes_are_told_apart_by_the_threads_time(told, load, device, kind):
    found = cause_by_threads(told, load, device)
    assert found.kind == kind
    assert "of rank 0's loader work" in found.evidence[0]


@pytest.mark.parametrize(
    "told", [loader(0.39, computing=0.6, queueing=0.35), loader(0.39, computing=0.95)]
)
def test_cores_that_others_hold_are_neither_free_nor_shared_with_the_model(told):
    found = cause_by_threads(told, node(1.0, own_cores=1.5), "cpu")
    assert found.kind == "cores"
    assert "processes that are not the job's hold them" in found.text
    assert "others hold 6.5 of the 8 that it asked for" in found.evidence[-1]
    shared = cause_by_threads(told, node(1.0, own_cores=7.9), "cpu")
    assert "the model and the loader share them" in shared.text


def test_threads_that_would_keep_up_are_counted():
    """Work of 0.39 s a step, and the step takes 0.1 s without its wait."""
    found = cause_by_threads(loader(0.39, computing=0.95), node(0.3), "cuda")
    assert found.next_knob == "more num_loader_threads (4 would keep up with the steps)"


def test_a_node_without_readings_leaves_free_cores_unknown():
    found = cause_by_threads(loader(0.39, computing=0.95), None, "cuda")
    assert found.confidence.startswith("medium: whether cores are free is not known")


def one_reads(work_s, **more):
    return loader(work_s, num_threads=None, **more)


def test_where_one_thread_reads_for_all_storage_is_named_by_how_long_that_one_is_blocked():
    slow = one_reads(0.3, computing=0.2, read_blocked_s=0.18)
    found = cause_by_threads(slow, node(0.3), "cuda")
    assert found.kind == "storage"
    assert found.next_knob.startswith("`reader: index`")
    assert "the thread that reads is blocked for 90 % of the step" in found.evidence
    held_up = one_reads(0.4, computing=0.4, read_blocked_s=0.18)
    assert cause_by_threads(held_up, node(0.3), "cuda").kind == "lock"
    for quick in (0.02, None):  # it decodes; records of an older version do not tell
        told = one_reads(0.3, computing=0.9, read_blocked_s=quick)
        assert cause_by_threads(told, node(0.3), "cuda") is None


def test_threads_that_did_nothing_tell_nothing():
    assert cause_by_threads(loader(0.0), None, "cuda") is None


def test_the_worst_ranks_threads_are_read_from_its_records(report_of):
    report = report_of(
        stopped_at=None, data_wait_s=0.1, slow_rank_extra_s=0.3, loader_s=(0.9, 0.05, 0.01)
    )
    told = report.training[0].loader
    assert (told.rank, told.node) == (1, "gpu-01")
    assert (told.work_s, told.cpu_s, told.core_wait_s) == pytest.approx((0.9, 0.05, 0.01))
    assert told.read_blocked_s is None
    found = next(f for f in report.findings if f.rule_id == "data-wait:train")
    assert found.cause == "storage"
    assert ": storage answers late (train)" in found.title
    assert "blocked 93 %" in found.evidence[-1]


def test_what_the_one_reading_thread_was_blocked_is_read_from_the_records(report_of):
    report = report_of(
        stopped_at=None, data_wait_s=0.3, loader_s=(2.0, 0.05, 0.01), loader_read_blocked_s=1.5
    )
    assert report.training[0].loader.read_blocked_s == pytest.approx(1.5)
