"""Rules on the load of nodes, GPUs and loaders: planted in readings and records, and not."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from slurm_jobs.formats.timings.system_readings import ReadingPacker, system_path
from slurm_jobs.report.inputs.read_inputs import read_inputs
from slurm_jobs.report.numbers.trainings.node_load import num_ranks_at_a_time, of_others
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.rules.loading.loader_threads import cause_by_threads
from slurm_jobs.report.values.load_model import Level, LoaderLoad, NodeLoad
from tests.slurm_jobs.report.builders import (
    change_steps,
    check,
    edited,
    finding,
    outcomes,
    report_from,
    report_on,
    stage_of,
)
from tests.slurm_jobs.report.fabricate_readings import GIB, write_readings

CALM = {"cpu_busy_share": 0.6, "cpu_iowait_share": 0.01, "disk_read_bytes_per_s": 1e8}
HEALTHY = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005}


@pytest.fixture
def loaded(run_of):
    """Report a run whose readings, device and config are given."""

    def make(
        *, readings=None, device="cuda", config=None, resources=None, microbatches=1, **properties
    ):
        paths, _ = run_of(**{**HEALTHY, **properties})
        folder = paths.timing_dir("train", 0, 1)

        def accumulate(steps):
            steps["num_microbatches"] = microbatches

        change_steps(folder, accumulate, device=device)
        if readings is not None:
            write_readings(folder, **{"host": CALM, **readings})
        with edited(paths.resolved_spec) as spec:
            spec["stages"]["train"]["config"] |= config or {}
            spec["stages"]["train"]["resources"] |= resources or {}
        return report_on(paths)

    return make


def cpus(busy, iowait=0.0, **more):
    """Readings of a node whose cores are busy, or wait for disks, for these shares."""
    return {"host": {"cpu_busy_share": busy, "cpu_iowait_share": iowait, **more}}


GPU_RULES = ("gpu-use", "gpu-fluctuates", "small-batch", "accumulation")


def test_a_busy_gpu_with_full_memory_has_no_finding(loaded):
    report = loaded(readings={"gpu_busy": 0.95, "gpu_gib": 8.0})
    assert set(outcomes(report, *GPU_RULES, "storage-queue")) == {"clear"}
    (load,) = report.training[0].loads
    assert load.gpu_busy.mean == pytest.approx(0.95)
    assert load.gpu_memory_peak_bytes == pytest.approx(6 * GIB)
    assert "Load of the nodes during the steps" in render_html(report)


def test_without_readings_the_rules_abstain(loaded):
    report = loaded()
    assert set(outcomes(report, "gpu-use", "small-batch", "storage-queue")) == {"abstained"}
    assert "no reading" in stage_of(report).gpu_busy.missing  # and not called idle


def test_on_cpus_rules_on_gpus_have_nothing_to_find(loaded):
    assert set(outcomes(loaded(device="cpu", readings={}), *GPU_RULES)) == {"clear"}


@pytest.mark.parametrize(("busy", "severity"), [(0.1, "high"), (0.2, "note")])
def test_idle_gpus_are_judged_by_the_bands_of_jobstats(loaded, busy, severity):
    found = finding(loaded(readings={"gpu_busy": busy}), "gpu-use")
    assert found.severity == severity
    assert "jobstats" in found.source


def test_a_gpu_that_swings_is_found_though_its_mean_is_fine(loaded):
    report = loaded(readings={"gpu_busy": lambda n: 0.9 if n % 3 else 0.02})
    assert outcomes(report, "gpu-use") == ("clear",)
    assert "p95 90 %" in finding(report, "gpu-fluctuates").evidence[0]
    assert stage_of(report).gpu_busy.value == pytest.approx(0.61, abs=0.02)


def test_readings_outside_of_the_steps_do_not_count(loaded):
    """Start-up and export leave devices idle for good reason."""
    report = loaded(readings={"gpu_busy": lambda n: 0.0 if n < 10 else 0.9})
    assert report.training[0].loads[0].gpu_busy.p5 == pytest.approx(0.9)


@pytest.mark.parametrize("last", [3, 8])
def test_a_few_readings_judge_nothing(loaded, last):
    """A sampler that died early, or GPUs that were hardly ever read."""

    def early(value):
        return lambda n: value if n < 10 + last else math.nan

    readings = {**cpus(early(0.1), early(0.9)), "gpu_busy": early(0.0)}
    report = loaded(data_wait_s=0.5, readings=readings)
    assert set(outcomes(report, "gpu-use", "gpu-fluctuates", "storage-queue")) == {"abstained"}
    assert "the cause is not known" in finding(report, "data-wait").confidence


@pytest.mark.parametrize("content", [b"no readings", None], ids=["damaged", "killed at once"])
def test_a_file_without_a_reading_leaves_the_rest_of_the_report(run_of, content):
    """The sampler's header is there at once, the first reading a second later."""
    paths, _ = run_of(**HEALTHY)
    about = {"node_name": "gpu-01", "gpus": [{"uuid": "a", "name": "V100"}]}
    file = system_path(paths.timing_dir("train", 0, 1), 0)
    file.write_bytes(content or ReadingPacker(1).header(about))
    inputs = read_inputs(paths, ())
    told = [problem for problem in inputs.problems if "readings of a node not read" in problem]
    assert len(told) == (content is not None)
    report = report_from(inputs)
    assert report.training[0].loads == ()
    assert "no reading" in stage_of(report).gpu_busy.missing


