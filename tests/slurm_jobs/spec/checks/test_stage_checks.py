from collections.abc import Callable

import pytest

Check = Callable[..., list[str]]

TRAIN = """\
name: a
cluster: local
stages:
  train:
    run: train
    resources: {{{resources}}}
    config: {{dataset: ., num_steps: 10, {config}}}
"""


def train(resources: str, config: str) -> str:
    return TRAIN.format(resources=resources, config=config)


def test_a_sound_training_stage_has_no_problem(check: Check) -> None:
    assert check(train("tasks_per_node: 2", "device: cpu")) == []
    assert check(train("tasks_per_node: 4, gpus_per_node: 4, gpu: [a100, v100]", "")) == []
    assert check(train("", "device: cpu, strategy: single")) == []
    assert check(train("tasks_per_node: 2", "device: cpu, profile: {ranks: [5]}")) == []


@pytest.mark.parametrize(
    ("resources", "config", "place", "message"),
    [
        ("tasks_per_node: 4, gpus_per_node: 2", "", "6:5", "gpus_per_node is 2"),
        ("tasks_per_node: 2", "device: cpu, learn: [adapters]", "7:61", "there are none"),
        (
            "tasks_per_node: 2",
            "device: cpu, learn: [heads], levels: [{name: a}]",
            "7:61",
            "learn names heads, and there are none",
        ),
        ("tasks_per_node: 2, gpu: a100", "device: cpu", "6:36", "say how many"),
    ],
)
def test_what_contradicts_the_resources_is_told(
    check: Check, resources: str, config: str, place: str, message: str
) -> None:
    (line,) = check(train(resources, config))
    assert line.startswith(f"{place}: ")
    assert message in line


@pytest.mark.parametrize(
    "config",
    [
        "device: cpu, num_microbatches: 3, batching: {kind: packed, max_tokens: 64}",
        "device: cpu, num_microbatches: auto",
        "device: cpu, profile: {steps: [9, 9]}",
    ],
)
def test_what_may_be_right_is_left_to_the_job(check: Check, config: str) -> None:
    assert check(train("tasks_per_node: 2", config)) == []


def test_phases_are_told_by_their_own_line(check: Check) -> None:
    text = train("", "device: cpu, strategy: single").replace(
        "num_steps: 10, ",
        "phases: [{name: a, num_steps: 2},\n"
        "      {name: b, num_steps: 2, learn: [all], rate: 3},\n"
        "      {name: c, num_epochs: 1, dataset: nowhere}], ",
    )
    lines = check(text)
    assert [line.partition(": ")[0] for line in lines] == ["8:45", "9:41"]
    assert "unknown key `rate`" in lines[0]
    assert "nowhere" in lines[1]


def test_what_is_right_of_a_wrong_config_is_held_against_the_ranks(check: Check) -> None:
    text = (
        "name: a\ncluster: local\nstages:\n  t:\n    run: train\n    retries: many\n"
        "    resources: {tasks_per_node: 3}\n    config:\n      dataset: .\n      lr: 2\n"
        "      strategy: fsdp\n      num_steps: 5\n"
        "      evaluate: {manifest: nope.jsonl}\n"
    )
    lines = check(text)
    assert [line.partition(": ")[0] for line in lines] == [
        *("6:14", "7:5", "8:5", "10:7", "11:17", "13:28")
    ]
    assert "trains on GPUs with tasks_per_node: 3" in lines[1]
    assert "8 lanes cannot be shared out evenly to 3 ranks" in lines[2]


@pytest.mark.parametrize(
    ("resources", "config", "place"),
    [
        ("tasks_per_node: 3", "device: cpu, num_lanes: x", "7:65"),
        ("", "device: cpu, strategy: singel", "7:64"),
        ("tasks_per_node: 2", "device: cpu, global_batch_size: x, num_lanes: 6", "7:73"),
        ("", "device: cup, strategy: single", "7:49"),
        ("tasks_per_node: x", "device: cpu", "6:33"),
    ],
)
def test_no_rule_hangs_on_a_value_that_is_wrong(
    check: Check, resources: str, config: str, place: str
) -> None:
    (line,) = check(train(resources, config))
    assert line.startswith(f"{place}: ")


