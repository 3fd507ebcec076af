"""Folders of images with leftovers, links and odd names: no file is dropped in silence."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pipeline.preprocess.manifest import read_manifest
from slurm_jobs.base.errors import InputError
from slurm_jobs.cli import main
from slurm_jobs.commands.starter.images.folder_files import list_files, stems_of, without_damaged
from slurm_jobs.commands.starter.images.image_folder import read_image_folder
from tests.fuzz.budget import bounded, examples

STEMS = st.one_of(
    st.sampled_from(
        ["cat", "dog", "1", "train_1", "test_2", "a_mask", "a b", "a.b", "$HOME", "-v"]
    ),
    st.text(st.characters(exclude_characters="/\0", exclude_categories=[]), min_size=1, max_size=8),
)
SUFFIXES = st.sampled_from(
    [
        *(".jpg", ".jpg", ".jpg", ".PNG", ".txt", ".txt", ".txt", ".caption", ".jpg.txt", ".json"),
        *(".heic", ".tar", ".parquet", ".md", "", ".jpg~", ".svg", ".csv", ".zip", ".001"),
    ]
)
FILES = st.one_of(
    st.builds(lambda stem, suffix: f"{stem}{suffix}", STEMS, SUFFIXES),
    st.sampled_from(
        [
            *("Thumbs.db", "desktop.ini", ".DS_Store", "._cat.jpg", "._cat.txt", "Icon\r"),
            *("metadata.parquet", "cat.jpg@SynoEAStream", "state.json"),
        ]
    ),
)
FOLDERS = st.one_of(
    st.sampled_from(
        [
            *("cat", "dog", "images", "train", "val", "test", "masks", "labels", "extra", "00000"),
            *("@eaDir", "#recycle", "$RECYCLE.BIN", "lost+found", ".ipynb_checkpoints", "cat.jpg"),
            *("__MACOSX", ".git", "train2017", "imagesTr"),
        ]
    ),
    STEMS,
)


def picture() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (32, 24), (200, 30, 30)).save(stream, "PNG")
    return stream.getvalue()


def archive() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        member = tarfile.TarInfo("cats/1.jpg")
        member.size = len(PICTURE)
        tar.addfile(member, io.BytesIO(PICTURE))
    return stream.getvalue()


def table() -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"url": ["https://example.org/1.jpg"], "text": ["a cat"]}), stream)
    return stream.getvalue()


PICTURE = picture()
CONTENTS = st.one_of(
    st.none(),  # what its suffix says
    st.none(),
    st.none(),
    st.sampled_from([b"", b"<!DOCTYPE html>", b"0 0.5 0.5 0.2 0.3\n", b"7", b"\xff\xfe", PICTURE]),
    st.sampled_from([archive(), table(), b"a cat\r\n\r\non a mat\r", b"image,text\na.jpg,a\n"]),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=40),
)
LINKS = st.sampled_from([None] * 20 + ["..", ".", "/dev/zero", "nowhere", "cat", "1.jpg", "pipe"])
Entries = list[tuple[list[str], str, bytes | None, str | None]]
SOUND: list[Entries] = [
    [],
    [([], "cat.jpg", None, None), ([], "cat.txt", None, None)],
    [(["cat"], "0.jpg", None, None), (["dog"], "0.jpg", None, None)],
    [
        (["train", "cat"], "0.jpg", None, None),
        (["val", "cat"], "0.jpg", None, None),
        (["train", "cat"], "0.txt", None, None),
    ],
]
"""Beginnings of a folder, with which it holds data to train on unless the others contradict."""
ENTRIES = st.builds(
    lambda sound, others: sound + others,
    st.sampled_from(SOUND),
    st.lists(st.tuples(st.lists(FOLDERS, max_size=3), FILES, CONTENTS, LINKS), max_size=12),
)


def usual_content(name: str) -> bytes:
    """What a file of this name mostly has; mostly the captions of a picture differ."""
    suffix = Path(name).suffix.lower()
    known = {".txt": f"a picture\nof {len(name)}", ".caption": "a picture", ".json": "{}"}
    if suffix in {".jpg", ".png", ".heic"}:
        return PICTURE
    if suffix in {".tar", ".parquet"}:
        return archive() if suffix == ".tar" else table()
    return known.get(suffix, "x").encode()


def write(folder: Path, entries: Entries) -> None:
    """Write what the file system takes of the entries; an earlier one wins."""
    for folders, name, content, link in entries:
        path = folder.joinpath(*map(os.fsdecode, map(encoded, [*folders, name])))
        with contextlib.suppress(OSError, ValueError):
            path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):
                continue
            if link == "pipe":
                os.mkfifo(path)
            elif link is not None:
                path.symlink_to(link)
            else:
                path.write_bytes(usual_content(name) if content is None else content)


def encoded(name: str) -> bytes:
    """Lone surrogates become bytes that are no UTF-8."""
    text = "_" if name in {".", ".."} else name
    return text.encode("utf-8", "surrogatepass")[:200]


def run(*words: str) -> tuple[int, str]:
    """Run a command, and return its exit code and all that it printed."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    code: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main.main(list(words))
        except SystemExit as ended:
            code = ended.code
    printed = ""
    for stream in (out, err):
        stream.flush()
        printed += stream.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert isinstance(code, int), printed
    assert "Traceback" not in printed
    return code, printed


