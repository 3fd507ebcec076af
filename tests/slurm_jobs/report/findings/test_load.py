"""Rules on the load of GPUs, nodes and memory: each planted in readings, and none without."""

import json
from types import SimpleNamespace

import pytest

from slurm_jobs.report.html import render_html
from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.node_load import num_ranks_at_a_time
from slurm_jobs.report.numbers import build_report
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.shared.timings import ReadingPacker, read_steps, steps_path, system_path
from tests.slurm_jobs.report import fabricate_run
from tests.slurm_jobs.report.fabricate_readings import GIB, say_in_headers, write_readings

CALM = {"cpu_busy_share": 0.6, "cpu_iowait_share": 0.01, "disk_read_bytes_per_s": 1e8}
HEALTHY = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005}


@pytest.fixture
def report_of(tmp_path):
    """The report of a run whose readings, headers and config are given."""

    def make(*, readings=None, headers=None, config=None, microbatches=1, **properties):
        scenario = fabricate_run.Scenario(**{**HEALTHY, **properties})
        paths, _ = fabricate_run.fabricate(tmp_path / "run", scenario)
        folder = paths.timing_dir("train", 0, 1)
        if microbatches > 1:
            for rank in range(2):
                path = steps_path(folder, rank)
                steps = read_steps(path).steps.copy()
                steps["num_microbatches"] = microbatches
                path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n" + steps.tobytes())
        say_in_headers(folder, **(headers or {"device": "cuda"}))
        if readings is not None:
            write_readings(folder, **{"host": CALM, **readings})
        spec = json.loads(paths.resolved_spec.read_text())
        spec["stages"]["train"]["config"] |= config or {}
        paths.resolved_spec.write_text(json.dumps(spec))
        return build_report(read_inputs(paths, ()), ReportConfig())

    return make


def outcomes(report):
    return {c.rule_id.partition(":")[0]: c.outcome for c in report.checks}


def finding(report, rule):
    return next(f for f in report.findings if f.rule_id == f"{rule}:train")


GPU_RULES = ("gpu-use", "gpu-fluctuates", "small-batch", "accumulation")


def test_a_busy_gpu_with_full_memory_has_no_finding(report_of):
    report = report_of(readings={"gpu_busy": 0.95, "gpu_gib": 8.0})
    found = outcomes(report)
    assert {found[rule] for rule in (*GPU_RULES, "storage-queue")} == {"clear"}
    (load,) = report.training[0].loads
    assert load.gpu_busy.mean == pytest.approx(0.95)
    assert load.gpu_memory_peak_bytes == pytest.approx(6 * GIB)
    assert "Load of the nodes during the steps" in render_html(report)


def test_without_readings_the_rules_abstain(report_of):
    found = outcomes(report_of())
    assert {found[rule] for rule in ("gpu-use", "small-batch", "storage-queue")} == {"abstained"}


def test_on_cpus_rules_on_gpus_have_nothing_to_find(report_of):
    report = report_of(headers={"device": "cpu"}, readings={})
    assert {outcomes(report)[rule] for rule in GPU_RULES} == {"clear"}


@pytest.mark.parametrize(("busy", "severity"), [(0.1, "high"), (0.2, "note")])
def test_idle_gpus_are_judged_by_the_bands_of_jobstats(report_of, busy, severity):
    found = finding(report_of(readings={"gpu_busy": busy}), "gpu-use")
    assert found.severity == severity
    assert "jobstats" in found.source


def test_a_gpu_that_swings_is_found_though_its_mean_is_fine(report_of):
    report = report_of(readings={"gpu_busy": lambda n: 0.9 if n % 3 else 0.02})
    assert outcomes(report)["gpu-use"] == "clear"
    assert "p95 90 %" in finding(report, "gpu-fluctuates").evidence[0]


def test_readings_outside_of_the_steps_do_not_count(report_of):
    """Start-up and export leave devices idle for good reason."""
    report = report_of(readings={"gpu_busy": lambda n: 0.0 if n < 10 else 0.9})
    assert report.training[0].loads[0].gpu_busy.p5 == pytest.approx(0.9)


def test_the_seeds_starved_gpus_are_told_to_wait_for_storage(report_of):
    """GPUs 20 % busy in spikes, cores 2 %, 16 loader workers that wait for small files."""
    report = report_of(
        data_wait_s=2.0,
        readings={
            "host": {"cpu_busy_share": 0.02, "cpu_iowait_share": 0.0},
            "gpu_busy": lambda n: 1.0 if n % 5 == 0 else 0.0,
            "cores": 16,
        },
        config={"num_loader_threads": 16},
    )
    first = report.findings[0]
    assert first.rule_id == "data-wait:train"
    assert first.severity == "high"
    assert "the storage answers late" in first.text
    assert "large shards on node-local storage" in first.next_knob
    assert "more threads or workers only queue up" in first.next_knob
    assert outcomes(report)["gpu-use"] == "found"
    assert outcomes(report)["gpu-fluctuates"] == "found"


