"""Code in the folder of a model, a processor or a tokenizer runs only if the spec allows it."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import dynamic_module_utils

from pipeline.models import data_facts
from pipeline.models.loading import pretrained as loading
from pipeline.models.loading.pretrained import load_whole, read_hugging_face_config
from pipeline.preprocess.chat import tokenizer
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import ModelConfig
from tests.pipeline.models.forged import forge
from tests.pipeline.models.tiny import write_tiny
from tests.pipeline.models.tiny_towers import write_tokenizer

ROOT = Path(__file__).parents[4]
CODE = """
from pathlib import Path
Path({mark!r}).touch()
from transformers import PreTrainedTokenizerFast, PreTrainedConfig
class Own(PreTrainedTokenizerFast): pass
class OwnConfig(PreTrainedConfig):
    model_type = "own"
"""


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that the folder's code makes; a question whether to run it is answered with yes."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    return tmp_path / "started"


@pytest.mark.parametrize("load", [data_facts.load_tokenizer, tokenizer.load_tokenizer])
def test_the_code_of_a_tokenizer_is_never_run(load, tmp_path: Path, mark: Path) -> None:
    folder = write_tokenizer(tmp_path / "tokenizer")
    settings = folder / "tokenizer_config.json"
    values = json.loads(settings.read_text())
    values |= {"auto_map": {"AutoTokenizer": [None, "own.Own"]}, "tokenizer_class": "Own"}
    settings.write_text(json.dumps(values))
    (folder / "own.py").write_text(CODE.format(mark=str(mark)))
    with pytest.raises((StageConfigError, ValueError)):
        load(folder)
    assert not mark.exists()


@pytest.mark.parametrize("is_trusted", [False, True])
def test_the_code_of_a_config_is_run_only_if_the_spec_trusts_it(
    tmp_path: Path, mark: Path, *, is_trusted: bool
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    values = {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "own.py").write_text(CODE.format(mark=str(mark)))
    config = ModelConfig(type="hugging_face", path=str(folder), trust_remote_code=is_trusted)
    if is_trusted:
        assert type(loading.read_hugging_face_config(config)).__name__ == "OwnConfig"
    else:
        with pytest.raises(StageConfigError):
            loading.read_hugging_face_config(config)
    assert mark.exists() == is_trusted


OWN = {"SmallVLM", "SiglipVisionConfig", "Qwen2Config"}
"""Classes of this project, and configs of a fixed class, which never load a folder's code."""


def undecided_calls(path: Path) -> Iterator[str]:
    """Calls that load something of transformers, and leave open whether its code may run."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner, name = ast.unparse(node.func.value), node.func.attr
        if name not in {"from_pretrained", "from_config"} or owner in OWN or owner == "cls":
            continue
        words = {word.arg for word in node.keywords}
        if not words & {"trust_remote_code", None}:  # None: `**options`
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {owner}.{name}"


def test_every_call_states_whether_code_of_a_folder_may_run() -> None:
    files = [*(ROOT / "pipeline").rglob("*.py"), *(ROOT / "slurm_jobs").rglob("*.py")]
    assert [call for path in files for call in undecided_calls(path)] == []


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_a_pickle_in_a_whole_models_folder_is_not_run(tmp_path, name):
    from transformers import AutoModelForImageTextToText

    folder, made = write_tiny("llava", tmp_path / "model"), tmp_path / "made"
    (folder / "model.safetensors").unlink()
    forge(folder / name, made, "archive")
    with pytest.raises(StageConfigError, match="cannot be loaded"):
        load_whole(AutoModelForImageTextToText, str(folder), remedy="", local_files_only=True)
    assert not made.exists()


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize("part", [None, "text_config"])
def test_kernels_that_a_config_names_are_not_loaded(tmp_path, key, part):
    folder = write_tiny("llava", tmp_path / "model")
    values = json.loads((folder / "config.json").read_text())
    (values if part is None else values[part])[key] = "a-stranger/kernels"
    (folder / "config.json").write_text(json.dumps(values))
    config = ModelConfig(type="hugging_face", path=str(folder))
    with pytest.raises(StageConfigError, match="takes its attention from a-stranger/kernels"):
        read_hugging_face_config(config)
