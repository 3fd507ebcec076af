import pytest

from tests.slurm_jobs.spec.conftest import Check


def train(resources: str = "", config: str = "") -> str:
    return f"""\
name: a
cluster: local
stages:
  train:
    run: train
    resources: {{{resources}}}
    config: {{dataset: ., num_steps: 10, {config}}}
"""


def phases(second: str) -> str:
    return f"""\
name: a
cluster: local
stages:
  train:
    run: train
    resources: {{tasks_per_node: 2}}
    config:
      dataset: .
      device: cpu
      global_batch_size: 16
      num_microbatches: 2
      phases:
        - {{name: a, num_steps: 2}}
        - {{name: b, num_steps: 2, {second}}}
"""


CPUS = "tasks_per_node: 2"


@pytest.mark.parametrize(
    ("resources", "config"),
    [
        (CPUS, "device: cpu"),
        ("tasks_per_node: 4, gpus_per_node: 4, gpu: [a100, v100]", ""),
        ("", "device: cpu, strategy: single"),
        (CPUS, "device: cpu, profile: {ranks: [5]}"),
        (CPUS, "device: cpu, num_microbatches: 3, batching: {kind: packed, max_tokens: 64}"),
        (CPUS, "device: cpu, num_microbatches: auto"),
        (CPUS, "device: cpu, profile: {steps: [9, 9]}"),
        (CPUS, "device: cpu, learn: ['vision.*', '*.layers.1.*', 'language.model.*', 'heads.*']"),
    ],
)
def test_a_training_that_may_be_right_has_no_problem(
    check: Check, resources: str, config: str
) -> None:
    assert check(train(resources, config)) == []


@pytest.mark.parametrize(
    ("resources", "config", "place", "message"),
    [
        ("tasks_per_node: 4, gpus_per_node: 2", "", "6:5", "gpus_per_node is 2"),
        (CPUS, "device: cpu, learn: [adapters]", "7:61", "there are none"),
        (
            *(CPUS, "device: cpu, learn: [heads], levels: [{name: a}]", "7:61"),
            "learn names heads, and there are none",
        ),
        ("tasks_per_node: 2, gpu: a100", "device: cpu", "6:36", "say how many"),
        # no rule follows from a value that is wrong
        ("tasks_per_node: 3", "device: cpu, num_lanes: x", "7:65", ""),
        ("", "device: cpu, strategy: singel", "7:64", ""),
        (CPUS, "device: cpu, global_batch_size: x, num_lanes: 6", "7:73", ""),
        ("", "device: cup, strategy: single", "7:49", ""),
        ("tasks_per_node: x", "device: cpu", "6:33", ""),
    ],
)
def test_a_config_that_contradicts_the_resources_is_one_problem(
    check: Check, resources: str, config: str, place: str, message: str
) -> None:
    (line,) = check(train(resources, config))
    assert line.startswith(f"{place}: ")
    assert message in line


@pytest.mark.parametrize(
    ("stages", "place", "message"),
    [
        ("s: {run: train, shell: make}", "4:19", "`run` and `shell`; give one"),
        ("s: {retries: 1}", "4:3", "neither `run`"),
        ("s: {run: null}", "4:3", "neither `run`"),
        ("s: {}", "4:3", "neither `run`"),
        ("s:", "4:3", "found nothing"),
        ("s: {run: trian}", "4:12", "neither a built-in stage"),
        ("s: {run: 'a.b: c'}", "4:12", "neither a built-in stage"),
        ("s: {shell: ''}", "4:14", "must not be empty"),
        ("s: {rnu: report}", "4:7", "did you mean `run`?"),
        ("a-b: {shell: make}\n  A_b: {shell: make}", "5:3", "`a-b` and `A_b` differ only in case"),
    ],
)
def test_a_stage_runs_one_thing_under_a_name_of_its_own(
    check: Check, stages: str, place: str, message: str
) -> None:
    lines = check(f"name: a\ncluster: local\nstages:\n  {stages}\n")
    assert any(line.startswith(f"{place}: ") and message in line for line in lines), lines


def test_features_next_to_several_gpu_types_may_not_be_alternatives(
    check: Check,
) -> None:
    resources = "gpus_per_node: 1, gpu: [a100, v100], slurm: {constraint: '%s'}"
    text = "name: a\ncluster: local\nstages:\n  s:\n    shell: make\n    resources: {%s}\n"
    assert check(text % (resources % "ib&bigmem")) == []
    (line,) = check(text % (resources % "[ib|eth]"))
    assert "6:74: " in line
    assert "joined by &" in line


@pytest.mark.parametrize("num_slices", [1, 3, 4])
def test_consolidate_may_be_an_array_that_starts_after_all_slices(
    check: Check, num_slices: int
) -> None:
    text = f"""\
name: a
cluster: local
stages:
  p: {{run: preprocess, array: {{num_slices: 4}}, config: {{manifest: m.csv, processor: .}}}}
  c:
    run: consolidate
    after: p
    array: {{num_slices: {num_slices}}}
"""
    assert not [line for line in check(text) if "`c`" in line]
    lines = check(text.replace("after: p", "after: {p: aftercorr}"))
    said = "7:16: each task of `c` reads what all slices before it made"
    assert any(line.startswith(said) for line in lines)