def test_the_seeds_batch_of_one_accumulated_without_workers(report_of):
    """3 s a step of 16 microbatches, one loader thread, and memory for more at once."""
    report = report_of(
        data_wait_s=1.0,
        microbatches=16,
        readings={
            "host": {"cpu_busy_share": 0.12, "cpu_iowait_share": 0.0},
            "gpu_busy": 0.5,
            "gpu_gib": 16.0,
        },
        config={"num_loader_threads": 1},
    )
    assert "too few threads" in finding(report, "data-wait").text
    assert finding(report, "data-wait").next_knob.startswith("more num_loader_threads")
    found = finding(report, "accumulation")
    assert found.evidence[0].startswith("16 microbatches a step; peak 5.77 GiB of 16.0 GiB")
    assert outcomes(report)["small-batch"] == "clear"


def test_cores_that_are_all_busy_starve_by_decoding(report_of):
    report = report_of(
        data_wait_s=0.5, readings={"host": {"cpu_busy_share": 0.97, "cpu_iowait_share": 0.0}}
    )
    assert "decoding" in finding(report, "data-wait").text
    assert "cpus_per_task" in finding(report, "data-wait").next_knob


def test_cores_that_wait_for_disks_starve_by_storage(report_of):
    host = {"cpu_busy_share": 0.2, "cpu_iowait_share": 0.4, "disk_read_bytes_per_s": 5e6}
    report = report_of(data_wait_s=0.5, readings={"host": host})
    assert "waits for this node's disks" in finding(report, "data-wait").text
    found = finding(report, "storage-queue")
    assert "40 % of the job's cores wait for disks, at 4.77 MiB read a second" in found.evidence[0]


def test_waits_for_disks_that_no_step_waits_for_are_no_finding(report_of):
    host = {"cpu_busy_share": 0.2, "cpu_iowait_share": 0.4}
    assert outcomes(report_of(readings={"host": host}))["storage-queue"] == "clear"


def test_memory_to_spare_is_told_by_what_uses_little_of_it(report_of):
    plain = report_of(readings={"gpu_busy": 0.95, "gpu_gib": 40.0})
    assert finding(plain, "small-batch").severity == "note"
    assert outcomes(plain)["activation-checkpointing"] == "clear"


def test_activation_checkpointing_with_memory_to_spare(report_of):
    report = report_of(
        readings={"gpu_busy": 0.95, "gpu_gib": 40.0}, config={"activation_checkpointing": True}
    )
    found = finding(report, "activation-checkpointing")
    assert found.ceiling == "no second forward pass: at most 1.34 times the speed"
    assert found.confidence.startswith("low")


def test_damaged_readings_are_told_and_leave_the_rest_of_the_report(report_of, tmp_path):
    report_of(readings={"gpu_busy": 0.5})
    folder = next((tmp_path / "run").rglob("node-00000.system")).parent
    (folder / "node-00000.system").write_bytes(b"no readings")
    paths = fabricate_run.RunPaths(tmp_path / "run")
    inputs = read_inputs(paths, ())
    assert any("readings of a node not read" in problem for problem in inputs.problems)
    assert build_report(inputs, ReportConfig()).training[0].loads == ()


def test_on_cpus_the_model_and_the_loader_share_the_cores(report_of):
    host = {"cpu_busy_share": 0.97, "cpu_iowait_share": 0.0}
    report = report_of(data_wait_s=0.5, readings={"host": host}, headers={"device": "cpu"})
    assert "on CPUs the model and the loader share them" in finding(report, "data-wait").text


def test_threads_count_on_every_rank_of_the_node(report_of):
    """4 threads on each of 2 ranks fill 8 cores: more of them only queue up."""
    host = {"cpu_busy_share": 0.05, "cpu_iowait_share": 0.0}
    report = report_of(
        data_wait_s=0.5, readings={"host": host, "cores": 8}, config={"num_loader_threads": 4}
    )
    found = finding(report, "data-wait")
    assert "the storage answers late" in found.text
    assert "num_loader_threads is 4 on each of 2 ranks" in found.evidence[-1]


def test_where_threads_are_not_known_none_is_blamed(report_of):
    host = {"cpu_busy_share": 0.05, "cpu_iowait_share": 0.0}
    text = finding(report_of(data_wait_s=0.5, readings={"host": host}), "data-wait").text
    assert "too few threads or workers, or its storage answers late" in text


