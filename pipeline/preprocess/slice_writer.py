"""Rows of a slice through tokenizer, decoder and writer, in order, on several threads.

Fast tokenizers are not thread-safe, so the calling thread tokenises while the pool reads,
plans, decodes, resizes and stores images: libjpeg-turbo, torch and Pillow's codecs release the
interpreter's lock. The number of tokens of an image follows from its plan, so the pool expands
the tokens, too.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field

from pipeline.data.disk_format.sample_members import pack_sample
from pipeline.preprocess.chat.token_sequences import TokenSequence
from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.held_out_choice import side_of_row
from pipeline.preprocess.held_out_files import HeldOutWriter
from pipeline.preprocess.images.row_images import PlannedImage
from pipeline.preprocess.images.storage import MEMBER_SUFFIX, StoredPrice, image_to_bytes, price_of
from pipeline.preprocess.part import PartBuilder
from pipeline.preprocess.rejects import Reason, Reject, SampleRejectedError
from pipeline.stopping import StopGuard
from slurm_jobs.base.errors import StageError, StageStoppedError
from slurm_jobs.formats.configs.stages import HELD_OUT, PARTLY_HELD_OUT, ImageFormat
from slurm_jobs.formats.manifests.messages import ManifestRow
from slurm_jobs.formats.manifests.row_notes import RowNote
from slurm_jobs.formats.manifests.text_rows import TextRow
from slurm_jobs.formats.records.progress_file import Progress
from slurm_jobs.formats.records.rows_in_progress import RowsInProgress

_ROWS_AHEAD_PER_THREAD = 4
_MAX_IGNORED = 100
"""Limit of names of keys that are counted; rows may have any number."""
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
class EncodedRow:
    """Encoded image files of a row, and its tokens after each image token was expanded."""

    tokens: TokenSequence
    images: list[bytes]
    """For tiled images, all tiles."""
    sizes: dict[str, object]
    """Sizes in a sample's metadata."""
    num_pixels: int
    """Pixels of all stored images."""
    decode_s: float
    store_s: float
    prices: list[StoredPrice]
    """Cost of each image, if measured."""
    held_out_pictures: Sequence[bytes] | None
    """Files of the pictures of a row that is held out; None for any other."""


_Started = tuple[ManifestRow, Future[EncodedRow | Reject] | Reject]