def test_spare_memory_is_a_note_on_small_batches(loaded):
    plain = loaded(readings={"gpu_busy": 0.95, "gpu_gib": 40.0})
    assert finding(plain, "small-batch").severity == "note"
    assert outcomes(plain, "activation-checkpointing") == ("clear",)


def test_activation_checkpointing_with_memory_to_spare(loaded):
    config = {"activation_checkpointing": True}
    report = loaded(readings={"gpu_busy": 0.95, "gpu_gib": 40.0}, config=config)
    found = finding(report, "activation-checkpointing")
    assert found.ceiling == "no second forward pass: at most 1.34 times the speed"
    assert found.confidence.startswith("low")


def test_ranks_of_a_node_are_those_that_ran_there_at_the_same_time():
    def attempt(*nodes):
        files = [SimpleNamespace(metadata={"node_name": node}) for node in nodes]
        return SimpleNamespace(ranks=[SimpleNamespace(steps=file) for file in (*files, None)])

    attempts = [attempt("b", "b", "c", "c"), attempt("a", "a", "b", "b")]
    assert [num_ranks_at_a_time(attempts, node) for node in "abcd"] == [2, 2, 2, 0]


# Why steps wait for data, by the readings of the node.


def test_the_starved_gpus_of_the_example_are_found_to_wait_for_storage(loaded):
    """GPUs 20 % busy in spikes, cores 2 %, 16 loader workers that wait for small files."""
    report = loaded(
        data_wait_s=2.0,
        readings={**cpus(0.02), "gpu_busy": lambda n: 0.0 if n % 5 else 1.0, "cores": 16},
        config={"num_loader_threads": 16},
    )
    first = report.findings[0]
    assert (first.rule_id, first.severity) == ("data-wait:train", "high")
    assert "the storage is slow" in first.text
    assert "large shards on node-local storage" in first.next_knob
    assert "more threads or workers only queue up" in first.next_knob
    assert outcomes(report, "gpu-use", "gpu-fluctuates") == ("found", "found")


def test_the_seeds_batch_of_one_accumulated_without_workers(loaded):
    """3 s a step of 16 microbatches, one loader thread, and memory for more at once."""
    report = loaded(
        data_wait_s=1.0,
        microbatches=16,
        readings={**cpus(0.12), "gpu_busy": 0.5, "gpu_gib": 16.0},
        config={"num_loader_threads": 1},
    )
    assert "too few threads" in finding(report, "data-wait").text
    assert finding(report, "data-wait").next_knob.startswith("more num_loader_threads")
    found = finding(report, "accumulation")
    assert found.evidence[0].startswith("16 microbatches per step; peak 5.77 GiB of 16.0 GiB")
    assert outcomes(report, "small-batch") == ("clear",)


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        pytest.param({"readings": cpus(0.97)}, "decoding.*cpus_per_task", id="decoding"),
        pytest.param(
            {"readings": cpus(0.97), "device": "cpu"},
            "on CPUs the model and the loader share them", id="cpu",
        ),
        pytest.param(
            {"readings": {**cpus(0.05), "cores": 8}, "config": {"num_loader_threads": 4}},
            "the storage is slow.*num_loader_threads is 4 on each of 2 ranks",
            id="threads of 2 ranks fill the cores",
        ),
        pytest.param(
            {"readings": cpus(0.05)},
            "too few threads or workers, or its storage is slow", id="threads not known",
        ),
    ],
)  # fmt: skip
def test_a_wait_for_data_is_explained_by_the_cores_of_the_node(loaded, planted, told):
    found = finding(loaded(data_wait_s=0.5, **planted), "data-wait")
    assert re.search(told, " ".join((found.text, found.next_knob, *found.evidence)))


