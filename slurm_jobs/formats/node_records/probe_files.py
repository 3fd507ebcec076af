"""Files of the probes' measurements.

The stage `probe` writes the records on the nodes; the verb `probe` and reports read them. They
are stored in hidden folders next to the runs, because they describe nodes and outlive every run:

```
RUNS_DIR/.probes-UID/
  NODE/0001767225600123.RUN_ID.a0001.json   one probe of one node, written atomically
  .scratch/                                 files for timing the file system
```

Each probe has its own file, so that two concurrent probes of a node do not conflict. Each user
has their own folder, so that users who share a folder of runs need no write access to each
other's. The speed of nodes is no secret, so records are readable by everyone who can read the
folder of runs; everything else of a run is private.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from slurm_jobs.base.files import atomic_writer, dump_json
from slurm_jobs.base.regular_files import rest_of
from slurm_jobs.formats.node_records.probe_measures import NodeProbe, probe_from_json

MAX_KEPT = 5
"""Limit for a user's probes of one node; older ones are removed."""
_PREFIX = ".probes-"
_NAME = re.compile(r"\d{16}\..+\.a\d{4}\.json")
_MOST_BYTES = 1 << 20
"""Size limit of a record, which needs a few thousand bytes."""


@dataclass(frozen=True, slots=True)
class ProbePaths:
    """Locations of node probes, next to the runs in `runs_dir`, for this user's writes."""

    runs_dir: Path

    @property
    def own_dir(self) -> Path:
        """Return this user's folder of probes, with a folder for each node; hidden, and no run."""
        return folder_of_probes(self.runs_dir, os.getuid())

    @property
    def scratch_dir(self) -> Path:
        """Return the folder on the runs' file system in which a probe writes and reads."""
        return self.own_dir / ".scratch"

    def node_dir(self, node: str) -> Path:
        """Return the folder of this user's probes of one node."""
        return self.own_dir / node

    def probe(self, probe: NodeProbe, attempt: int) -> Path:
        """Return the file of one probe; names sort by time."""
        stamp = f"{int(probe.measured_unix_s * 1000):016d}"
        return self.node_dir(probe.node) / f"{stamp}.{probe.run_id}.a{attempt:04d}.json"

    def files_of(self, node: str) -> list[Path]:
        """Return this user's probes of one node, newest first; skip everything else."""
        files = (path for path in self.node_dir(node).glob("*.json") if _NAME.fullmatch(path.name))
        return sorted((p for p in files if stat.S_ISREG(p.lstat().st_mode)), reverse=True)


def folder_of_probes(runs_dir: Path, uid: int) -> Path:
    """Return the folder of a user's probes."""
    return runs_dir / f"{_PREFIX}{uid}"


def is_folder_of_probes(path: Path) -> bool:
    """Check whether a folder next to runs holds the probes of a user, by its name."""
    return path.name.startswith(_PREFIX)


def make_node_dir(paths: ProbePaths, node: str) -> Path:
    """Create the folder for this user's probes of a node, as readable as the folder of runs.

    If several users may write next to the runs, one of them could have created a link: files would
    be written and removed elsewhere.

    Raises:
        OSError: it cannot be created, or is a link, no folder, or another user's.
    """
    shown = _shown_mode(paths)
    for folder in (paths.own_dir, paths.node_dir(node)):
        is_new = True
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            is_new = False
        try:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except NotADirectoryError as error:  # the error of a link, too
            what = "the folder of probes is a link, or not a folder: have it removed"
            raise NotADirectoryError(error.errno, what, str(folder)) from error
        try:
            status = os.fstat(opened)
            if status.st_uid != os.getuid():
                what = f"it is user {status.st_uid}'s: have it removed, or use another runs_dir"
                raise PermissionError(errno.EPERM, what, str(folder))
            if is_new:
                # The umask of a job removes all rights of others; a set-group-id bit is kept.
                os.fchmod(opened, stat.S_IMODE(status.st_mode) & ~0o777 | 0o700 | shown)
        finally:
            os.close(opened)
    return folder


def _shown_mode(paths: ProbePaths) -> int:
    """Return the rights of group and others on the folder of runs, without writing."""
    return stat.S_IMODE(paths.runs_dir.stat().st_mode) & 0o055


def keep_probe(paths: ProbePaths, probe: NodeProbe, attempt: int) -> Path:
    """Write or rewrite a probe, and remove all but the newest `MAX_KEPT` of its node.

    Raises:
        OSError: the folder cannot be written.
    """
    target = paths.probe(probe, attempt)
    make_node_dir(paths, probe.node)
    with atomic_writer(target) as stream:
        stream.write(dump_json(asdict(probe)).encode())
        os.fchmod(stream.fileno(), 0o600 | _shown_mode(paths) & 0o044)
    others = [path for path in paths.files_of(probe.node) if path != target]
    for old in others[MAX_KEPT - 1 :]:  # a clock that was ahead has made names that sort first
        old.unlink(missing_ok=True)  # another probe of this node may have removed it
    return target


def read_probe(path: Path) -> NodeProbe:
    """Read one probe, which may be another user's, so its content is not trusted.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, no plain file of the folder's owner, or of another node than its
            folder.
        TypeError, KeyError: it is not a record.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)  # a pipe must not block
    with os.fdopen(opened, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            message = "it is not a plain file of a record's size"
            raise ValueError(message)
        if path.parents[1].name != f"{_PREFIX}{status.st_uid}":
            message = f"it is user {status.st_uid}'s, in the folder of another one"
            raise ValueError(message)
        content = rest_of(stream, path, most_bytes=_MOST_BYTES)  # it may grow meanwhile
    try:
        probe = probe_from_json(json.loads(content))
    except (RecursionError, OverflowError) as error:
        message = f"it is damaged ({type(error).__name__})"
        raise ValueError(message) from error
    if probe.node != path.parent.name:
        message = f"it is of node {probe.node!r}, but is in the folder of another"
        raise ValueError(message)
    return probe
