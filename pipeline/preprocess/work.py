"""Rows of a slice through tokenizer, decoder and writer, in order, on several threads.

Fast tokenizers are not thread-safe, so the calling thread tokenises while the pool reads,
plans, decodes, resizes and stores images: libjpeg-turbo, torch and Pillow's codecs release the
interpreter's lock. The number of tokens of an image follows from its plan, so the pool expands
the tokens, too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from pipeline.data.sample_format import pack_sample
from pipeline.preprocess.encode import EncodedTokens, SampleEncoder
from pipeline.preprocess.rejects import Reason, Reject, SampleRejectedError
from pipeline.preprocess.row_images import EncodedImages
from pipeline.preprocess.storage import MEMBER_SUFFIX, StoredPrice, image_to_bytes, price_of
from pipeline.preprocess.token_rules import TokenSequence
from slurm_jobs.common.errors import StageError, StageStoppedError
from slurm_jobs.common.manifests.rows import ManifestRow
from slurm_jobs.common.rows_in_progress import RowsInProgress
from slurm_jobs.common.stage_config.preprocess import ImageFormat

_ROWS_AHEAD_PER_THREAD = 4

_IMAGES_TO_PRICE = 16
"""Images of a slice that are read back to measure the cost of the format: the first ones, and a
few more that are in progress by then."""


@dataclass(slots=True)
class Seconds:
    """Time of a slice by activity, summed over threads."""

    decode: float = 0.0
    """Reading, decoding and resizing."""
    store: float = 0.0
    tokenise: float = 0.0
    write: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredImages:
    """Stored images of a row, and its tokens with theirs."""

    tokens: TokenSequence
    images: list[bytes]
    encoded: EncodedImages
    decode_s: float
    store_s: float
    prices: list[StoredPrice]
    """Cost of each image, if measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowResult:
    """Result of a row: a sample's bytes, or the reason why there is none."""

    row: ManifestRow
    tokens: EncodedTokens | None = None
    data: bytes = b""
    """Members of the sample, as in the part's tar."""
    num_images: int = 0
    """Stored images; for tiled images, all tiles."""
    num_pixels: int = 0
    """Pixels of all stored images."""
    reject: Reject | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RowWorker:
    """Encodes rows with `num_threads` threads, and returns them in order."""

    encoder: SampleEncoder
    image_format: ImageFormat
    image_quality: int
    num_threads: int
    seconds: Seconds = field(default_factory=Seconds)
    prices: list[StoredPrice] = field(default_factory=list)
    """Costs of the first images."""
    in_progress: RowsInProgress | None = None
    """Register of the rows in progress."""

    def results(self, rows: Iterable[ManifestRow]) -> Generator[RowResult, None, None]:
        """Yield one result per row, in the order of the rows.

        Raises:
            StageError: the file system or the memory failed; another attempt may succeed.
            StageConfigError: a row is over a limit, and `too_long` is `error`.
        """
        waiting: deque[tuple[ManifestRow, Future[StoredImages | Reject]] | RowResult] = deque()
        pool = ThreadPoolExecutor(self.num_threads, thread_name_prefix="decode")
        try:
            for row in rows:
                waiting.append(self._start(row, pool))
                if len(waiting) > self.num_threads * _ROWS_AHEAD_PER_THREAD:
                    yield self._finish(waiting.popleft())
            while waiting:
                yield self._finish(waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)
            if self.in_progress is not None:
                self.in_progress.close()

    def _start(
        self, row: ManifestRow, pool: ThreadPoolExecutor
    ) -> tuple[ManifestRow, Future[StoredImages | Reject]] | RowResult:
        start = time.perf_counter()
        try:
            with self._noting(row):
                tokens = self.encoder.tokenise(row)
        except Exception as error:  # noqa: BLE001 - `_reject` raises what is not the row's
            return RowResult(row=row, reject=_reject(row, error))
        finally:
            self.seconds.tokenise += time.perf_counter() - start
        is_priced = len(self.prices) < _IMAGES_TO_PRICE
        return row, pool.submit(self._store_images, row, tokens, is_priced=is_priced)

    def _store_images(
        self, row: ManifestRow, tokens: TokenSequence, *, is_priced: bool
    ) -> StoredImages | Reject:
        """Return the row's stored images; a reject is returned, not raised, to free its frames.

        An exception in a future keeps all its frames alive, and with them the file and the
        pixels.
        """
        try:
            with self._noting(row):
                return self._make_images(row, tokens, is_priced=is_priced)
        except MemoryError as error:
            message = f"{error}; raise resources.mem_gb, or lower num_threads or max_pixels"
            raise StageError(message) from error
        except Exception as error:  # noqa: BLE001 - `_reject` raises what is not the row's
            return _reject(row, error)

    def _noting(self, row: ManifestRow) -> AbstractContextManager[None]:
        if self.in_progress is None:
            return nullcontext()
        return self.in_progress.working_on(f"{row.origin}: {row.source[:100]}")

    def _make_images(
        self, row: ManifestRow, tokens: TokenSequence, *, is_priced: bool
    ) -> StoredImages:
        start = time.perf_counter()
        planned = self.encoder.images.plan(row)
        expanded = self.encoder.expand(tokens, planned, row)  # before spending much time on it
        encoded = self.encoder.images.make(row, planned)
        decoded = time.perf_counter()
        names = (
            image.name
            for image, sizes in zip(planned, encoded.stored_sizes, strict=True)
            for _ in sizes
        )
        stored = [
            image_to_bytes(pixels, self.image_format, self.image_quality, name)
            for name, pixels in zip(names, encoded.images, strict=True)
        ]
        end = time.perf_counter()
        pairs = zip(encoded.images, stored, strict=True) if is_priced else ()
        return StoredImages(
            tokens=expanded,
            images=stored,
            encoded=encoded,
            decode_s=decoded - start,
            store_s=end - decoded,
            prices=[price_of(pixels, data, self.image_format) for pixels, data in pairs],
        )

    def _finish(
        self, started: tuple[ManifestRow, Future[StoredImages | Reject]] | RowResult
    ) -> RowResult:
        if isinstance(started, RowResult):
            return started
        row, future = started
        stored = future.result()
        if isinstance(stored, Reject):
            return RowResult(row=row, reject=stored)
        try:
            tokens = self.encoder.finish(stored.tokens, row)
        except Exception as error:  # noqa: BLE001 - `_reject` raises what is not the row's
            return RowResult(row=row, reject=_reject(row, error))
        self.seconds.decode += stored.decode_s
        self.seconds.store += stored.store_s
        self.prices.extend(stored.prices)
        data = pack_sample(
            key=row.key,
            input_ids=tokens.input_ids,
            labels=tokens.labels,
            images=stored.images,
            image_suffix=MEMBER_SUFFIX[self.image_format],
            meta=_meta(row, tokens, stored.encoded),
        )
        return RowResult(
            row=row,
            tokens=tokens,
            data=data,
            num_images=len(stored.images),
            num_pixels=stored.encoded.num_pixels,
        )