@contextlib.contextmanager
def tree(entries: Entries) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp())
    try:
        (place / "data").mkdir()
        write(place / "data", entries)
        yield place
    finally:
        shutil.rmtree(place)


def entries_of(folder: Path) -> Counter[str]:
    """Every entry below a folder that is no folder itself, without following links."""
    found: Counter[str] = Counter()
    for here, folders, files in os.walk(folder):
        links = [name for name in folders if Path(here, name).is_symlink()]
        found.update(str(Path(here, name)) for name in (*files, *links))
    return found


@examples(100)
@given(entries=ENTRIES)
def test_each_file_of_a_folder_is_in_one_group(entries: Entries) -> None:
    with tree(entries) as place, bounded():
        data = place / "data"
        found = list_files(data)
        skipped = [*found.leftovers, *found.unread, *found.twins]
        listed = Counter(str(p) for group in found.by_kind.values() for p in group)
        listed.update(str(path) for path in skipped)
        assert max(listed.values(), default=1) == 1
        real = {os.path.realpath(path) for path in listed}
        for entry in entries_of(data):
            is_below = any(Path(entry).is_relative_to(path) for path in skipped)
            # Behind a link to a folder, files have that path.
            assert (
                is_below or entry in listed or os.path.realpath(entry) in real or is_folder(entry)
            )


def is_folder(path: str) -> bool:
    """A link to a folder whose files are listed below the link."""
    return Path(path).is_dir()


COUNTED = re.compile(r"(?:left out|not read): ([\d,]+) (image|file|text file|link|path|\S+ file)")


@examples(100)
@given(entries=ENTRIES)
def test_init_and_check_use_or_count_every_file(entries: Entries) -> None:
    with tree(entries) as place, bounded():
        data, spec = place / "data", place / "spec" / "finetune.yaml"
        code, printed = run("init", str(spec.parent), "--local", "--yes", "--data", str(data))
        assert code in {0, 2}, printed
        manifest = spec.parent / "finetune.jsonl"
        if not spec.exists():
            assert code == 2
            assert printed.startswith("slurm-jobs: ")
            return
        checked, _ = run("check", str(spec))
        assert checked == code
        if not manifest.exists():  # a list, next to which nothing is read
            assert "other files there are read only if a row names them" in printed
            return
        rows = list(read_manifest(manifest))
        heldout = spec.parent / "finetune-heldout.jsonl"
        rows += list(read_manifest(heldout)) if heldout.exists() else []
        require_counted(data, printed, len(rows))
        with contextlib.suppress(InputError):
            words = read_image_folder(data).train.words
            for row, text in zip(rows, words, strict=False):
                assert row.problem or row.messages[-1].text == text


def require_counted(data: Path, printed: str, num_rows: int) -> None:
    """The numbers that are printed add up to the files of the folder."""
    found = list_files(data)
    counts: Counter[str] = Counter()
    for line in printed.splitlines():
        match = COUNTED.match(line)
        if match:
            counts[kind_of_note(line)] += int(match[1].replace(",", ""))
    assert num_rows + counts["image"] == len(found.by_kind["image"]), printed
    for kind in ("unopened", "list", "unknown"):
        assert counts[kind] == len(found.by_kind[kind]), (kind, printed)
    images, _notes = without_damaged(found.by_kind["image"])
    stems = {stem for image in images for stem in stems_of(image)}
    alone = [file for file in found.by_kind["caption"] if file.with_suffix("") not in stems]
    assert counts["caption"] == len(alone), printed
    assert counts["leftovers"] == len(found.leftovers), printed
    assert counts["unread"] == len(found.unread), printed
    assert counts["twins"] == len(found.twins), printed


def kind_of_note(line: str) -> str:
    marks = {
        "without image": "caption",
        "from a system": "leftovers",
        "cannot be opened (": "unread",
        "links to folders that": "twins",
        "link to folders that": "twins",
        "not opened as images": "unopened",
        "of other kinds": "unknown",
        "lists or labels": "list",
    }
    return next((kind for mark, kind in marks.items() if mark in line), "image")