@pytest.mark.parametrize(
    ("stage", "place", "message"),
    [
        ("{run: train, shell: make}", "4:19", "`run` and `shell`; give one"),
        ("{retries: 1}", "4:3", "neither `run`"),
        ("{run: null}", "4:3", "neither `run`"),
        ("{}", "4:3", "neither `run`"),
        ("", "4:3", "found nothing"),
        ("{run: trian}", "4:12", "neither a built-in stage"),
        ("{run: 'a.b: c'}", "4:12", "neither a built-in stage"),
        ("{shell: ''}", "4:14", "must not be empty"),
    ],
)
def test_a_stage_runs_one_thing(check: Check, stage: str, place: str, message: str) -> None:
    lines = check(f"name: a\ncluster: local\nstages:\n  s: {stage}\n")
    assert any(line.startswith(f"{place}: ") and message in line for line in lines), lines


def test_a_misspelt_run_is_one_problem(check: Check) -> None:
    (line,) = check("name: a\ncluster: local\nstages:\n  s: {rnu: report}\n")
    assert "did you mean `run`?" in line


def test_constraint_and_several_gpu_types_are_told_apart_only_by_features(check: Check) -> None:
    resources = "gpus_per_node: 1, gpu: [a100, v100], slurm: {constraint: '%s'}"
    text = "name: a\ncluster: local\nstages:\n  s:\n    shell: make\n    resources: {%s}\n"
    assert check(text % (resources % "ib&bigmem")) == []
    (line,) = check(text % (resources % "[ib|eth]"))
    assert "6:74: " in line
    assert "joined by &" in line


def test_names_of_stages_that_are_one_name_in_a_shell_are_refused(check: Check) -> None:
    stages = "{a-b: {shell: make}, A_b: {shell: make}}"
    (line,) = check(f"name: a\ncluster: local\nstages: {stages}\n")
    assert line.startswith("3:30: stages `a-b` and `A_b` differ only in case")


PARTS = """\
name: a
cluster: local
stages:
  p: {{run: preprocess, array: {{num_slices: 4}}, config: {{manifest: m.csv, processor: .}}}}
  c:
    run: consolidate
    after: {after}
    array: {{num_slices: {num_slices}}}
"""


@pytest.mark.parametrize("num_slices", [1, 3, 4])
def test_consolidate_may_be_an_array_of_any_size(check: Check, num_slices: int) -> None:
    problems = check(PARTS.format(after="p", num_slices=num_slices))
    assert not [problem for problem in problems if "stage `c`" in problem or "`c`" in problem]


def test_consolidate_that_would_start_slice_by_slice_is_refused(check: Check) -> None:
    (problem,) = [
        p for p in check(PARTS.format(after="{p: aftercorr}", num_slices=4)) if "aftercorr" in p
    ]
    assert problem.startswith("7:16: each task of `c` reads what all slices before it made"), (
        problem
    )


PHASES = """\
name: a
cluster: local
stages:
  train:
    run: train
    resources: {tasks_per_node: 2}
    config:
      dataset: .
      device: cpu
      global_batch_size: 16
      num_microbatches: 2
      phases:
        - {name: a, num_steps: 2}
        - {name: b, num_steps: 2, SECOND}
"""


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("global_batch_size=12", "num_lanes is 8: give a divisor of global_batch_size (12)"),
        ("num_microbatches=3", "cannot be cut into 3"),
    ],
)
def test_what_the_command_line_says_of_a_phase_is_told_there(
    check: Check, override: str, words: str
) -> None:
    text = PHASES.replace("SECOND", "batching: {kind: shuffled}")
    override = f"stages.train.config.phases.1.{override}"
    (line,) = check(text, overrides=(override,))
    assert line.startswith(f"--set {override}: ")
    assert words in line


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
    assert check(PHASES.replace("SECOND", second)) == []


