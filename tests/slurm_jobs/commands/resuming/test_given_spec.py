"""What a resume may change of a run's spec by `--set`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError, SpecError
from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.commands.resuming.given_spec import file_differs, keep_spec, spec_of
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.commands.resuming.given_overrides import SPEC, TRAIN, MakeRun, make
from tests.slurm_jobs.spec.checks.preprocess_spec import write_processor

__all__ = ["make"]


@pytest.fixture
def paths(make: MakeRun) -> RunPaths:
    return make(SPEC)


@pytest.mark.parametrize(
    "override",
    [
        "stages.q.matrix={x: [1, 2]}",
        "stages.t.matrix.lr=[1, 2, 3]",
        "stages.q={shell: x, matrix: {x: [1, 2]}}",
        "stages.new={shell: x, matrix: {x: [1, 2]}}",
        "stages.t-1={shell: x, matrix: [{lr: 9}]}",
        "stages.t-1={shell: x, matrix: [{lr: 1.0}]}",
        "stages.t-1={shell: x}",
        "stages={q: {shell: x, matrix: {x: [1, 2]}}}",
    ],
)
def test_no_override_gives_a_stage_of_a_run_another_matrix(paths: RunPaths, override: str) -> None:
    with pytest.raises(InputError, match="resume with --update-spec") as caught:
        spec_of(paths, [override], update_spec=False)
    assert str(caught.value).startswith(f"--set {override}: ")
    assert "\n" not in str(caught.value)


def test_a_whole_stage_may_be_set_that_keeps_its_matrix(paths: RunPaths) -> None:
    overrides = ["stages.t-1={shell: other, matrix: [{lr: 1}]}", "stages.new={shell: x}"]
    stages = spec_of(paths, overrides, update_spec=False).spec.stages
    assert list(stages) == ["q", "t-1", "t-2", "new"]
    assert (stages["t-1"].shell, stages["t-1"].matrix) == ("other", [{"lr": 1}])


@pytest.mark.parametrize("update_spec", [False, True])
def test_a_limit_that_no_stage_takes_is_refused_at_a_resume_too(
    paths: RunPaths, *, update_spec: bool
) -> None:
    with pytest.raises(InputError, match="--set limit=5: limit: no stage of this spec takes it"):
        spec_of(paths, ["limit=5"], update_spec=update_spec)
    assert spec_of(paths, ["limit=null"], update_spec=update_spec).spec.limit is None


TRAINING = """\
name: m
cluster: local
stages:
  preprocess:
    run: preprocess
    array: {num_slices: 1}
    config: {manifest: rows.jsonl, processor: proc, image_root: .}
