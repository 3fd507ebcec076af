"""What is asked of a model, and what is said of its answers."""

import dataclasses
import weakref

import pytest
import torch

from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.preprocess.rejects import SampleRejectedError
from pipeline.train import evaluate, stage
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.evaluate import Generation, evaluation_dtype, summarise
from pipeline.train.held_out_rows import make_encoder, read_rows
from pipeline.train.trainer import Trainer
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.train import EvaluateConfig
from tests.pipeline.build import run_consolidate, run_preprocess, write_csv_manifest


@pytest.fixture(scope="module")
def preprocess_settings(tmp_path_factory, processor_dir):
    """What `dataset.json` says of a data set with settings of its own."""
    folder = tmp_path_factory.mktemp("dataset")
    config = {
        "manifest": str(write_csv_manifest(folder / "source", 3)),
        "processor": str(processor_dir),
        "prompt": "Which colour?",
        "system_prompt": "Be brief.",
        "max_tokens": 80,
        "max_pixels": 2000,
        "num_threads": 1,
    }
    _, parts_dir = run_preprocess(folder / "prep", config)
    return read_dataset_info(run_consolidate(folder / "set", parts_dir)[1]).preprocess


def test_heldout_rows_are_asked_as_the_training_rows_were(
    tmp_path, processor_dir, preprocess_settings
):
    config = EvaluateConfig(num_samples=2)
    manifest = write_csv_manifest(tmp_path / "heldout", 3)
    rows = read_rows(config, manifest, preprocess_settings)
    encoder = make_encoder(config, manifest, preprocess_settings, processor_dir)
    asked = [encoder.chat.tokenizer.decode(encoder.encode_prompt(row).input_ids) for row in rows]
    assert len(asked) == 2
    assert all("system\nBe brief." in text and "Which colour?" in text for text in asked)


@pytest.mark.parametrize(
    ("limit", "words"),
    [({"max_tokens": 20}, "max_tokens is 20"), ({"max_images": 0}, "max_images is 0"),
     ({"max_pixels": 1000}, "max_pixels is 1000")],
)  # fmt: skip
def test_heldout_rows_over_a_limit_of_the_data_set_are_left_out(
    tmp_path, processor_dir, preprocess_settings, limit, words
):
    manifest = write_csv_manifest(tmp_path / "heldout", 1)
    settings = {**preprocess_settings, **limit}
    (row,) = read_rows(EvaluateConfig(), manifest, settings)
    encoder = make_encoder(EvaluateConfig(), manifest, settings, processor_dir)
    with pytest.raises(SampleRejectedError, match=words):
        encoder.encode_prompt(row)


def test_heldout_images_may_lie_elsewhere_than_their_manifest(
    tmp_path, processor_dir, preprocess_settings
):
    manifest = write_csv_manifest(tmp_path / "images", 1).rename(tmp_path / "heldout.csv")
    config = EvaluateConfig()
    (row,) = read_rows(config, manifest, preprocess_settings)
    with pytest.raises(SampleRejectedError, match="no such file"):
        make_encoder(config, manifest, preprocess_settings, processor_dir).encode_prompt(row)
    there = dataclasses.replace(config, image_root=str(tmp_path / "images"))
    make_encoder(there, manifest, preprocess_settings, processor_dir).encode_prompt(row)


NOTHING_TO_ASK = r"heldout/train\.csv: none of its 3 rows can be used \(first: .*red\.png"


def without_images(manifest):
    for image in manifest.parent.glob("*.png"):
        image.unlink()
    return manifest


@pytest.fixture
def asking(make_train_run, tmp_path):
    """A run with three held-out rows, and their manifest."""
    manifest = write_csv_manifest(tmp_path / "heldout", 3)
    return make_train_run(evaluate={"manifest": str(manifest), "max_new_tokens": 2}), manifest


def test_heldout_rows_that_are_all_unusable_fail_before_any_step(asking):
    run, manifest = asking
    for image in manifest.parent.glob("*.png"):
        image.write_bytes(b"")
    # `image_root` is no remedy for rows whose images are there.
    with pytest.raises(StageConfigError, match=r"zero bytes\); fix it, or disable evaluation with"):
        run.run_here()
    without_images(manifest)
    with pytest.raises(StageConfigError, match=NOTHING_TO_ASK) as raised:
        run.run_here()
    assert "; fix it, set evaluate.image_root, or disable" in str(raised.value)
    assert not (run.output_dir / "checkpoints").exists()
    manifest.write_text("image_path,text\n")
    with pytest.raises(StageConfigError, match=r"heldout/train\.csv: it has no rows"):
        run.run_here()


