"""Manifest rows to model inputs: token ids, labels, resized images.

The tokens of a row follow from its texts and from the sizes of its images, which another thread
may read. The text is tokenised with one token per image, then the images are planned, then each
image's token is replaced by all its image tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from pipeline.preprocess.chat.answer_spans import TemplateRefusedError
from pipeline.preprocess.chat.chat_tokenizer import ChatTokenizer, ImageText
from pipeline.preprocess.chat.control_tokens import compile_control_tokens, find_control_token
from pipeline.preprocess.chat.placeholder_tokens import make_image_tokens
from pipeline.preprocess.chat.token_sequences import TokenSequence, count_token, cut_text
from pipeline.preprocess.chat.tokenizer import load_tokenizer, make_chat_tokenizer, named_tokens
from pipeline.preprocess.images.decode import limit_inner_pixels
from pipeline.preprocess.images.image_sources import ImageSource
from pipeline.preprocess.images.row_images import PlannedImage, RowImages
from pipeline.preprocess.rejects import Reason, SampleRejectedError
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.configs.stages import (
    DEFAULT_IMAGE_DECODING,
    DEFAULT_MAX_IMAGE_MB,
    DEFAULT_MAX_IMAGES,
    DEFAULT_MAX_PIXELS,
    DEFAULT_MAX_TOKENS,
    ImageDecoding,
    TooLong,
)
from slurm_jobs.formats.manifests.messages import ManifestRow, Message
from slurm_jobs.formats.processors.folder import ProcessorInfo, check_folder, read_processor


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedTokens:
    """Text side of a sample."""

    input_ids: np.ndarray
    """int32 [num_tokens], with all tokens of its images."""
    labels: np.ndarray
    """int32 [num_tokens], -100 where nothing is learned."""
    truncated: bool
    """True if text was cut to fit `max_tokens`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedPrompt:
    """Conversation up to its last answer, for generation."""

    key: str
    input_ids: np.ndarray
    """int32 [num_tokens], up to where the assistant's answer starts."""
    images: tuple[np.ndarray, ...]
    """uint8 [height, width, 3] each, as in a sample of the data set."""
    original_sizes: tuple[tuple[int, int], ...]
    """(width, height) of each image of the row, upright."""
    reference: str
    """Answer of the manifest."""


MAX_TEXT_CHARS = 4_000_000
"""Limit of a row's text: a tokenizer takes some 400 bytes and 3 us for each character."""
MAX_TURNS = 2_000
"""Limit of a conversation: templates look at turns again for each turn."""


