"""Texts per second through chat template and tokenizer, compared with transformers' own."""

from __future__ import annotations

import itertools
import json
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from benchmarks.table import Row, row
from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.manifest import read_manifest
from tests.pipeline.build import CHAT_TEMPLATE, write_processor

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY_SIZE = 8_192
NUM_CHATS = 400
WORDS_A_TURN = 30


def tokenising_rows(folder: Path, repeats: int) -> list[Row]:
    """Measure chats of a question and an answer of thirty words each, with an image, on one thread.

    The words come from docs/, and the byte-level BPE of 8,192 tokens is trained on them. The peer
    is `apply_chat_template` with `return_assistant_tokens_mask`.
    """
    chats = list(itertools.islice(_chats(), NUM_CHATS))
    manifest = folder / "chats.jsonl"
    manifest.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    _write_processor(folder / "processor")
    encoder = SampleEncoder(folder / "processor", image_root=folder, max_tokens=10**6)
    Image.new("RGB", (64, 64)).save(folder / "a.png")
    rows, tokenizer = read_manifest(manifest), encoder.chat.tokenizer
    planned = encoder.images.plan(rows[0])  # all rows have the same image

    def ours() -> int:
        num_tokens = 0
        for row_ in rows:
            tokens = encoder.expand(encoder.tokenise(row_), planned, row_)
            num_tokens += len(encoder.finish(tokens, row_).input_ids)
        return num_tokens

    def theirs() -> None:
        for chat in chats:
            tokenizer.apply_chat_template(
                chat, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
            )

    taken: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(repeats):
        for name, work in (("ours", ours), ("theirs", theirs)):
            start_s = time.process_time()
            work()
            taken[name].append(time.process_time() - start_s)
    per_s = {name: NUM_CHATS / 1e3 / statistics.median(times) for name, times in taken.items()}
    num_tokens = ours() / NUM_CHATS
    case = f"tokenise a chat of {num_tokens:.0f} tokens, labels and checks with it"
    return [
        row(case, "1,000 texts/s/core", per_s["ours"], peer="apply_chat_template with mask",
            peer_value=per_s["theirs"]),
    ]  # fmt: skip


def _chats() -> Iterator[list[dict[str, object]]]:
    turns = itertools.cycle(_turns())
    while True:
        content = [{"type": "image", "path": "a.png"}, {"type": "text", "text": next(turns)}]
        answer = [{"type": "text", "text": next(turns)}]
        yield [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]


def _turns() -> list[str]:
    """Return the words of docs/ in turns of WORDS_A_TURN words."""
    text = " ".join(page.read_text() for page in sorted(ROOT.glob("docs/**/*.md")))
    words = re.findall(r"[A-Za-z]+[,.;]?", text)
    starts = range(0, len(words) - WORDS_A_TURN, WORDS_A_TURN)
    return [" ".join(words[start : start + WORDS_A_TURN]) for start in starts]


def _write_processor(folder: Path) -> None:
    """Write the tests' processor with a small but realistic vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    write_processor(folder)
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_turns(), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<|pad|>",  # noqa: S106 - no password
        eos_token="<|end|>",  # noqa: S106
        additional_special_tokens=["<image>", "<|start|>"],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
