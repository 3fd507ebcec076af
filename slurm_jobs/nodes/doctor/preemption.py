"""Preemption of jobs, by partition. See "Preemption" in slurm.conf(5).

With grace time a preempted job gets SIGTERM immediately, and our jobs save then. Without grace
time SIGKILL comes first, and the work since the last checkpoint is repeated. PURE.
"""

from __future__ import annotations

from collections.abc import Iterator

from slurm_jobs.nodes.doctor.doctor_check import Judgement
from slurm_jobs.nodes.doctor.site_facts import SlurmFacts, SpecFacts

_SHORT_GRACE_S = 60


def preemption(facts: SlurmFacts, spec: SpecFacts) -> Iterator[Judgement]:
    """Yield one judgement for all partitions of the spec that behave the same."""
    settings, answer = facts.settings, facts.answers["partitions"]
    kind = settings.get("PreemptType")
    if kind is None:
        yield Judgement("unknown", "Slurm does not report PreemptType")
        return
    if kind.endswith("/none"):
        yield Judgement("ok", "off: no job is ended for another one")
        return
    if kind.endswith("/qos"):
        yield Judgement(
            "unknown",
            "by QOS: the QOS of each job sets how, and with what grace time",
            "`sacctmgr show qos format=name,preempt,preemptmode,gracetime`; then "
            "`slurm-jobs doctor --drill`",
        )
        return
    if answer.problem:
        yield Judgement("unknown", f"partitions: {answer.problem}")
        return
    rows = [dict(w.partition("=")[::2] for w in line.split()) for line in answer.text.splitlines()]
    partitions = {row["PartitionName"]: row for row in rows if row.get("PartitionName")}
    tiers = {name: int(row.get("PriorityTier") or 1) for name, row in partitions.items()}
    wanted = {name for names in spec.partitions for name in names.split(",")} or {
        name for name, row in partitions.items() if row.get("Default") == "YES"
    }
    alike: dict[tuple[str, int | None], list[str]] = {}
    for name in [name for name in partitions if name in wanted] or partitions:
        row = partitions[name]
        if kind.endswith("/partition_prio") and tiers[name] == max(tiers.values()):
            yield Judgement("ok", f"no partition has priority over {name}")
            continue
        mode = row.get("PreemptMode") or settings.get("PreemptMode", "")
        grace = row.get("GraceTime", "")
        grace_s = int(grace) if grace.isdecimal() else None
        alike.setdefault((mode.upper(), grace_s), []).append(name)
    for (mode, grace_s), names in alike.items():
        yield _preempted(mode, grace_s, ", ".join(names), spec)


def _preempted(mode: str, grace_s: int | None, partitions: str, spec: SpecFacts) -> Judgement:
    modes = set(mode.split(","))
    if "OFF" in modes:
        return Judgement("ok", f"jobs in {partitions} are not preempted")
    if "SUSPEND" in modes and not modes & {"REQUEUE", "CANCEL"}:
        finding = "may be suspended, and continue later: their clock stops meanwhile"
        return Judgement("ok", f"jobs in {partitions} {finding}")
    fate = "requeued" if "REQUEUE" in modes else "cancelled"
    finding = f"jobs in {partitions} may be preempted ({mode}: {fate})"
    if grace_s is None:
        return Judgement("unknown", f"{finding}; GraceTime is not reported")
    if grace_s == 0:
        lost = "what was done since the last checkpoint is lost each time"
        if spec.checkpoint_min is not None:
            lost = f"up to {spec.checkpoint_min:g} min of training are lost each time"
        finding += f" with no grace time: {lost}"
    else:
        finding += f" with {grace_s} s to save"
        if grace_s >= _SHORT_GRACE_S and fate == "requeued":
            return Judgement("ok", finding)
    stage = spec.stage if spec.trains else "train"
    minutes = 10 if spec.checkpoint_min is None else min(10.0, spec.checkpoint_min / 2)
    remedy = f"stages.{stage}.config.checkpoint.every_min: {minutes:g}"
    if fate == "cancelled":
        remedy += "; then type `slurm-jobs resume`"
    return Judgement("warning", finding, remedy)