class SampleEncoder:
    """Encodes rows with one processor folder: `tokenise`, `images.plan`, `expand`, then `finish`.

    Only one thread at a time may call `tokenise`, `finish` and `encode_prompt` (fast tokenizers
    are not thread-safe); `expand` and `images` may be used from many.
    """

    def __init__(
        self,
        processor_dir: Path,
        *,
        image_root: Path,
        listed_image_roots: Sequence[Path] = (),
        images_within: Path | None = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        max_images: int = DEFAULT_MAX_IMAGES,
        too_long: TooLong = "drop",
        max_pixels: int = DEFAULT_MAX_PIXELS,
        max_image_mb: int = DEFAULT_MAX_IMAGE_MB,
        index_dir: Path | None = None,
        image_decoding: ImageDecoding = DEFAULT_IMAGE_DECODING,
    ) -> None:
        """Load the processor; for `images_within` and `index_dir` see `ImageSource`.

        `listed_image_roots` are those of a list of manifests, whose rows know their manifest.

        Raises:
            StageConfigError: the processor cannot be used.
            StageError: a root of images does not exist on this node.
        """
        limit_inner_pixels(max_pixels)
        for root in (image_root, *listed_image_roots):
            _check_root(root)
        check_folder(processor_dir)
        tokenizer = load_tokenizer(processor_dir)
        self.processor: ProcessorInfo = read_processor(processor_dir, named_tokens(tokenizer))
        kind = self.processor.images
        image_text = None
        if kind.printed_token != kind.image_token:
            image_text = ImageText(printed=kind.printed_token, written=kind.written)
        self.chat: ChatTokenizer = make_chat_tokenizer(
            tokenizer, processor_dir, kind.image_token, image_text
        )
        source, *listed_sources = (
            ImageSource(
                root,
                within=images_within,
                index_dir=index_dir,
                max_bytes=max_image_mb * 1_000_000,
            )
            for root in (image_root, *listed_image_roots)
        )
        self.images = RowImages(
            processor=self.processor,
            source=source,
            max_pixels=max_pixels,
            decoding=image_decoding,
            listed_sources=listed_sources,
        )
        self._image_tokens = make_image_tokens(tokenizer, kind, processor_dir)
        self._control_tokens = compile_control_tokens(self.chat, kind.pieces())
        self._max_tokens = max_tokens
        self._max_images = max_images
        self._too_long = too_long

    def encode_prompt(self, row: ManifestRow) -> EncodedPrompt:
        """Return the row's conversation without its last answer, ready for generation.

        `too_long` does not apply: a prompt over a limit is rejected, not cut.

        Raises:
            SampleRejectedError: the row cannot be used; the error has the reason.
        """
        self._check_row(row)
        if problem := _too_much_text(row):
            raise SampleRejectedError(reason="too_long", message=problem)
        if problem := self._too_many_images(row):
            raise SampleRejectedError(reason="too_many_images", message=problem)
        row = _up_to_last_learned(row)
        question, answer = row.messages[:-1], row.messages[-1]
        with _template_rejects(row):
            tokens = self.chat.encode_prompt(
                [_to_chat(message) for message in question], must_print_all=True
            )
        self._check_image_tokens(tokens, row)
        planned = self.images.plan(row)
        expanded = self._image_tokens.expand(tokens, [image.plan for image in planned])
        if len(expanded.input_ids) > self._max_tokens:
            raise SampleRejectedError(reason="too_long", message=self._length(expanded, row))
        arrays = self.images.make(row, planned)
        return EncodedPrompt(
            key=row.key,
            input_ids=expanded.input_ids,
            images=arrays.images,
            original_sizes=arrays.original_sizes,
            reference=answer.text,
        )

    def tokenise(self, row: ManifestRow) -> TokenSequence:
        """Return the tokens of a row, a single one in place of each image, and which are learned.

        Raises:
            SampleRejectedError: the row cannot become a sample; the error has the reason.
            StageConfigError: it has more images than `max_images` or far too much text, and
                `too_long` is `error`.
        """
        self._check_row(row)
        if problem := _too_much_text(row):
            self._leave_out("too_long", problem, remedy="divide it into several rows")
        if problem := row.nothing_learned:
            message = f"{row.origin}: {problem}"
            raise SampleRejectedError(reason="nothing_supervised", message=message)
        if problem := self._too_many_images(row):
            self._leave_out("too_many_images", problem, remedy="raise config.max_images")
        answers = [turn for turn in row.messages if turn.role == "assistant"]
        with _template_rejects(row):
            tokens = self.chat.encode_conversation(
                [_to_chat(message) for message in row.messages],
                must_print_all=True,
                unlearned=[number for number, turn in enumerate(answers) if not turn.is_learned],
            )
        self._check_image_tokens(tokens, row)
        if not tokens.supervised[tokens.input_ids != self.chat.image_token_id].any():
            message = f"{row.origin}: the assistant says nothing"
            raise SampleRejectedError(reason="nothing_supervised", message=message)
        return tokens

    def expand(
        self, tokens: TokenSequence, planned: Sequence[PlannedImage], row: ManifestRow
    ) -> TokenSequence:
        """Replace the one token of each image by all its image tokens; `finish` cuts text.

        Raises:
            SampleRejectedError: the row is over `max_tokens`, and not cut.
            StageConfigError: it is, and `too_long` is `error`.
        """
        expanded = self._image_tokens.expand(tokens, [image.plan for image in planned])
        if len(expanded.input_ids) <= self._max_tokens:
            return expanded
        length = self._length(expanded, row)
        num_image_tokens = int(expanded.of_image.sum())
        if num_image_tokens > self._max_tokens:
            message = f"{length}; {num_image_tokens} of them are image tokens, never cut"
            self._leave_out(
                "images_too_long",
                message,
                remedy="raise config.max_tokens",
                num_tokens=len(expanded.input_ids),
            )
        if self._too_long != "truncate_text":
            self._leave_out(
                "too_long",
                length,
                remedy="raise config.max_tokens",
                others="`drop` or `truncate_text`",
                num_tokens=len(expanded.input_ids),
            )
        return expanded

    def finish(self, tokens: TokenSequence, row: ManifestRow) -> EncodedTokens:
        """Return tokens and labels of a row from the tokens of `expand`; cut if necessary.

        Raises:
            SampleRejectedError: a cut leaves nothing to learn.
        """
        truncated = len(tokens.input_ids) > self._max_tokens
        fitting = self._cut(tokens, row) if truncated else tokens
        return EncodedTokens(
            input_ids=fitting.input_ids, labels=fitting.labels, truncated=truncated
        )

    def _check_row(self, row: ManifestRow) -> None:
        if row.problem:
            message = f"{row.origin}: {row.problem}"
            raise SampleRejectedError(reason="bad_row", message=message)
        images = self.processor.images
        for turn in row.messages:
            token = find_control_token(self._control_tokens, turn)
            if token is not None:
                is_image = token in {images.image_token, images.printed_token}
                kind = "the image token" if is_image else "a control token"
                message = f"{row.origin}: a text of the {turn.role} contains {token!r}, {kind}"
                reason: Reason = "image_token_in_text" if is_image else "control_token_in_text"
                raise SampleRejectedError(reason=reason, message=message)

    def _too_many_images(self, row: ManifestRow) -> str | None:
        num_images = len(row.images)
        if num_images <= self._max_images:
            return None
        return f"{row.origin}: {num_images} images, max_images is {self._max_images}"

    def _leave_out(
        self,
        reason: Reason,
        message: str,
        *,
        remedy: str,
        others: str = "`drop`",
        num_tokens: int | None = None,
    ) -> NoReturn:
        """Apply `too_long` to a row that is over a limit and not cut."""
        if self._too_long == "error":
            text = f"{message}; {remedy}, or set config.too_long to {others}"
            raise StageConfigError(text)
        raise SampleRejectedError(reason=reason, message=message, num_tokens=num_tokens)

    def _check_image_tokens(self, tokens: TokenSequence, row: ManifestRow) -> None:
        num_found = count_token(tokens.input_ids, self.chat.image_token_id)
        num_images = len(row.images)
        counts = f"{row.origin}: {num_found} image tokens for {num_images} images"
        if num_found > num_images:
            message = f"{counts}; a text contains {self.processor.images.image_token!r}"
            raise SampleRejectedError(reason="image_token_in_text", message=message)
        if num_found < num_images:
            message = f"{counts}; the chat template lost an image"
            raise SampleRejectedError(reason="image_lost_by_template", message=message)

    def _cut(self, tokens: TokenSequence, row: ManifestRow) -> TokenSequence:
        cut = cut_text(tokens, max_tokens=self._max_tokens)
        answer = cut.input_ids[cut.supervised]
        if not self.chat.decode(answer, skip_special_tokens=True).strip():
            message = f"{self._length(tokens, row)}; cut to that, the assistant says nothing"
            raise SampleRejectedError(
                reason="too_long", message=message, num_tokens=len(tokens.input_ids)
            )
        return cut

    def _length(self, tokens: TokenSequence, row: ManifestRow) -> str:
        return f"{row.origin}: {len(tokens.input_ids)} tokens, max_tokens is {self._max_tokens}"


