"""Folders of checkpoints as tests write them, and a gate before their files."""

import json
import threading
from dataclasses import replace

from pipeline.train.checkpoints import checkpoint_folders, checkpoint_record, saver

INFO = checkpoint_record.CheckpointInfo(
    step=4,
    loss=0.25,
    num_ranks=2,
    config_fingerprint="c",
    config={"seed": 0, "optimizer": {"learning_rate": 3e-4}},
    dataset_fingerprint="d",
    files={},
    versions={"torch": "2"},
)
UNREADABLE_NOW = (
    (checkpoint_record, "read_json", checkpoint_record.INFO_NAME),
    (checkpoint_folders, "hash_file", "__0_0.distcp"),
)
"""Modules, their functions, and the files at which a test has these meet a stale handle."""


def write_checkpoint(folder, *, content=b"weights", **changes):
    """A folder with one file and the record of it; the record."""
    folder.mkdir()
    (folder / "__0_0.distcp").write_bytes(content)
    facts = {"__0_0.distcp": checkpoint_folders.hash_file(folder / "__0_0.distcp")}
    written = replace(INFO, files=facts, **changes)
    checkpoint_record.write_info(folder, written)
    return written


def edit_record(folder, **changes):
    path = folder / checkpoint_record.INFO_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


class Gate:
    """Holds uploads until it is opened."""

    def __init__(self, patch):
        self.opened, self.is_held = threading.Event(), threading.Event()
        write = saver.PartWriter.write_data

        def held_write(*args):
            self.is_held.set()
            assert self.opened.wait(60)
            return write(*args)

        patch.setattr(saver.PartWriter, "write_data", held_write)