"""


@pytest.mark.parametrize("key", ["manifest", "processor", "image_root"])
def test_an_overridden_path_must_exist_and_one_of_the_run_may_be_gone(
    make: MakeRun, tmp_path: Path, key: str
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"image": "0.png", "text": "a cat"}\n')
    write_processor(tmp_path)
    paths = make(TRAINING)
    shutil.rmtree(tmp_path / "proc")
    (tmp_path / "rows.jsonl").unlink()
    for unrelated in ("retries=1", f"environment.CACHE={tmp_path}", f"node_local_dir={tmp_path}"):
        assert spec_of(paths, [f"stages.preprocess.{unrelated}"], update_spec=False)
    override = f"stages.preprocess.config.{key}=missing"
    with pytest.raises(SpecError, match=f"--set {override}.*: nothing at {tmp_path}/missing"):
        spec_of(paths, [override], update_spec=False)


def test_a_limit_that_the_run_already_has_does_not_block_another_override(make: MakeRun) -> None:
    made = make(f"limit: 5\n{SPEC}")
    assert spec_of(made, ["stages.q.retries=1"], update_spec=False).spec.limit == 5


def test_a_file_of_accelerate_is_not_read_again_for_another_override(
    tmp_path: Path, make: MakeRun
) -> None:
    (tmp_path / "accelerate.yaml").write_text("distributed_type: MULTI_CPU")
    made = make(
        f"{SPEC}  train:\n    run: train\n    resources: {{tasks_per_node: 2}}\n    config:\n"
        "      {dataset: ., num_steps: 1, device: cpu, strategy: accelerate,\n"
        "       accelerate: {config: accelerate.yaml}}\n"
    )
    (tmp_path / "accelerate.yaml").unlink()
    assert spec_of(made, ["stages.q.retries=1"], update_spec=False).spec.stages["q"].retries == 1


def test_an_override_without_effect_is_noted_unless_the_run_had_it(
    make: MakeRun,
) -> None:
    made = make(TRAIN.replace("cpu}", "cpu, batching: {kind: shuffled, max_images: 3}}"))
    overrides = ["stages.train.config.batching.max_tokens=64"]
    (note,) = spec_of(made, overrides, update_spec=False).notes
    assert note.startswith(
        "stages.train.config.batching.max_tokens: `64` has no effect: only `kind"
    )
    assert spec_of(made, ["stages.q.retries=1"], update_spec=False).notes == ()
    given = spec_of(made, overrides, update_spec=True).notes
    assert len(given) == 2  # the file is read anew, and told of as by `check`
    assert any("max_images" in note and "spec.yaml" in note for note in given)


def refused(paths: RunPaths, *overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        spec_of(paths, overrides, update_spec=False)
    (problem,) = caught.value.problems
    return str(problem)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "stages.train.config.num_epochs=2",
            "stages.train.config: num_steps is 10 and num_epochs is 2.0: give exactly one of them",
        ),
        (
            "stages.train.config.num_steps=null",
            (
                "stages.train.config: none of num_steps, num_epochs and phases is given: give "
                "exactly one of them"
            ),
        ),
        (
            "stages.train.config.profile.steps=[20, 40]",
            (
                "stages.train.config: profile.steps begins at step 20, and the training has 10, "
                "counted from 0: name earlier ones"
            ),
        ),
        (
            "stages.train.config.profile.steps=20, 40",
            (
                "stages.train.config.profile.steps: expected a list, found the text `20, 40`; "
                "write [20, 40]"
            ),
        ),
        (
            "stages.train.config.strategy=single",
            (
                "stage `train` has 2 ranks, but `strategy: single` uses one; say `strategy: fsdp2` "
                "or `strategy: ddp`, or ask for one rank"
            ),
        ),
        (
            "stages.train.resources.tasks_per_node=1",
            (
                "stage `train` trains with fsdp2, which needs two ranks or more, but nodes x "
                "tasks_per_node is 1; ask for more, or say `strategy: single`"
            ),
        ),
        ("stages.train.after=[nobody]", "stage `train` comes after `nobody`, which is not a stage"),
    ],
)
def test_an_error_that_an_override_causes_is_reported_at_the_override(
    make: MakeRun, override: str, message: str
) -> None:
    made = make(TRAIN)
    assert refused(made, override).startswith(f"--set {override}: {message}")


def test_only_the_overrides_that_cause_a_problem_are_named(
    make: MakeRun,
) -> None:
    made = make(TRAIN.replace("device: cpu", "device: cpu, num_microbatches: 32"))
    retries, lanes = "stages.q.retries=1", "stages.train.config.num_lanes=4"
    ranks = "stages.train.resources.tasks_per_node=8"
    assert refused(made, retries, ranks, lanes).startswith(
        f"--set {lanes}: stages.train.config.num_lanes: 4 lanes cannot be divided"
    )
    device = "stages.train.config.device=cuda"
    assert refused(made, retries, device).startswith(f"--set {device}: stage `train` trains on GPU")
    more = "stages.train.resources={tasks_per_node: 4}"
    token = "stages.q.environment.HF_TOKEN=hf_abcdefgh"
    said = refused(made, more, token, more)
    assert said.startswith(f"--set {more} --set stages.q.environment.HF_TOKEN=")
    assert (
        "the 16 samples of a rank (global_batch_size 64, 4 ranks) cannot be divided into 32" in said
    )
    assert "hf_abcdefgh" not in said


def test_what_a_run_has_wrong_already_is_not_blamed_on_an_override(make: MakeRun) -> None:
    made = make(TRAIN)
    resolved = read_json(made.resolved_spec)
    resolved["stages"]["train"]["config"]["num_lanes"] = 7
    write_json_atomic(made.resolved_spec, resolved)
    said = refused(made, "stages.q.retries=1")
    assert said.startswith(f"{made.resolved_spec}: ")
    assert "num_lanes" in said


def test_with_update_spec_axes_of_a_matrix_may_be_set(paths: RunPaths) -> None:
    given = spec_of(paths, ["stages.t.matrix.lr=[3]"], update_spec=True)
    assert list(given.spec.stages) == ["q", "t-3"]


@pytest.mark.parametrize("key", ["name", "name ", " name", "cluster ", "runs_dir\t", "name.x"])
@pytest.mark.parametrize("update_spec", [False, True])
def test_what_a_run_keeps_for_good_is_not_set_however_it_is_written(
    paths: RunPaths, key: str, *, update_spec: bool
) -> None:
    with pytest.raises(InputError, match="a run keeps its"):
        spec_of(paths, [f"{key}=zzz"], update_spec=update_spec)


def test_what_has_no_stage_in_the_file_any_more_is_not_remembered_further(paths: RunPaths) -> None:
    keep_spec(paths, spec_of(paths, ["stages.t-2.retries=1"], update_spec=False))
    file = Path(read_json(paths.spec_origin)["spec_file"])
    file.write_text(SPEC.replace("[1, 2]", "[1]"))
    given = spec_of(paths, ["stages.q.retries=3"], update_spec=True)
    assert list(given.spec.stages) == ["q", "t-1"]
    keep_spec(paths, given)
    assert read_json(paths.spec_origin)["overrides"] == ["stages.q.retries=3"]
    file.write_text(SPEC)
    stages = spec_of(paths, [], update_spec=True).spec.stages
    assert {name: stage.retries for name, stage in stages.items()} == {"q": 3, "t-1": 0, "t-2": 0}


def test_a_file_that_was_edited_differs_until_the_run_is_given_it(paths: RunPaths) -> None:
    file = Path(read_json(paths.spec_origin)["spec_file"])
    assert not file_differs(paths)
    file.write_text(SPEC + "# edited\n")
    assert file_differs(paths)
    keep_spec(paths, spec_of(paths, ["stages.q.retries=1"], update_spec=False))
    assert file_differs(paths)
    keep_spec(paths, spec_of(paths, [], update_spec=True))
    assert not file_differs(paths)


def test_a_missing_or_binary_file_is_not_reported(paths: RunPaths) -> None:
    file = Path(read_json(paths.spec_origin)["spec_file"])
    file.write_bytes(b"\xff")
    assert not file_differs(paths)
    file.unlink()
    assert not file_differs(paths)


@pytest.mark.parametrize("lost", ["gone", "no text"])
def test_the_spec_as_it_was_given_is_not_needed_to_go_on(paths: RunPaths, lost: str) -> None:
    if lost == "gone":
        paths.given_spec.unlink()
    else:
        paths.given_spec.write_bytes(b"\xff")
    assert not file_differs(paths)


def test_an_override_of_an_expanded_matrix_stage_is_refused_with_a_remedy(
    paths: RunPaths,
) -> None:
    assert refused(paths, "stages.t.retries=2") == (
        "--set stages.t.retries=2: stage `t` has a matrix, and is its combinations by now: set "
        "each by its name (--set stages.t-1.retries=...; those are t-1, t-2), or all of them with "
        "--update-spec in addition, which reads the spec's file again"
    )
    given = spec_of(paths, ["stages.t.retries=2"], update_spec=True)
    assert [stage.retries for stage in given.spec.stages.values()] == [0, 2, 2]
    assert "there is no stage `u`" in refused(paths, "stages.u.retries=2")