def test_microbatches_of_the_training_are_held_against_the_phases_that_take_them(
    check: Check,
) -> None:
    text = PHASES.replace("num_microbatches: 2", "num_microbatches: 3")
    (line,) = check(text.replace("SECOND", "num_microbatches: 4"))
    assert line.startswith("11:25: stages.train.config.num_microbatches: the 8 samples of a rank")
    own = text.replace("num_steps: 2}", "num_steps: 2, num_microbatches: 2}")
    assert check(own.replace("SECOND", "num_microbatches: 4")) == []


def test_steps_to_profile_may_lie_in_any_phase_and_not_after_the_last(check: Check) -> None:
    text = PHASES.replace("SECOND", "learn: [all]")
    assert check(text, overrides=("stages.train.config.profile.steps=[3, 3]",)) == []
    (line,) = check(text, overrides=("stages.train.config.profile.steps=[4, 5]",))
    assert "profile.steps begins at step 4, and the training has 4, counted from 0" in line


@pytest.mark.parametrize(
    ("overrides", "at"),
    [
        ((), "7:5"),
        (("resources.tasks_per_node=3",), "--set stages.train.resources.tasks_per_node=3"),
        (("resources={nodes: 3}",), "--set stages.train.resources={nodes: 3}"),
    ],
)
def test_lanes_that_ranks_cannot_share_are_told_at_what_was_set(
    check: Check, overrides: tuple[str, ...], at: str
) -> None:
    ranks = "" if overrides else "nodes: 3"
    text = train(ranks, "device: cpu, strategy: ddp")
    lines = check(text, overrides=tuple(f"stages.train.{override}" for override in overrides))
    (line,) = [line for line in lines if "lanes cannot be shared out" in line]
    assert line.startswith(f"{at}: ")


def test_adapters_that_no_phase_learns_are_sent_to_the_learn_of_a_phase(check: Check) -> None:
    text = PHASES.replace("num_steps: 2}", "num_steps: 2, learn: [projector]}")
    text = text.replace("SECOND", "learn: [vision]").replace(
        "  phases:", "  adapters: {}\n      phases:"
    )
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
    ],
)
def test_what_was_set_on_the_command_line_is_told_there(
    check: Check, override: str, words: str
) -> None:
    override = f"stages.train.{override}"
    text = PHASES.replace(", SECOND", "")
    assert check(text) == []
    lines = check(text, overrides=(override,))
    assert [line for line in lines if line.startswith(f"--set {override}: ") and words in line]
    assert all(line.startswith("--set ") for line in lines)


def test_gpus_that_are_taken_away_on_the_command_line_are_told_there(check: Check) -> None:
    text = train("tasks_per_node: 2, gpus_per_node: 2", "strategy: ddp")
    override = "stages.train.resources.gpus_per_node=1"
    (line,) = check(text, overrides=(override,))
    assert line.startswith(f"--set {override}: stage `train` trains on GPUs")


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
    (line,) = check(train("tasks_per_node: 2", config))
    assert line.startswith(f"7:61: stages.train.config: learn has '{pattern}', and model.type is ")
    assert line.endswith(f"language. or heads.: write for example `{meant}.*`")
    text = PHASES.replace("SECOND", f"learn: ['{pattern}']")
    assert "phases.1.learn of phase b has" in check(text)[0]
    other = f"{config}, model: {{type: hugging_face, name: a/b}}"
    assert check(train("tasks_per_node: 2", other)) == []


def test_names_that_a_small_vlm_has_may_learn(check: Check) -> None:
    config = "device: cpu, learn: ['vision.*', '*.layers.1.*', 'language.model.*', 'heads.*']"
    assert check(train("tasks_per_node: 2", config)) == []


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
    assert len(lines) == is_refused
    if is_refused:
        assert lines[0].startswith("6:5: stage `train` has `nsight: true` and `profile.steps`")
        assert "set `nsight: false`, or `profile: {steps: null}`" in lines[0]
