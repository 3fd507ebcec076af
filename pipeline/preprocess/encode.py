"""A manifest row to what the model is given: token ids, labels, resized images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from pipeline.preprocess.chat_tokenizer import ChatTokenizer, TemplateRefusedError
from pipeline.preprocess.control_tokens import compile_control_tokens, find_control_token
from pipeline.preprocess.decode import leave_pixel_limit_to_us
from pipeline.preprocess.images import load_pixels, read_image_bytes
from pipeline.preprocess.manifest_rows import ManifestRow, Message
from pipeline.preprocess.processor import ProcessorInfo, read_processor
from pipeline.preprocess.rejects import Reason, SampleRejectedError
from pipeline.preprocess.resample import fixed_target
from pipeline.preprocess.token_rules import (
    TokenSequence,
    count_token,
    cut_text,
    multiply_image_tokens,
)
from pipeline.preprocess.tokenizer import load_chat_tokenizer
from slurm_jobs.common.errors import StageConfigError, StageError
from slurm_jobs.common.stage_config.preprocess import (
    DEFAULT_IMAGE_DECODING,
    DEFAULT_MAX_IMAGES,
    DEFAULT_MAX_PIXELS,
    DEFAULT_MAX_TOKENS,
    ImageDecoding,
    TooLong,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedTokens:
    """The text side of a sample."""

    input_ids: np.ndarray
    """int32 [num_tokens], image tokens multiplied."""
    labels: np.ndarray
    """int32 [num_tokens], -100 where nothing is learned."""
    truncated: bool
    """Whether text was cut to fit `max_tokens`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedImages:
    """The image side of a sample."""

    images: tuple[np.ndarray, ...]
    """uint8 [height, width, 3] each, of the processor's size."""
    original_sizes: tuple[tuple[int, int], ...]
    """(width, height) as each file states it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedPrompt:
    """A conversation up to its last answer, for generation."""

    key: str
    input_ids: np.ndarray
    """int32 [num_tokens], up to where the assistant starts to speak."""
    images: tuple[np.ndarray, ...]
    """uint8 [height, width, 3] each."""
    reference: str
    """What the manifest has the assistant say there."""


class SampleEncoder:
    """Encodes rows by one processor folder.

    `encode_tokens` is for one thread at a time (fast tokenizers are not
    thread-safe); `encode_images` may run in many.
    """

    def __init__(
        self,
        processor_dir: Path,
        *,
        image_root: Path,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        max_images: int = DEFAULT_MAX_IMAGES,
        too_long: TooLong = "drop",
        max_pixels: int = DEFAULT_MAX_PIXELS,
        image_decoding: ImageDecoding = DEFAULT_IMAGE_DECODING,
    ) -> None:
        """Load the processor.

        Raises:
            StageConfigError: the processor cannot be used.
            StageError: there is no `image_root` on this node.
        """
        leave_pixel_limit_to_us()
        _check_root(image_root)
        self.processor: ProcessorInfo = read_processor(processor_dir)
        self.chat: ChatTokenizer = load_chat_tokenizer(processor_dir, self.processor.image_token)
        self._control_tokens = compile_control_tokens(self.chat, self.processor.image_token)
        self._image_root = image_root
        self._max_tokens = max_tokens
        self._max_images = max_images
        self._too_long = too_long
        self._max_pixels = max_pixels
        self._image_decoding: ImageDecoding = image_decoding

    def encode_prompt(self, row: ManifestRow) -> EncodedPrompt:
        """The row's conversation without its last answer, ready for generation.

        `too_long` does not apply: a prompt over a limit is rejected, not cut.

        Raises:
            SampleRejectedError: the row cannot be used; it has the reason.
        """
        self._check_row(row)
        problem = self._too_many_images(row)
        if problem:
            raise SampleRejectedError(reason="too_many_images", message=problem)
        asked, answer = row.messages[:-1], row.messages[-1]
        with _template_rejects(row):
            input_ids = self.chat.encode_prompt([_to_chat(message) for message in asked])
        asked_tokens = TokenSequence(input_ids=input_ids, supervised=np.zeros(len(input_ids), bool))
        tokens = self._multiply(asked_tokens, row)
        if len(tokens.input_ids) > self._max_tokens:
            raise SampleRejectedError(reason="too_long", message=self._length(tokens, row))
        return EncodedPrompt(
            key=row.key,
            input_ids=tokens.input_ids,
            images=self.encode_images(row).images,
            reference=answer.text,
        )

    def encode_tokens(self, row: ManifestRow) -> EncodedTokens:
        """Tokens and labels of a row.

        Raises:
            SampleRejectedError: the row cannot become a sample; it has the reason.
            StageConfigError: the row is over a limit, and `too_long` is `error`.
        """
        self._check_row(row)
        if not any(turn.role == "assistant" and turn.text.strip() for turn in row.messages):
            message = f"{row.origin}: the assistant says nothing but white space"
            raise SampleRejectedError(reason="nothing_supervised", message=message)
        problem = self._too_many_images(row)
        if problem:
            self._leave_out("too_many_images", problem, limit="max_images")
        with _template_rejects(row):
            tokens = self.chat.encode_conversation([_to_chat(message) for message in row.messages])
        multiplied = self._multiply(tokens, row)
        if not multiplied.supervised.any():
            message = f"{row.origin}: the assistant says nothing"
            raise SampleRejectedError(reason="nothing_supervised", message=message)
        fitting = self._fit(multiplied, row)
        truncated = fitting is not multiplied
        return EncodedTokens(
            input_ids=fitting.input_ids, labels=fitting.labels, truncated=truncated
        )

    def encode_images(self, row: ManifestRow) -> EncodedImages:
        """The row's images, decoded and resized.

        Raises:
            SampleRejectedError: an image cannot be used; it has the reason.
            OSError: the file system failed.
            MemoryError: naming row and image.
        """
        images, sizes = [], []
        for name in row.image_paths:
            try:
                image, size = self._encode_image(name)
            except MemoryError as error:
                message = f"{row.origin}: {name}: no memory to decode and resize it"
                raise MemoryError(message) from error
            images.append(image)
            sizes.append(size)
        return EncodedImages(images=tuple(images), original_sizes=tuple(sizes))

    def _encode_image(self, name: str) -> tuple[np.ndarray, tuple[int, int]]:
        data = read_image_bytes(self._image_root, name)
        loaded = load_pixels(
            data,
            target=fixed_target(self.processor.geometry),
            decoding=self._image_decoding,
            max_pixels=self._max_pixels,
            name=name,
        )
        return loaded.pixels, loaded.original_size

    def _check_row(self, row: ManifestRow) -> None:
        if row.problem:
            message = f"{row.origin}: {row.problem}"
            raise SampleRejectedError(reason="bad_row", message=message)
        for turn in row.messages:
            token = find_control_token(self._control_tokens, turn)
            if token is not None:
                is_image = token == self.processor.image_token
                kind = "the image token" if is_image else "a control token"
                message = f"{row.origin}: a text of the {turn.role} contains {token!r}, {kind}"
                reason: Reason = "image_token_in_text" if is_image else "control_token_in_text"
                raise SampleRejectedError(reason=reason, message=message)

    def _too_many_images(self, row: ManifestRow) -> str | None:
        num_images = len(row.image_paths)
        if num_images <= self._max_images:
            return None
        return f"{row.origin}: {num_images} images, max_images is {self._max_images}"

    def _leave_out(
        self, reason: Reason, message: str, *, limit: str, others: str = "`drop`"
    ) -> NoReturn:
        """Apply `too_long` to a row that is over a limit, and not cut."""
        if self._too_long == "error":
            text = f"{message}; raise config.{limit}, or set config.too_long to {others}"
            raise StageConfigError(text)
        raise SampleRejectedError(reason=reason, message=message)

    def _multiply(self, tokens: TokenSequence, row: ManifestRow) -> TokenSequence:
        num_found = count_token(tokens.input_ids, self.chat.image_token_id)
        num_images = len(row.image_paths)
        counts = f"{row.origin}: {num_found} image tokens for {num_images} images"
        if num_found > num_images:
            message = f"{counts}; a text contains {self.processor.image_token!r}"
            raise SampleRejectedError(reason="image_token_in_text", message=message)
        if num_found < num_images:
            message = f"{counts}; the chat template lost an image"
            raise SampleRejectedError(reason="image_lost_by_template", message=message)
        return multiply_image_tokens(
            tokens,
            image_token_id=self.chat.image_token_id,
            num_image_tokens=self.processor.num_image_tokens,
        )

    def _fit(self, tokens: TokenSequence, row: ManifestRow) -> TokenSequence:
        if len(tokens.input_ids) <= self._max_tokens:
            return tokens
        length = self._length(tokens, row)
        num_image_tokens = count_token(tokens.input_ids, self.chat.image_token_id)
        if num_image_tokens > self._max_tokens:
            message = f"{length}; {num_image_tokens} of them are image tokens, never cut"
            self._leave_out("images_too_long", message, limit="max_tokens")
        if self._too_long != "truncate_text":
            others = "`drop` or `truncate_text`"
            self._leave_out("too_long", length, limit="max_tokens", others=others)
        cut = cut_text(tokens, max_tokens=self._max_tokens, image_token_id=self.chat.image_token_id)
        said = cut.input_ids[cut.supervised]
        if not self.chat.tokenizer.decode(said, skip_special_tokens=True).strip():
            message = f"{length}; cut to that, the assistant says nothing"
            raise SampleRejectedError(reason="too_long", message=message)
        return cut

    def _length(self, tokens: TokenSequence, row: ManifestRow) -> str:
        return f"{row.origin}: {len(tokens.input_ids)} tokens, max_tokens is {self._max_tokens}"


def _check_root(image_root: Path) -> None:
    """Refuse a root that is not there: not its images are missing, but a mount or a right path."""
    if not image_root.is_dir():
        message = (
            f"{image_root}: no such folder on this node, so no image can be read; mount it, or set "
            f"config.image_root"
        )
        raise StageError(message)


@contextmanager
def _template_rejects(row: ManifestRow) -> Iterator[None]:
    """Make a row that the chat template refuses a reject of that row alone."""
    try:
        yield
    except TemplateRefusedError as error:
        message = f"{row.origin}: the chat template refuses it: {error}"
        raise SampleRejectedError(reason="refused_by_template", message=message) from error


def _to_chat(message: Message) -> dict[str, Any]:
    """The message as chat templates take it."""
    content = [
        {"type": "image"} if item.kind == "image" else {"type": "text", "text": item.value}
        for item in message.content
    ]
    return {"role": message.role, "content": content}