def test_cores_that_wait_for_disks_starve_by_storage(loaded):
    report = loaded(data_wait_s=0.5, readings=cpus(0.2, 0.4, disk_read_bytes_per_s=5e6))
    assert "waits for this node's disks" in finding(report, "data-wait").text
    found = finding(report, "storage-queue")
    assert "40 % of the job's cores wait for disks, at 4.77 MiB read a second" in found.evidence[0]
    assert outcomes(loaded(readings=cpus(0.2, 0.4)), "storage-queue") == ("clear",)


def test_evidence_of_a_data_wait_is_from_the_node_of_the_waiting_rank(run_of):
    paths, _ = run_of(num_ranks=16, slow_rank_extra_s=2.0, stopped_at=None)
    for node, busy in ((0, 0.95), (1, 0.1)):
        write_readings(paths.timing_dir("train", 0, 1), node=node, **cpus(busy, 0.01))
    found = finding(report_on(paths), "data-wait")
    assert "cores of gpu-02: 10 % busy" in found.evidence[-1]


@pytest.fixture
def networked(loaded):
    """Report a run whose node has a link of 10 Gb/s over which so much comes."""

    def make(received, *, busy=0.2, iowait=0.0, waits=0.5, link=10e9):
        host = cpus(busy, iowait, network_receive_bytes_per_s=received)
        return loaded(data_wait_s=waits, readings={**host, "link_bits_per_s": link})

    return make


def test_a_link_that_is_full_while_cores_and_disks_are_not_is_found(networked):
    found = finding(networked(1.1e9), "network-full")
    assert found.evidence[0] == "the links of gpu-01 receive at 88 % of their speed"
    assert found.title == "the network of gpu-01 is full, and the steps wait (train)"


@pytest.mark.parametrize(
    "changes", [{"received": 0.9e9}, {"busy": 0.9}, {"iowait": 0.3}, {"waits": 0.001}]
)
def test_a_full_link_is_no_cause_if_nothing_waits_or_more_is_full(networked, changes):
    assert outcomes(networked(**{"received": 1.1e9, **changes}), "network-full") == ("clear",)


def test_a_link_of_unknown_speed_is_not_judged(networked):
    found = check(networked(1e9, link=None), "network-full")
    assert found.outcome == "abstained"
    assert "the speed of the nodes" in found.reason


# Cores that other processes hold.


@pytest.fixture
def held(loaded):
    """Report a training on CPUs whose node has so many cores busy, `own` of them with its work."""

    def make(busy, own, *, cores=8, core_wait_s=0.1, **properties):
        readings = {**cpus(busy / cores, job_cpu_s_per_s=own), "cores": cores}
        resources = {"cpus_per_task": 8, "tasks_per_node": 1}
        planted = {"readings": readings, "resources": resources, "device": "cpu"}
        return loaded(core_wait_s=core_wait_s, **planted, **properties)

    return make


def test_cores_that_others_hold_while_the_training_waits_for_one_are_found(held):
    found = finding(held(8.0, 3.0), "foreign-load")
    assert found.title == "other processes use the job's cores on gpu-01 (train)"
    assert found.evidence[0] == (
        "of the 8 cores of gpu-01 that the job may use, other processes keep 5.0 busy, its own "
        "3.0: other processes use 5.0 of your 8 cores"
    )
    assert found.evidence[1].startswith("the main thread of rank 0 waits for a")
    assert "squeue -w gpu-01" in found.next_knob
    assert found.ceiling_times is None


OF_LOADER = {"core_wait_s": 0.0, "loader_s": (0.9, 0.3, 0.5)}


@pytest.mark.parametrize(
    ("own", "planted", "outcome", "reason"),
    [
        pytest.param(7.5, {}, "clear", "", id="its own work"),
        pytest.param(
            3.0, {"core_wait_s": 0.001}, "clear", "its threads rarely wait for a core",
            id="no wait",
        ),
        pytest.param(3.0, OF_LOADER, "clear", "", id="a loader for which no step waits"),
        pytest.param(math.nan, {"core_wait_s": math.nan}, "abstained", "", id="no own time"),
        pytest.param(3.0, {"core_wait_s": math.nan}, "abstained", "", id="no waits for cores"),
    ],
)  # fmt: skip
def test_busy_cores_that_others_do_not_take_from_the_job_are_no_finding(
    held, own, planted, outcome, reason
):
    found = check(held(8.0, own, **planted), "foreign-load")
    assert found.outcome == outcome
    assert found.reason.endswith(reason)


