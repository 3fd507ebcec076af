"""Slurm's settings and their consequences for our jobs.

sacct(1), scontrol(1) and slurm.conf(5) describe the settings. Each judgement also considers the
options of our own jobs, which override defaults. PURE.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.nodes.doctor.clocks import clock_difference
from slurm_jobs.nodes.doctor.doctor_check import Check, Judgement, judged
from slurm_jobs.nodes.doctor.preemption import preemption
from slurm_jobs.nodes.doctor.site_facts import SlurmFacts, SpecFacts
from slurm_jobs.schedulers.job_rows import split_rows

NEEDED = ("sbatch", "squeue", "sacct", "scontrol", "sinfo", "scancel", "srun")
_OLDEST_SLURM = (20, 11)
"""Older versions were never tested; the parsed output is of 22.05 and later."""
_DEFAULT_CRED_EXPIRE_S = 120
"""Default `cred_expire` of AuthInfo, for which a requeued job waits; seen on a real cluster."""
_LONG_WAIT_S = 300
_LIMITING = frozenset({"associations", "limits", "safe", "qos", "all"})


def _commands(facts: SlurmFacts, _spec: SpecFacts) -> Judgement:
    if not facts.missing:
        return Judgement("ok", f"{', '.join(NEEDED)} are on PATH")
    finding = f"not on PATH here: {', '.join(facts.missing)}"
    remedy = "work on a login node of the cluster, or `module load slurm`"
    return Judgement("problem", finding, remedy)


def _version(facts: SlurmFacts, _spec: SpecFacts) -> Judgement:
    answer = facts.answers["version"]
    match = re.search(r"(?<!\d)(\d+)\.(\d+)(?:\.(\d+))?", answer.text)
    if match is None:
        reason = answer.problem or f"sbatch --version said {answer.text.strip()!r}"
        return Judgement("unknown", reason)
    if (int(match[1]), int(match[2])) >= _OLDEST_SLURM:
        return Judgement("ok", f"Slurm {match[0]}")
    oldest = ".".join(map(str, _OLDEST_SLURM))
    finding = f"Slurm {match[0]}: older than any that was tried ({oldest})"
    remedy = "run `slurm-jobs doctor --drill` before you trust it"
    return Judgement("warning", finding, remedy)


def _queue(facts: SlurmFacts, _spec: SpecFacts) -> Judgement:
    answer = facts.answers["queue"]
    problem = answer.problem
    if not problem:
        try:
            number = len(split_rows(answer.text, 9, "squeue"))
        except SchedulerError as error:
            problem = str(error)
        else:
            return Judgement("ok", f"squeue answers; your jobs there: {number}")
    remedy = "without it nothing is submitted or resumed; report it to the site's support"
    return Judgement("problem", f"squeue did not answer: {problem}", remedy)


def _accounting(facts: SlurmFacts, _spec: SpecFacts) -> Judgement:
    kind = facts.settings.get("AccountingStorageType", "")
    sacct = facts.answers["accounts"]
    if kind in {"", "(null)", "none", "accounting_storage/none"}:
        return Judgement(
            "warning",
            "off: Slurm forgets a job that has ended after some minutes (MinJobAge "
            f"{facts.settings.get('MinJobAge', 'unknown')})",
            "no action needed: the run's records prove what is done. Why a job was "
            "killed, and its memory, only `slurm-jobs status` within that time can show",
        )
    if sacct.problem:
        finding = f"on ({kind}), and sacct does not answer: {sacct.problem}"
        remedy = "reports lack Slurm's own numbers until it does; runs continue without it"
        return Judgement("warning", finding, remedy)
    return Judgement("ok", f"on ({kind}), and sacct answers")


def _account(facts: SlurmFacts, _spec: SpecFacts) -> Judgement | None:
    """Judge whether the user has an account; None if no job needs one."""
    enforced = set(facts.settings.get("AccountingStorageEnforce", "").split(","))
    if not enforced & _LIMITING:
        return None
    answer, rules = facts.answers["association"], ", ".join(sorted(enforced))
    accounts = sorted({line.split("|")[0] for line in answer.text.splitlines() if line})
    if answer.problem:
        return Judgement("unknown", f"sacctmgr: {answer.problem}")
    if accounts:
        finding = f"limits are enforced ({rules}); your accounts: {', '.join(accounts)}"
        return Judgement("ok", finding)
    finding = f"accounts are enforced ({rules}), and you have none: sbatch will refuse"
    remedy = "ask the site for an account, then `slurm: {account: NAME}` in the profile"
    return Judgement("problem", finding, remedy)


def _requeue(facts: SlurmFacts, spec: SpecFacts) -> Judgement:
    default = facts.settings.get("JobRequeue")
    if not spec.may_requeue:
        finding = "the spec says `no-requeue`: near its time limit a training saves and ends there"
        remedy = "take `no-requeue` out of `slurm:`, or type `slurm-jobs resume` each time"
        return Judgement("warning", finding, remedy)
    if default is None:
        return Judgement("unknown", "Slurm does not report JobRequeue")
    finding = "jobs may be requeued (JobRequeue=1)"
    if default == "0":
        finding = "JobRequeue=0 is the default of jobs that do not ask; ours ask (`--requeue`)"
    return Judgement("ok", f"{finding}; `doctor --drill` proves it")


def _requeue_wait(facts: SlurmFacts, _spec: SpecFacts) -> Judgement:
    match = re.search(r"cred_expire=(\d+)", facts.settings.get("AuthInfo", ""))
    wait_s = int(match[1]) if match else _DEFAULT_CRED_EXPIRE_S
    source = f"cred_expire={wait_s}" if match else f"cred_expire's default of {wait_s} s"
    finding = f"a requeued job waits {wait_s} s before it may start ({source})"
    if wait_s <= _LONG_WAIT_S:
        return Judgement("ok", finding)
    remedy = "ask for longer time limits, so that it happens rarely (`timeout_min`)"
    return Judgement("warning", finding, remedy)


def _arrays(facts: SlurmFacts, spec: SpecFacts) -> Judgement:
    size = facts.settings.get("MaxArraySize", "")
    if not size.isdecimal():
        return Judgement("unknown", "Slurm does not report MaxArraySize")
    if int(size) == 0:
        finding = "job arrays are switched off (MaxArraySize=0)"
        remedy = "leave `array:` out: one task then does a stage's whole work"
        return Judgement("problem" if spec.num_slices > 1 else "warning", finding, remedy)
    finding = f"indices up to {int(size) - 1} (MaxArraySize={int(size)})"
    if spec.num_slices > int(size):
        finding += f"; {spec.num_slices} slices are submitted as several jobs"
    return Judgement("ok", finding)


def _stop_signal(facts: SlurmFacts, spec: SpecFacts) -> Judgement:
    """Judge the time to save.

    Slurm sends `--signal` up to a minute early (sbatch(1)). After TERM it sends KILL when KillWait
    has passed.
    """
    wait = facts.settings.get("KillWait", "").partition(" ")[0]
    if not wait.isdecimal():
        return Judgement("unknown", "Slurm does not report KillWait")
    finding = (
        f"{spec.stage} is asked to save {spec.lead_s} s before its time limit (Slurm may be a "
        f"minute early); at the limit SIGTERM, {wait} s later SIGKILL (KillWait)"
    )
    if spec.lead_s >= 30:
        return Judgement("ok", finding)
    return Judgement("warning", finding, f"stages.{spec.stage}.resources.signal_lead_s: 120")


def _dependencies(facts: SlurmFacts, _spec: SpecFacts) -> Judgement:
    finding = "jobs that can never start would wait for ever; ours ask to be cancelled then"
    if "kill_invalid_depend" in facts.settings.get("DependencyParameters", "").lower():
        finding = "jobs that can never start are cancelled (kill_invalid_depend)"
    return Judgement("ok", finding)


def _controller_clock(facts: SlurmFacts, _spec: SpecFacts) -> Judgement:
    """Compare the clock that `scontrol` prints above the settings, in whole seconds."""
    match = re.search(r"Configuration data as of (\d+)", facts.answers["config"].text)
    if match is None:
        return Judgement("unknown", "the settings have no time to compare with this clock")
    before_s, after_s = facts.asked_unix_s
    middle, half, standing = clock_difference(int(match[1]) - after_s, int(match[1]) + 1 - before_s)
    finding = f"the controller's clock is {middle:+.1f} s from this one's (within {half:.1f} s)"
    remedy = "report it to the site's support: `timedatectl` shows whether a clock syncs"
    return Judgement(standing, finding, "" if standing == "ok" else remedy)


def _partitions(facts: SlurmFacts, spec: SpecFacts) -> Judgement:
    """Judge the spec's partitions by the answer of `sinfo`, and whether nodes are up."""
    answer = facts.answers["nodes"]
    if answer.problem:
        return Judgement("unknown", f"sinfo: {answer.problem}")
    up, total = Counter[str](), Counter[str]()
    rows = [line.split("|") for line in answer.text.splitlines()]
    for row in rows:
        if len(row) == 5 and row[2].isdecimal():
            partition, state, number, node_state = row[0], row[1], int(row[2]), row[3].lower()
            total[partition] += number
            is_down = node_state.startswith(("down", "drain", "fail", "unknown"))
            if state == "up" and not is_down and not node_state.endswith("*"):
                up[partition] += number
    default = [row[0] for row in rows if row[-1].endswith("*")]
    wanted = [p for text in spec.partitions for p in text.split(",")] or default or sorted(total)
    absent = [p for p in wanted if p not in total]
    dead = [p for p in wanted if p in total and not up[p]]
    findings, remedy = [], ""
    if dead:
        findings.append(f"no node of {', '.join(dead)} is up: jobs there wait")
        remedy = f"sinfo -R -p {dead[0]}"
    if absent:
        findings.append(f"no partition is called {', '.join(absent)}")
        remedy = f"one of these in `slurm: {{partition: NAME}}`: {', '.join(sorted(total))}"
    if findings:
        return Judgement("problem", "; ".join(findings), remedy)
    return Judgement("ok", ", ".join(f"{p} ({up[p]} of {total[p]} nodes up)" for p in wanted))


