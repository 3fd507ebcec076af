import json
from pathlib import Path

import pytest

from tests.slurm_jobs.spec.conftest import Check

SPEC = """\
name: a
cluster: local
stages:
  p:
    run: preprocess
    config: {manifest: rows.csv, processor: PROCESSOR}
  c: {run: consolidate, after: p}
  t:
    run: train
    after: c
    config:
      device: cpu
      strategy: single
      num_steps: 1
      model: MODEL
"""
SMALL = "{language: {hidden_size: 64}}"
HF = "{type: hugging_face, path: qwen3_vl}"
TRAINED = ("qwen3_vl", "smolvlm", "llava", "siglip_vision_model", "qwen2")
CLASSES = {
    "qwen3_vl": "Qwen2VLImageProcessorFast",
    "smolvlm": "SmolVLMImageProcessor",
    "llava": "CLIPImageProcessor",
    "siglip_vision_model": "SiglipImageProcessor",
}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of each kind, called after its model_type, with its processor."""
    (tmp_path / "rows.csv").write_text("image_path,text\na.png,red\n")
    for kind in (*TRAINED, "unknown"):
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": kind}))
        (folder / "tokenizer.json").write_text("{}")
        (folder / "chat_template.jinja").touch()
        images = {"image_processor_type": CLASSES.get(kind, "NewImageProcessor")}
        if kind == "siglip_vision_model":
            (folder / "preprocessor_config.json").write_text(json.dumps(images))
        elif kind != "qwen2":
            (folder / "processor_config.json").write_text(json.dumps({"image_processor": images}))
    return tmp_path


def spec(processor: str, model: str) -> str:
    return SPEC.replace("PROCESSOR", processor).replace("MODEL", model)


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("override", ["p.config.processor=smolvlm", "t.config.model.path=llava"])
def test_a_value_from_the_command_line_is_reported_at_the_override(
    check: Check, override: str
) -> None:
    text = spec("qwen3_vl", HF)
    assert check(text) == []
    (line,) = check(text, overrides=(f"stages.{override}",))
    assert line.startswith(f"--set stages.{override}: ")


@pytest.mark.usefixtures("models")
def test_a_part_or_data_set_from_the_command_line_names_the_override(
    check: Check,
) -> None:
    parts = spec("{images: siglip_vision_model, text: qwen2}", SMALL)
    override = "stages.p.config.processor.images=smolvlm"
    found = [line for line in check(parts, overrides=(override,)) if "takes images" in line]
    assert [line.partition(": ")[0] for line in found] == [f"--set {override}"]

    own = "  p2:\n    run: preprocess\n    config: {manifest: rows.csv, processor: smolvlm}\n"
    own += "  c2: {run: consolidate, after: p2}\n  t:\n"
    phases = "phases: [{name: a, num_steps: 1}, {name: b, num_steps: 1}]"
    text = spec("qwen3_vl", HF).replace("  t:\n", own).replace("after: c\n", "after: [c, c2]\n")
    for given, key in (("num_steps: 1", "dataset"), (phases, "phases.1.dataset")):
        plain = text.replace(
            "      num_steps: 1", f"      dataset: ${{c.output_dir}}\n      {given}"
        )
        assert check(plain) == []
        override = f"stages.t.config.{key}=${{c2.output_dir}}"
        (line,) = check(plain, overrides=(override,))
        assert line.startswith(f"--set {override}: ")


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("processor", "model"),
    [
        ("llava", SMALL),
        ("{images: siglip_vision_model, text: qwen2}", SMALL),
        ("unknown", HF),
        ("smolvlm", "{type: hugging_face, name: Qwen/Qwen3-VL-2B-Instruct}"),
        ("smolvlm", "{type: hugging_face, path: smolvlm}"),
    ],
)
def test_what_may_go_together_is_left_to_the_job(check: Check, processor: str, model: str) -> None:
    lines = check(spec(processor, model))
    assert [line for line in lines if "takes images" in line] == []


@pytest.mark.usefixtures("models")
def test_each_data_set_of_the_spec_is_compared_and_no_other(check: Check) -> None:
    phases = "phases: [{name: a, num_steps: 1, dataset: .}, {name: b, num_steps: 1}]"
    for length, num_problems in {
        "num_steps: 1\n      dataset: .": 0,
        "num_steps: 1\n      dataset: ${c.output_dir}": 1,
        phases: 1,
        phases.replace("num_steps: 1}]", "num_steps: 1, dataset: .}]"): 0,
    }.items():
        text = spec("smolvlm", HF).replace("num_steps: 1", length, 1)
        assert len(check(text)) == num_problems


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("processor", "limits", "words"),
    [
        ("smolvlm", "{max: 1003520}", "this is a SmolVLMImageProcessor: its limit is size.longes"),
        ("llava", "{max: 1003520}", "this is a CLIPImageProcessor: its limit is size and crop_siz"),
        ("unknown", "{max: 1003520}", "this is a NewImageProcessor: it has none of these"),
        ("qwen3_vl", "{max: 300}", "image_pixels.max is 300, less than one token"),
        ("qwen3_vl", "{max: 3000}", "set image_pixels.min, too"),
        ("qwen3_vl", "{max: 1003520}", ""),
    ],
)
def test_limits_of_images_that_the_processor_does_not_have_are_refused(
    check: Check, processor: str, limits: str, words: str
) -> None:
    text = spec(
        f"{processor}, image_pixels: {limits}", f"{{type: hugging_face, path: {processor}}}"
    )
    lines = [line for line in check(text) if "image_pixels" in line]
    assert [line.startswith("6:") and words in line for line in lines] == [True] * bool(words)


def test_a_byte_order_mark_hides_no_setting_of_a_processor(check: Check, models: Path) -> None:
    file = models / "smolvlm" / "processor_config.json"
    spec = SPEC.replace("PROCESSOR", "smolvlm").replace("MODEL", SMALL)
    expected = check(spec)
    assert expected
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert check(spec) == expected