def test_a_neighbour_on_cores_that_the_job_did_not_ask_for_is_no_finding(held):
    """Nothing binds the job, so that it may use all 64 cores; 56 are its neighbours' by right."""
    assert check(held(64.0, 8.0, cores=64), "foreign-load").outcome == "clear"
    taken = finding(held(64.0, 4.0, cores=64), "foreign-load")
    assert taken.evidence[0].endswith("other processes use 4.0 of your 8 cores")


def test_a_loader_that_waits_for_cores_counts_while_steps_wait_for_data(held):
    """The main thread sleeps until its data is there, and so waits for no core."""
    report = held(8.0, 3.0, data_wait_s=0.5, **OF_LOADER)
    last = finding(report, "foreign-load").evidence[-1]
    assert last.startswith("the loader's threads of rank ")
    data_wait = finding(report, "data-wait")
    assert data_wait.cause == "cores"
    assert "processes outside of the job have them" in data_wait.text


def test_records_without_thread_times_still_attribute_the_busy_cores(held):
    text = finding(held(8.0, 3.0, data_wait_s=0.5), "data-wait").text
    assert "many of them with processes outside of the job" in text


@pytest.mark.parametrize(
    ("parts", "others"),
    [
        pytest.param([(1, 4, 4.0, 4.0), (2, 16, 16.0, 16.0)], 0.0, id="two attempts of own work"),
        pytest.param([(1, 8, 8.0, math.nan), (1, 8, 7.0, 6.0)], 1.0, id="own time not read"),
    ],
)
def test_cores_held_by_others_are_computed_per_attempt(parts, others):
    """By attempt, number of cores, busy cores, and those of the job."""
    names = ("interval_s", "cpu_busy_share", "job_cpu_s_per_s")
    given = []
    for attempt, cores, busy, own in parts:
        rows = np.zeros(30, [("unix_s", "f8"), *((name, "f4") for name in names)])
        rows["interval_s"], rows["unix_s"] = 1.0, np.arange(30) + 1000 * attempt
        rows["cpu_busy_share"], rows["job_cpu_s_per_s"] = busy / cores, own
        metadata = {"cores": list(range(cores))}
        given.append((SimpleNamespace(node="n1", attempt=attempt, metadata=metadata), rows))
    assert of_others(given).mean == pytest.approx(others, abs=1e-5)


# Why steps wait for data, by what the loader's threads did.


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
    assert found.next_knob == "more num_loader_threads (4 would keep up with the steps)"


def test_a_node_without_readings_leaves_free_cores_unknown():
    found = cause_by_threads(loader(0.39, computing=0.95), None, "cuda")
    assert found.confidence.startswith("medium: without readings of the node")


def one_reads(work_s, **more):
    return loader(work_s, num_threads=None, **more)


def test_storage_behind_one_reading_thread_is_named_by_its_blocked_time():
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


def test_threads_that_did_nothing_give_no_cause():
    assert cause_by_threads(loader(0.0), None, "cuda") is None


def test_the_worst_ranks_threads_are_read_from_its_records(report_of):
    report = report_of(
        stopped_at=None, data_wait_s=0.1, slow_rank_extra_s=0.3, loader_s=(0.9, 0.05, 0.01)
    )
    told = report.training[0].loader
    assert (told.rank, told.node) == (1, "gpu-01")
    assert (told.work_s, told.cpu_s, told.core_wait_s) == pytest.approx((0.9, 0.05, 0.01))
    assert told.read_blocked_s is None
    found = finding(report, "data-wait")
    assert found.cause == "storage"
    assert ": storage is slow (train)" in found.title
    assert "blocked 93 %" in found.evidence[-1]


def test_what_the_one_reading_thread_was_blocked_is_read_from_the_records(report_of):
    report = report_of(
        stopped_at=None, data_wait_s=0.3, loader_s=(2.0, 0.05, 0.01), loader_read_blocked_s=1.5
    )
    assert report.training[0].loader.read_blocked_s == pytest.approx(1.5)