_Table = tuple[tuple[str, Callable[[SlurmFacts, SpecFacts], Judgement | None]], ...]

COMMAND_CHECKS: _Table = (("commands", _commands), ("slurm-version", _version))
"""Checks that need no answer of the controller."""
SLURM_CHECKS: _Table = (
    ("squeue", _queue),
    ("accounting", _accounting),
    ("account", _account),
    ("requeue", _requeue),
    ("requeue-wait", _requeue_wait),
    ("arrays", _arrays),
    ("stop-signal", _stop_signal),
    ("dependencies", _dependencies),
    ("controller-clock", _controller_clock),
    ("partitions", _partitions),
)
"""Checks of Slurm's settings and answers, in the order in which they are printed."""


def slurm_checks(facts: SlurmFacts, spec: SpecFacts) -> list[Check]:
    """Return all checks that rest on Slurm's answers; for a missing answer, the reason."""
    checks = judged(COMMAND_CHECKS, facts, spec)
    if not facts.settings:
        finding = facts.answers["config"].problem or "it printed no settings"
        finding = f"the controller did not report its settings ({finding})"
        remedy = "wait until `scontrol ping` says UP, or report it to the site's support"
        return [*checks, Judgement("problem", finding, remedy).named("controller")]
    checks += judged(SLURM_CHECKS, facts, spec)
    return checks + [judgement.named("preemption") for judgement in preemption(facts, spec)]