@pytest.mark.parametrize(
    "second",
    [
        "learn: [all], optimizer: {learning_rate: 1e-3, grad_clip_norm: null}",
        "num_microbatches: 3, batching: {kind: packed, max_tokens: 64}",
        "num_microbatches: 3, global_batch_size: 48",
        "num_microbatches: auto",
    ],
)
def test_what_a_phase_may_have_is_left_to_the_job(check: Check, second: str) -> None:
    assert check(phases(second)) == []


def test_microbatches_are_compared_with_the_phases_that_use_them(
    check: Check,
) -> None:
    text = phases("num_microbatches: 4").replace("num_microbatches: 2", "num_microbatches: 3")
    (line,) = check(text)
    assert line.startswith("11:25: stages.train.config.num_microbatches: the 8 samples of a rank")
    assert check(text.replace("num_steps: 2}", "num_steps: 2, num_microbatches: 2}")) == []


def test_adapters_that_no_phase_learns_are_sent_to_the_learn_of_a_phase(check: Check) -> None:
    text = phases("learn: [vision]").replace("  phases:", "  adapters: {}\n      phases:")
    text = text.replace("num_steps: 2}", "num_steps: 2, learn: [projector]}")
    (line,) = check(text)
    assert "add `adapters` to that of a phase (phases.1.learn), or leave adapters out" in line
    assert check(text.replace("learn: [vision]", "learn: [vision, adapters]")) == []


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("config.device=cuda", "trains on GPUs with tasks_per_node: 2"),
        ("config.strategy=single", "stage `train` has 2 ranks, but"),
        ("resources.tasks_per_node=1", "needs two ranks or more"),
        ("config.phases.0.name=b", "phases.1.name is b, as is phases.0.name: give each a name"),
        ("config.phases.1.name=a", "phases.1.name is a, as is phases.0.name: give each a name"),
        ("config.phases.1.global_batch_size=12", "of phase b is 12: give a multiple of 8"),
        ("config.phases.1.num_microbatches=3", "cannot be divided into 3"),
        ("config.profile.steps=[4, 5]", "begins at step 4, and the training has 4, counted from"),
        ("config.profile.steps=[3, 3]", ""),
    ],
)
def test_what_was_set_on_the_command_line_is_a_problem_there(
    check: Check, override: str, words: str
) -> None:
    override = f"stages.train.{override}"
    text = phases("batching: {kind: shuffled}")
    assert check(text) == []
    lines = check(text, overrides=(override,))
    assert any(words in line for line in lines) == bool(words)
    assert all(line.startswith("--set ") for line in lines)


@pytest.mark.parametrize(
    ("resources", "config", "override", "words"),
    [
        ("nodes: 3", "device: cpu", "", "lanes cannot be divided"),
        ("", "device: cpu", "resources.tasks_per_node=3", "lanes cannot be divided"),
        ("", "device: cpu", "resources={nodes: 3}", "lanes cannot be divided"),
        ("tasks_per_node: 2, gpus_per_node: 2", "", "resources.gpus_per_node=1", "trains on GPUs"),
    ],
)
def test_ranks_are_a_problem_of_the_resources_that_were_set(
    check: Check, resources: str, config: str, override: str, words: str
) -> None:
    overrides = (f"stages.train.{override}",) if override else ()
    lines = check(train(resources, f"strategy: ddp, {config}"), overrides=overrides)
    (line,) = [line for line in lines if words in line]
    assert line.startswith(f"--set {overrides[0]}: " if override else "7:5: ")


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("model.visual.*", "vision"),
        ("model.multi_modal_projector.*", "projector"),
        ("model.language_model.layers.3?.*", "language"),
    ],
)
def test_names_that_no_small_vlm_has_are_refused_with_its_own(
    check: Check, pattern: str, meant: str
) -> None:
    config = f"device: cpu, learn: ['{pattern}']"
    (line,) = check(train(CPUS, config))
    assert line.startswith(f"7:61: stages.train.config: learn has '{pattern}', and model.type is ")
    assert line.endswith(f"language. or heads.: write for example `{meant}.*`")
    assert "phases.1.learn of phase b has" in check(phases(f"learn: ['{pattern}']"))[0]
    assert check(train(CPUS, f"{config}, model: {{type: hugging_face, name: a/b}}")) == []


@pytest.mark.parametrize(
    ("nsight", "device", "is_refused"),
    [("true", "cuda", True), ("true", "cpu", False), ("false", "cuda", False)],
)
def test_two_profilers_of_one_gpu_are_refused(
    check: Check, nsight: str, device: str, is_refused: bool
) -> None:
    resources = "tasks_per_node: 2, gpus_per_node: 2"
    text = train(resources, f"device: {device}, profile: {{steps: [2, 3]}}")
    lines = check(text.replace("run: train\n", f"run: train\n    nsight: {nsight}\n"))
    said = "6:5: stage `train` has `nsight: true` and `profile.steps`"
    assert [line.startswith(said) for line in lines] == [True] * is_refused