@dataclass(kw_only=True, slots=True)
class SliceWriter:
    """Encodes rows with `num_threads` threads, and writes their samples in order."""

    encoder: SampleEncoder
    image_format: ImageFormat
    image_quality: int
    num_threads: int
    in_progress: RowsInProgress
    held_out: HeldOutWriter | None = None
    """Writer of the rows that are held out; None to hold out none."""
    seconds: Seconds = field(default_factory=Seconds)
    prices: list[StoredPrice] = field(default_factory=list)
    """Costs of the first images."""
    rejects: list[Reject] = field(default_factory=list)
    num_truncated: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    """Number of rows by key that is neither read nor known to be metadata."""
    notes: Counter[RowNote] = field(default_factory=Counter)
    """Number of samples by note."""
    num_text_samples: int = 0
    """Samples without a picture."""
    samples_by_manifest: Counter[str] = field(default_factory=Counter)
    """Number of samples by the name of their manifest, if that is one of a list."""
    bytes_by_manifest: Counter[str] = field(default_factory=Counter)
    """Bytes of the same samples."""
    first_text_row: TextRow | None = None

    def write(
        self,
        rows: Iterable[ManifestRow],
        builder: PartBuilder,
        progress: Progress,
        guard: StopGuard,
    ) -> None:
        """Append the samples of the rows to a part, and keep the rejects of the others.

        Raises:
            StageError: the file system or the memory failed; another attempt may succeed.
            StageConfigError: a row is over a limit, and `too_long` is `error`.
            StageStoppedError: a stop was requested.
        """
        with closing(self._start_all(rows)) as started:  # a stop must end its threads, too
            for num_done, (row, work) in enumerate(started):
                stored = work.result() if isinstance(work, Future) else work
                guard.check(num_done, progress.total)
                for key in row.ignored:
                    if key in self.ignored or len(self.ignored) < _MAX_IGNORED:
                        self.ignored[key] += 1
                reject = stored if isinstance(stored, Reject) else self._add(row, stored, builder)
                if reject is not None:
                    self.rejects.append(reject)
                progress.update(num_done + 1, detail=self._counts_text())

    def _counts_text(self) -> str:
        if self.held_out is None:
            return f"{len(self.rejects)} rejected"
        num_held_out = self.held_out.num_rows
        return f"{len(self.rejects) - num_held_out} rejected, {num_held_out} held out"

    def _start_all(self, rows: Iterable[ManifestRow]) -> Generator[_Started, None, None]:
        waiting: deque[_Started] = deque()
        pool = ThreadPoolExecutor(self.num_threads, thread_name_prefix="decode")
        try:
            for row in rows:
                start = time.perf_counter()
                try:
                    with self._noting(row):
                        tokens = self.encoder.tokenise(row)
                except Exception as error:  # noqa: BLE001 - `_reject` raises other errors
                    waiting.append((row, _reject(row, error)))
                else:
                    is_priced = len(self.prices) < _IMAGES_TO_PRICE
                    waiting.append((row, pool.submit(self._store_images, row, tokens, is_priced)))
                self.seconds.tokenise += time.perf_counter() - start
                if len(waiting) > self.num_threads * _ROWS_AHEAD_PER_THREAD:
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()
        finally:
            pool.shutdown(cancel_futures=True)
            self.in_progress.close()

    def _store_images(
        self, row: ManifestRow, tokens: TokenSequence, is_priced: bool
    ) -> EncodedRow | Reject:
        """Return the row's stored images; a reject is returned, not raised, to free its frames.

        An exception in a future keeps all its frames alive, and with them the file and the
        pixels.
        """
        try:
            with self._noting(row):
                start = time.perf_counter()
                planned = self.encoder.images.plan(row)
                # before spending much time on it
                expanded = self.encoder.expand(tokens, planned, row)
                held_out_pictures = self._held_out_pictures(row, planned)
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
                return EncodedRow(
                    tokens=expanded,
                    images=stored,
                    sizes={
                        "original_sizes": encoded.original_sizes,
                        "stored_sizes": encoded.stored_sizes,
                    },
                    num_pixels=encoded.num_pixels,
                    decode_s=decoded - start,
                    store_s=end - decoded,
                    prices=[price_of(pixels, data, self.image_format) for pixels, data in pairs],
                    held_out_pictures=held_out_pictures,
                )
        except MemoryError as error:
            message = (
                f"{error}; raise resources.mem_gb, or lower num_threads, max_pixels or max_image_mb"
            )
            raise StageError(message) from error
        except Exception as error:  # noqa: BLE001 - `_reject` raises other errors
            return _reject(row, error)

    def _held_out_pictures(
        self, row: ManifestRow, planned: Sequence[PlannedImage]
    ) -> list[bytes] | None:
        """Return `EncodedRow.held_out_pictures`.

        Raises:
            SampleRejectedError: only some of its pictures are held out.
        """
        if self.held_out is None:
            return None
        pictures = [image.data for image in planned]
        side = side_of_row(row, pictures, self.held_out.share)
        if side == "partly_held_out":
            message = f"{row.origin}: some of its pictures are held out, the others are not"
            raise SampleRejectedError(reason=PARTLY_HELD_OUT, message=message)
        return pictures if side == "held_out" else None

    def _noting(self, row: ManifestRow) -> AbstractContextManager[None]:
        return self.in_progress.working_on(f"{row.origin}: {row.source[:100]}")

    def _add(self, row: ManifestRow, stored: EncodedRow, builder: PartBuilder) -> Reject | None:
        try:
            tokens = self.encoder.finish(stored.tokens, row)
        except Exception as error:  # noqa: BLE001 - `_reject` raises other errors
            return _reject(row, error)
        self.seconds.decode += stored.decode_s
        self.seconds.store += stored.store_s
        self.prices.extend(stored.prices)
        if self.held_out is not None and stored.held_out_pictures is not None:
            self.held_out.add(row, stored.held_out_pictures)
            message = f"{row.origin}: held out, to be evaluated"
            return _reject(row, SampleRejectedError(reason=HELD_OUT, message=message))
        listed = row.origin.listed
        data = pack_sample(
            key=row.key,
            input_ids=tokens.input_ids,
            labels=tokens.labels,
            images=stored.images,
            image_suffix=MEMBER_SUFFIX[self.image_format],
            meta={
                "row": row.origin.row,
                **({} if listed is None else {"manifest": listed.name}),
                "source": row.source,
                "num_tokens": len(tokens.input_ids),
                "num_supervised_tokens": int((tokens.labels >= 0).sum()),
                "truncated": tokens.truncated,
                **stored.sizes,
            },
        )
        start = time.perf_counter()
        builder.add(
            row.key,
            data,
            labels=tokens.labels,
            num_images=len(stored.images),
            num_pixels=stored.num_pixels,
        )
        self.seconds.write += time.perf_counter() - start
        if listed is not None:
            self.samples_by_manifest[listed.name] += 1
            self.bytes_by_manifest[listed.name] += len(data)
        self.num_truncated += tokens.truncated
        self.notes.update(row.notes)
        if not stored.images:
            self.num_text_samples += 1
            self.first_text_row = self.first_text_row or TextRow.of(row)
        return None


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
        manifest=None if row.origin.listed is None else row.origin.listed.name,
    )