def _reject(row: ManifestRow, error: Exception) -> Reject:
    """Return the reject of a row for an error.

    An unexpected error has its own reason and its type in the message. So it is counted, and a
    bug that affects many rows fails the slice by `max_reject_share`.

    Raises:
        StageError: an error of the operating system; an `OSError` of a decoder has no number.
        Exception: the error itself, if it is the stage's own or a lack of memory.
    """
    if isinstance(error, (StageError, StageStoppedError, MemoryError)):
        raise error
    if isinstance(error, OSError) and error.errno is not None:
        message = f"{row.origin}: {row.source}: {error}"
        raise StageError(message) from error
    reason: Reason = "unexpected_error"
    num_tokens = None
    message = f"{row.origin}: {row.source}: {type(error).__name__}: {error}"
    if isinstance(error, SampleRejectedError):
        reason, message, num_tokens = error.reason, str(error), error.num_tokens
    return Reject(
        row=row.origin.row,
        key=row.key,
        source=row.source,
        place=str(row.origin),
        reason=reason,
        message=message,
        num_tokens=num_tokens,
    )


def _meta(row: ManifestRow, tokens: EncodedTokens, images: EncodedImages) -> dict[str, object]:
    return {
        "row": row.origin.row,
        "source": row.source,
        "num_tokens": len(tokens.input_ids),
        "num_supervised_tokens": int((tokens.labels >= 0).sum()),
        "truncated": tokens.truncated,
        "original_sizes": [list(size) for size in images.original_sizes],
        "stored_sizes": [[list(size) for size in sizes] for sizes in images.stored_sizes],
    }