def test_the_node_of_the_rank_that_waits_is_looked_at(tmp_path):
    scenario = fabricate_run.Scenario(num_ranks=16, slow_rank_extra_s=2.0, stopped_at=None)
    paths, _ = fabricate_run.fabricate(tmp_path / "run", scenario)
    folder = paths.timing_dir("train", 0, 1)
    for node, busy in ((0, 0.95), (1, 0.1)):
        write_readings(folder, host={**CALM, "cpu_busy_share": busy}, node=node)
    report = build_report(read_inputs(paths, ()), ReportConfig())
    assert "cores of gpu-02: 10 % busy" in finding(report, "data-wait").evidence[-1]


@pytest.mark.parametrize("last", [3, 8])
def test_a_few_readings_judge_nothing(report_of, last):
    """A sampler that died early, or GPUs that were hardly ever read."""
    nan = float("nan")
    report = report_of(
        data_wait_s=0.5,
        readings={
            "host": {
                "cpu_busy_share": lambda n: 0.1 if n < 10 + last else nan,
                "cpu_iowait_share": lambda n: 0.9 if n < 10 + last else nan,
            },
            "gpu_busy": lambda n: 0.0 if n < 10 + last else nan,
        },
    )
    found = outcomes(report)
    assert {found[r] for r in ("gpu-use", "gpu-fluctuates", "storage-queue")} == {"abstained"}
    assert "why is not known" in finding(report, "data-wait").confidence


def network(received, *, busy=0.2, iowait=0.0, waits=0.5):
    """Readings of a link of 10 Gb/s over which so much comes."""
    host = {
        "cpu_busy_share": busy,
        "cpu_iowait_share": iowait,
        "network_receive_bytes_per_s": received,
    }
    return {"data_wait_s": waits, "readings": {"host": host, "link_bits_per_s": 10e9}}


def test_a_link_that_is_full_while_cores_and_disks_are_not_is_found(report_of):
    found = finding(report_of(**network(1.1e9)), "network-full")
    assert found.evidence[0] == "88 % of what the links of gpu-01 carry came in"
    assert found.title == "the network of gpu-01 is full, and the steps wait (train)"


@pytest.mark.parametrize(
    "changes", [{"received": 0.9e9}, {"busy": 0.9}, {"iowait": 0.3}, {"waits": 0.001}]
)
def test_a_full_link_is_no_cause_where_something_else_is_full_or_nothing_waits(report_of, changes):
    report = report_of(**network(**{"received": 1.1e9, **changes}))
    assert outcomes(report)["network-full"] == "clear"


def test_a_link_whose_speed_nobody_knows_is_not_judged(report_of):
    host = {"network_receive_bytes_per_s": 1e9}
    report = report_of(readings={"host": host})
    assert outcomes(report)["network-full"] == "abstained"
    (check,) = [check for check in report.checks if check.rule_id == "network-full:train"]
    assert "no speed of its nodes" in check.reason


def of_train(report):
    return next(stage for stage in report.stages if stage.name == "train")


def test_gpus_that_were_asked_for_are_told_with_how_busy_they_were(report_of):
    report = report_of(readings={"gpu_busy": lambda number: float(number % 2)})
    assert of_train(report).gpu_busy.value == pytest.approx(0.5, abs=0.02)


def test_gpus_that_nobody_read_are_not_called_idle(report_of):
    assert "no reading" in of_train(report_of()).gpu_busy.missing


def test_a_sampler_that_was_killed_before_its_first_reading_is_no_error(report_of, monkeypatch):
    """Its header is there at once, the first reading a second later."""
    gpus = [{"uuid": "a", "name": "V100"}]
    header = ReadingPacker(1).header({"node_name": "gpu-01", "gpus": gpus})

    def only_the_header(folder, **_values):
        system_path(folder, 0).write_bytes(header)

    monkeypatch.setitem(globals(), "write_readings", only_the_header)
    report = report_of(readings={})
    assert "no reading" in of_train(report).gpu_busy.missing


def test_ranks_of_a_node_are_those_at_a_time_though_others_ran_there_before():
    def attempt(*nodes):
        files = [SimpleNamespace(metadata={"node_name": node}) for node in nodes]
        return SimpleNamespace(ranks=[SimpleNamespace(steps=file) for file in (*files, None)])

    attempts = [attempt("b", "b", "c", "c"), attempt("a", "a", "b", "b")]
    assert [num_ranks_at_a_time(attempts, node) for node in "abcd"] == [2, 2, 2, 0]