def test_heldout_rows_unusable_after_training_fail_the_evaluation(asking, monkeypatch):
    run, manifest = asking
    monkeypatch.setattr(stage, "check_heldout", lambda *_, **__: without_images(manifest))
    with pytest.raises(StageConfigError, match=NOTHING_TO_ASK):
        run.run_here()
    assert not (run.output_dir / "evaluation.json").exists()


@pytest.mark.parametrize(
    ("device", "precision", "strategy", "dtype"),
    [("cuda", "bf16", "ddp", torch.bfloat16), ("cuda", "fp16", "fsdp2", torch.float16),
     ("cuda", "fp16", "ddp", torch.float32), ("cuda", "fp16", "single", torch.float32),
     ("cuda", "fp32", "ddp", torch.float32), ("cpu", "bf16", "fsdp2", torch.float32)],
)  # fmt: skip
def test_evaluation_halves_weights_on_a_gpu_unless_fp16_held_them_whole(
    device, precision, strategy, dtype
):
    place = RankDevice(device=torch.device(device), precision=precision, num_compute_threads=1)
    assert evaluation_dtype(place, strategy) == dtype


def test_weights_in_half_precision_answer(asking, monkeypatch):
    """On a CPU, as they would on a GPU."""
    run, _ = asking
    monkeypatch.setattr(stage, "evaluation_dtype", lambda rank_device, _: rank_device.dtype)
    loaded = []
    monkeypatch.setattr(evaluate, "load_heads", lambda model, _: loaded.append(model))
    result = run.run_here(precision="bf16", num_steps=1)
    assert result["evaluation"]["num_samples"] == 3
    assert {parameter.dtype for parameter in loaded[0].parameters()} == {torch.bfloat16}


PHASES = [
    {"name": "first", "num_steps": 1, "learn": ["projector"]},
    {"name": "second", "num_steps": 1},
]


@pytest.mark.parametrize(
    "config",
    [{"strategy": "single"}, {"strategy": "ddp", "phases": PHASES, "num_steps": None},
     {"strategy": "fsdp2"},
     {"strategy": "fsdp2", "adapters": {"rank": 2}, "activation_checkpointing": True}],
)  # fmt: skip
def test_model_and_optimizer_are_freed_when_the_evaluation_begins(
    make_train_run, tmp_path, monkeypatch, config
):
    """Model and optimizer have given back their memory, which they would take of a GPU's."""
    manifest = write_csv_manifest(tmp_path / "heldout", 3)
    looks = {"manifest": str(manifest), "every_steps": 1, "num_answers": 1, "max_new_tokens": 1}
    run = make_train_run(evaluate=looks, num_microbatches=2, **{"num_steps": 2, **config})
    held, found = [], []
    really_train = Trainer.train

    def train(trainer, trackers):
        really_train(trainer, trackers)
        parallel = trainer.model.parallel
        both = (parallel.bare, parallel.optimizer, *parallel.optimizer.param_groups[0]["params"])
        held.extend(weakref.ref(each) for each in both)

    def evaluate_nothing(*_, **__):
        found.extend(ref() is None for ref in held)
        return {}

    monkeypatch.setattr(Trainer, "train", train)
    monkeypatch.setattr(stage, "evaluate", evaluate_nothing)
    run.run_here(strategy=config["strategy"])
    assert len(found) > 3
    assert all(found)


def test_summary_counts_exact_answers_and_distinct_references():
    def generation(row, reference, text):
        return Generation(
            row=row, key="", reference=reference, generated=text, exact=reference == text
        )

    rows = [generation(0, "a", "a"), generation(1, "a", "b"), generation(2, "c", "c")]
    summary = summarise(rows, num_rejected=1)
    assert summary["exact_match"] == pytest.approx(2 / 3)
    assert (summary["num_distinct_references"], summary["num_rejected"]) == (2, 1)
    assert summarise([], num_rejected=0)["exact_match"] is None
