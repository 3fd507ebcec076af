"""Which knobs a finding names."""

from slurm_jobs.formats.configs.train import MAY_CHANGE
from slurm_jobs.tuning.knobs import KNOBS, Hardware, propose
from slurm_jobs.tuning.trial_model import TrialFinding
from tests.slurm_jobs.tuning.simulated import DATA_WAIT, train_config

CPU = Hardware(device="cpu", num_ranks=2, cpus_per_task=2)
GPU = Hardware(device="cuda", num_ranks=8, cpus_per_task=8)


def cause(rule: str, times: float | None = None) -> TrialFinding:
    return TrialFinding(rule=rule, title=rule, ceiling="", times=times)


def names(rule: str, hardware: Hardware, **train: object) -> list[str]:
    found = propose([cause(rule)], train_config(**train), hardware)
    return [p.name for p in found if p.change is not None]


def test_every_knob_changes_how_and_never_what_is_learned():
    configs = [
        train_config(),
        train_config(
            num_loader_threads=1,
            num_microbatches=4,
            staging={"mode": "off"},
            activation_checkpointing=True,
        ),
    ]
    keys = {
        proposal.change.key.partition(".")[0]
        for config in configs
        for hardware in (CPU, GPU)
        for proposal in propose([cause(rule) for rule in KNOBS], config, hardware)
        if proposal.change is not None
    }
    assert keys <= set(MAY_CHANGE)
    assert keys.isdisjoint({"checkpoint", "evaluate", "precision", "dataset"})


def test_threads_and_prefetch_are_doubled_as_far_as_the_cores_bear_it():
    assert names("data-wait", CPU) == [
        "num_loader_threads: 4",
        "num_prefetch_batches: 8",
        "num_compute_threads: 1",  # the model and the loader share the cores
    ]
    found = propose([DATA_WAIT], train_config(num_loader_threads=8), CPU)
    left = {p.name: p.why_not for p in found if p.change is None}
    assert left["num_loader_threads: 16"].startswith("not on this hardware")
    assert "another allocation" in left["cpus_per_task"]


def test_what_starves_the_ranks_says_which_knob_comes_first():
    def first(kind: str) -> str:
        told = TrialFinding(rule="data-wait", title="", ceiling="", times=2.0, kind=kind)
        return propose([told], train_config(staging={"mode": "off"}), CPU)[0].name

    firsts = {"threads": "num_loader_threads: 4", "read-ahead": "num_prefetch_batches: 8"}
    firsts |= {"storage": 'staging.mode: "beside"', "cores": "num_compute_threads: 1"}
    assert {kind: first(kind) for kind in firsts} == firsts


def test_staging_is_turned_on_where_it_is_off():
    assert 'staging.mode: "beside"' in names("storage-queue", CPU, staging={"mode": "off"})
    assert 'staging.mode: "beside"' not in names("storage-queue", CPU)


def test_compiling_is_tried_on_gpus_alone():
    assert "compile: {}" in names("gpu-use", GPU)
    assert "compile: {}" not in names("gpu-use", CPU)


def test_communication_keeps_gathered_weights_then_replicates():
    assert names("exposed-communication", GPU) == [
        "sharding.reshard_after_forward: false",
        "sharding.forward_prefetch: 1",
        'strategy: "ddp"',
    ]
    assert names("exposed-communication", GPU, strategy="ddp") == []


def test_what_changes_the_samples_of_a_batch_is_named_only():
    for rule in ("padding", "small-batch"):
        (only,) = propose([cause(rule)], train_config(), GPU)
        assert only.change is None
        assert only.why_not.startswith("would change what is learned")


def test_a_finding_without_a_knob_says_so():
    (only,) = propose([cause("unexplained")], train_config(), GPU)
    assert (only.change, only.why_not) == (None, "no knob known")