def _check_root(image_root: Path) -> None:
    """Refuse a missing root: its cause is a missing mount or a wrong path, not missing images."""
    if not image_root.is_dir():
        message = (
            f"{image_root}: no such folder on this node, so images cannot be read; mount it, or "
            "set config.image_root"
        )
        raise StageError(message)


@contextmanager
def _template_rejects(row: ManifestRow) -> Iterator[None]:
    """Turn a refusal of the chat template into a reject of that row."""
    try:
        yield
    except TemplateRefusedError as error:
        message = f"{row.origin}: the chat template refuses it: {error}"
        raise SampleRejectedError(reason="refused_by_template", message=message) from error


def _too_much_text(row: ManifestRow) -> str | None:
    num_chars = sum(len(turn.text) for turn in row.messages)
    if num_chars <= MAX_TEXT_CHARS and len(row.messages) <= MAX_TURNS:
        return None
    return (
        f"{row.origin}: {len(row.messages):,} turns of {num_chars:,} characters together; "
        f"rows of more than {MAX_TURNS:,} turns or {MAX_TEXT_CHARS:,} are not tokenised"
    )


def _up_to_last_learned(row: ManifestRow) -> ManifestRow:
    """Return the row up to its last learned answer."""
    for number in reversed(range(len(row.messages))):
        turn = row.messages[number]
        if turn.role == "assistant" and turn.is_learned:
            return replace(row, messages=row.messages[: number + 1])
    message = f"{row.origin}: no turn is learned: each answer is marked as context"
    raise SampleRejectedError(reason="nothing_supervised", message=message)


def _to_chat(message: Message) -> dict[str, Any]:
    """Return the message for chat templates.

    Consecutive texts become one item, because published templates print only the first, or end
    the turn after each. A message without content gets an empty text, because templates read
    the first item.
    """
    content: list[dict[str, str]] = []
    for kind, items in itertools.groupby(message.content, key=lambda item: item.kind):
        if kind == "image":
            content += [{"type": "image"} for _ in items]
        else:
            content.append({"type": "text", "text": "".join(item.value for item in items)})
    return {"role": message.role, "content": content or [{"type": "text", "text": ""}]}
