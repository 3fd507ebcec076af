"""GPUs that the job sees on this node, and the links between them."""

from __future__ import annotations

import re
import shutil
import signal
from collections import Counter
from collections.abc import Mapping, Sequence

from pipeline.nodes.measures.measurement import Measurement, not_measured
from slurm_jobs.base.processes.process_sessions import dies_with_parent
from slurm_jobs.base.processes.programs import ask_together

LIMIT_S = 30.0
"""Without its persistence mode the driver takes a second or more for each GPU."""
_MAX_BYTES = 100_000
_NAME_COMMAND = ("nvidia-smi", "--query-gpu=index,name,driver_version", "--format=csv,noheader")
_LINK_COMMAND = ("nvidia-smi", "topo", "-m")
_GPU = re.compile(r"GPU\d+")


def find_gpus() -> tuple[tuple[str, ...], Measurement]:
    """Return names of the GPUs that nvidia-smi shows, with the links between them as details."""
    if shutil.which(_NAME_COMMAND[0]) is None:
        return (), not_measured("gpu", "no GPU: there is no nvidia-smi on this node")
    answers = ask_together(
        {"names": _NAME_COMMAND, "links": _LINK_COMMAND},
        limit_s=LIMIT_S,
        max_bytes=_MAX_BYTES,
        prepare=dies_with_parent(signal.SIGKILL),
    )
    if answers["names"].problem:
        return (), not_measured("gpu", answers["names"].problem)
    rows = [line.split(", ") for line in answers["names"].text.splitlines()]
    names = tuple(row[1] for row in rows if len(row) == 3)
    if not names:
        return (), not_measured("gpu", "no GPU: nvidia-smi shows none to this job")
    links = read_links(answers["links"].text)
    details = {
        "names": names,
        "drivers": sorted({row[2] for row in rows if len(row) == 3}),
        "links": links,
        "links_told": links_text(links),
        "links_problem": answers["links"].problem,
    }
    return names, Measurement(details={"gpu": details})


def read_links(text: str) -> Sequence[Mapping[str, str]]:
    """Return pairs of GPUs and their link (`NV12`, `PIX`, `SYS`) from `nvidia-smi topo -m`."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    columns: list[str] = []
    links = []
    for line in plain.splitlines():
        words = line.split()
        if not columns:
            columns = [word for word in words if _GPU.fullmatch(word)]
        elif words and words[0] in columns:
            column = columns.index(words[0])
            pairs = zip(columns, words[1:], strict=False)
            links += [
                {"a": words[0], "b": b, "link": link} for b, link in list(pairs)[column + 1 :]
            ]
    return links


def links_text(links: Sequence[Mapping[str, str]]) -> str:
    """Return `6 x NV12`; empty for one GPU."""
    counts = Counter(link["link"] for link in links)
    return ", ".join(f"{number} x {link}" for link, number in sorted(counts.items()))
