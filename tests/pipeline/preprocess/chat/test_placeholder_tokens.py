"""Placeholders put together of tokens, against tokenizers that would make others of the whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.manifest import read_manifest
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.kinds import write_kind


def change_tokenizer(folder: Path, token: str, **changes: object) -> None:
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text())
    (found,) = (added for added in values["added_tokens"] if added["content"] == token)
    found.update(changes)
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("kind", "token", "flag"),
    [
        ("smolvlm", "<fake_token_around_image>", "rstrip"),
        ("smolvlm", "<fake_token_around_image>", "lstrip"),
        ("smolvlm", "<image>", "rstrip"),
    ],
)
def test_a_tokenizer_that_strips_white_space_around_a_mark_is_refused(
    tmp_path: Path, kind: str, token: str, flag: str
) -> None:
    folder = write_kind(kind, tmp_path / "processor")
    change_tokenizer(folder, token, **{flag: True})
    with pytest.raises(StageConfigError, match=r"tokenizer\.json: it encodes .*<fake"):
        SampleEncoder(folder, image_root=tmp_path)


@pytest.mark.parametrize("flag", ["lstrip", "rstrip"])
def test_image_token_that_takes_white_space_may_be_repeated(tmp_path: Path, flag: str) -> None:
    folder = write_kind("llava", tmp_path / "processor")
    change_tokenizer(folder, "<image>", **{flag: True})
    SampleEncoder(folder, image_root=tmp_path)


def test_marks_of_tiles_in_a_text_are_control_tokens(tmp_path: Path) -> None:
    """Also where the tokenizer does not list them: it writes an image's place in words."""
    for kind in ("idefics3", "smolvlm"):
        encoder = SampleEncoder(write_kind(kind, tmp_path / kind), image_root=tmp_path)
        found = encoder._control_tokens.search("see <row_2_col_1> and\n\n <row_9_col_9>")
        assert found is not None
        assert found.group() == "<row_2_col_1>"
        assert encoder._control_tokens.search("two\n\nlines") is None


def test_cut_leaves_the_marks_around_an_image_of_a_later_turn(tmp_path: Path) -> None:
    """Qwen's models find an image by the token before it."""
    Image.new("RGB", (60, 60)).save(tmp_path / "a.png")
    asked = {"role": "user", "content": [{"type": "image", "path": "a.png"}]}
    says = {"role": "assistant", "content": "something that is long enough"}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": [{**says, "role": "user"}, says, asked, says]}) + "\n")
    row = read_manifest(path)[0]
    encoder = SampleEncoder(
        write_kind("qwen2_vl", tmp_path / "processor"),
        image_root=tmp_path,
        max_tokens=110,
        too_long="truncate_text",
    )
    expanded = encoder.expand(encoder.tokenise(row), encoder.images.plan(row), row)
    tokens = encoder.finish(expanded, row)
    assert tokens.truncated
    text = encoder.chat.tokenizer.decode(tokens.input_ids)
    assert text.endswith(f"<|vision_start|>{'<|image_pad|>' * 4}<|vision_end|>")
