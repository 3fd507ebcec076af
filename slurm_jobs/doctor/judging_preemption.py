"""What becomes of a job that is preempted, by partition: PURE. See "Preemption" in slurm.conf(5).

A preempted job gets SIGTERM at once where it has grace time, and our jobs save then; without
grace time SIGKILL comes first, and what was done since the last checkpoint is done again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurm_jobs.doctor.model import Asked, Check, SpecFacts

_SHORT_GRACE_S = 60
_NAME = "preemption"


def preemption_checks(
    settings: Mapping[str, str], asked: Asked, spec: SpecFacts
) -> Iterator[Check]:
    """One word on all partitions that are meant and alike."""
    kind = settings.get("PreemptType")
    if kind is None:
        yield Check(name=_NAME, standing="unknown", told="Slurm does not tell PreemptType")
        return
    if kind.endswith("/none"):
        yield Check(name=_NAME, standing="ok", told="off: no job is ended for another's sake")
        return
    if kind.endswith("/qos"):
        yield Check(
            name=_NAME,
            standing="unknown",
            told="by QOS: how, and with what grace time, stands in the QOS of each job",
            remedy="`sacctmgr show qos format=name,preempt,preemptmode,gracetime`; then "
            "`slurm-jobs doctor --drill`",
        )
        return
    if asked.problem:
        yield Check(name=_NAME, standing="unknown", told=f"partitions: {asked.problem}")
        return
    by_fate: dict[tuple[str, int | None], list[str]] = {}
    everything = _partitions(asked.text)
    for name, values in _meant(everything, spec).items():
        if kind.endswith("/partition_prio") and not _is_below(values, everything):
            yield Check(name=_NAME, standing="ok", told=f"no partition goes before {name}")
            continue
        mode = values.get("PreemptMode") or settings.get("PreemptMode", "")
        grace = values.get("GraceTime", "")
        grace_s = int(grace) if grace.isdecimal() else None
        by_fate.setdefault((mode.upper(), grace_s), []).append(name)
    for (mode, grace_s), names in by_fate.items():
        yield _check(mode, grace_s, names, spec)


def _partitions(text: str) -> dict[str, Mapping[str, str]]:
    """Settings of each partition, by name."""
    found: dict[str, Mapping[str, str]] = {}
    for line in text.splitlines():
        values = dict(word.partition("=")[::2] for word in line.split())
        if values.get("PartitionName"):
            found[values["PartitionName"]] = values
    return found


def _meant(
    found: Mapping[str, Mapping[str, str]], spec: SpecFacts
) -> Mapping[str, Mapping[str, str]]:
    """Those that jobs of the spec go to; all where that cannot be told."""
    wanted = {p for names in spec.partitions for p in names.split(",")}
    if not wanted:
        wanted = {name for name, values in found.items() if values.get("Default") == "YES"}
    return {n: v for n, v in found.items() if n in wanted} or found


def _is_below(values: Mapping[str, str], everything: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether another partition goes before this one, whose jobs alone are preempted then."""
    tiers = [int(v.get("PriorityTier", "1") or 1) for v in everything.values()]
    return int(values.get("PriorityTier", "1") or 1) < max(tiers)


def _check(mode: str, grace_s: int | None, names: list[str], spec: SpecFacts) -> Check:
    where = ", ".join(names)
    modes = mode.split(",")
    if "OFF" in modes:
        return Check(name=_NAME, standing="ok", told=f"jobs in {where} are not preempted")
    if "SUSPEND" in modes and "REQUEUE" not in modes and "CANCEL" not in modes:
        told = f"jobs in {where} may be suspended, and go on later: their clock stands meanwhile"
        return Check(name=_NAME, standing="ok", told=told)
    fate = "requeued" if "REQUEUE" in modes else "cancelled"
    told = f"jobs in {where} may be preempted ({mode}: {fate})"
    if grace_s is None:
        return Check(name=_NAME, standing="unknown", told=f"{told}; GraceTime is not told")
    again = "" if fate == "requeued" else "; then type `slurm-jobs resume`"
    if grace_s == 0:
        lost = _lost(spec)
        return Check(
            name=_NAME,
            standing="warning",
            told=f"{told} with no grace time: {lost}",
            remedy=f"{_often(spec)}{again}",
        )
    told += f" with {grace_s} s to save"
    if grace_s < _SHORT_GRACE_S or again:
        remedy = f"{_often(spec)}{again}"
        return Check(name=_NAME, standing="warning", told=told, remedy=remedy)
    return Check(name=_NAME, standing="ok", told=told)


def _lost(spec: SpecFacts) -> str:
    if spec.checkpoint_min is not None:
        return f"up to {spec.checkpoint_min:g} min of training are lost each time"
    return "what was done since the last checkpoint is lost each time"


def _often(spec: SpecFacts) -> str:
    stage = spec.stage if spec.trains else "train"
    minutes = 10 if spec.checkpoint_min is None else min(10.0, spec.checkpoint_min / 2)
    return f"stages.{stage}.config.checkpoint.every_min: {minutes:g}"
