"""Preemption of jobs, by partition. PURE. See "Preemption" in slurm.conf(5).

With grace time a preempted job gets SIGTERM immediately, and our jobs save then. Without grace time
SIGKILL comes first, and the work since the last checkpoint is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurm_jobs.doctor.model import Asked, Check, SpecFacts

_SHORT_GRACE_S = 60
_NAME = "preemption"


def preemption_checks(
    settings: Mapping[str, str], asked: Asked, spec: SpecFacts
) -> Iterator[Check]:
    """Yield one check for all partitions of the spec that behave the same."""
    kind = settings.get("PreemptType")
    if kind is None:
        yield Check(name=_NAME, standing="unknown", told="Slurm does not report PreemptType")
        return
    if kind.endswith("/none"):
        yield Check(name=_NAME, standing="ok", told="off: no job is ended for another's sake")
        return
    if kind.endswith("/qos"):
        yield Check(
            name=_NAME,
            standing="unknown",
            told="by QOS: the QOS of each job sets how, and with what grace time",
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
            yield Check(name=_NAME, standing="ok", told=f"no partition has priority over {name}")
            continue
        mode = values.get("PreemptMode") or settings.get("PreemptMode", "")
        grace = values.get("GraceTime", "")
        grace_s = int(grace) if grace.isdecimal() else None
        by_fate.setdefault((mode.upper(), grace_s), []).append(name)
    for (mode, grace_s), names in by_fate.items():
        yield _check(mode, grace_s, names, spec)


def _partitions(text: str) -> dict[str, Mapping[str, str]]:
    """Return the settings of each partition, by name."""
    found: dict[str, Mapping[str, str]] = {}
    for line in text.splitlines():
        values = dict(word.partition("=")[::2] for word in line.split())
        if values.get("PartitionName"):
            found[values["PartitionName"]] = values
    return found


def _meant(
    found: Mapping[str, Mapping[str, str]], spec: SpecFacts
) -> Mapping[str, Mapping[str, str]]:
    """Return the partitions of the spec's jobs; all if they are unknown."""
    wanted = {p for names in spec.partitions for p in names.split(",")}
    if not wanted:
        wanted = {name for name, values in found.items() if values.get("Default") == "YES"}
    return {n: v for n, v in found.items() if n in wanted} or found


def _is_below(values: Mapping[str, str], everything: Mapping[str, Mapping[str, str]]) -> bool:
    """Check whether another partition has priority over this one; otherwise no job is preempted."""
    tiers = [int(v.get("PriorityTier", "1") or 1) for v in everything.values()]
    return int(values.get("PriorityTier", "1") or 1) < max(tiers)


def _check(mode: str, grace_s: int | None, names: list[str], spec: SpecFacts) -> Check:
    where = ", ".join(names)
    modes = mode.split(",")
    if "OFF" in modes:
        return Check(name=_NAME, standing="ok", told=f"jobs in {where} are not preempted")
    if "SUSPEND" in modes and "REQUEUE" not in modes and "CANCEL" not in modes:
        finding = (
            f"jobs in {where} may be suspended, and continue later: their clock stops meanwhile"
        )
        return Check(name=_NAME, standing="ok", told=finding)
    fate = "requeued" if "REQUEUE" in modes else "cancelled"
    finding = f"jobs in {where} may be preempted ({mode}: {fate})"
    if grace_s is None:
        return Check(name=_NAME, standing="unknown", told=f"{finding}; GraceTime is not reported")
    again = "" if fate == "requeued" else "; then type `slurm-jobs resume`"
    if grace_s == 0:
        lost = _lost(spec)
        return Check(
            name=_NAME,
            standing="warning",
            told=f"{finding} with no grace time: {lost}",
            remedy=f"{_often(spec)}{again}",
        )
    finding += f" with {grace_s} s to save"
    if grace_s < _SHORT_GRACE_S or again:
        remedy = f"{_often(spec)}{again}"
        return Check(name=_NAME, standing="warning", told=finding, remedy=remedy)
    return Check(name=_NAME, standing="ok", told=finding)


def _lost(spec: SpecFacts) -> str:
    if spec.checkpoint_min is not None:
        return f"up to {spec.checkpoint_min:g} min of training are lost each time"
    return "what was done since the last checkpoint is lost each time"


def _often(spec: SpecFacts) -> str:
    stage = spec.stage if spec.trains else "train"
    minutes = 10 if spec.checkpoint_min is None else min(10.0, spec.checkpoint_min / 2)
    return f"stages.{stage}.config.checkpoint.every_min: {minutes:g}"
