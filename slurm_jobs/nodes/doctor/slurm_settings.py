"""Slurm's settings and their consequences for our jobs.

sacct(1), scontrol(1) and slurm.conf(5) describe the settings. Each judgement also considers the
options of our own jobs, which override defaults. PURE.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.cluster.slurm_output import parse_config
from slurm_jobs.nodes.doctor.clocks import clock_difference
from slurm_jobs.nodes.doctor.doctor_check import Check
from slurm_jobs.nodes.doctor.preemption import preemption_checks
from slurm_jobs.nodes.doctor.site_facts import ProgramAnswer, SlurmFacts, SpecFacts
from slurm_jobs.schedulers.job_rows import split_rows

NEEDED = ("sbatch", "squeue", "sacct", "scontrol", "sinfo", "scancel", "srun")
_OLDEST_SLURM = (20, 11)
"""Older versions were never tested; the parsed output is of 22.05 and later."""
_DEFAULT_CRED_EXPIRE_S = 120
"""Default `cred_expire` of AuthInfo, for which a requeued job waits; seen on a real cluster."""
_LONG_WAIT_S = 300
_LIMITING = frozenset({"associations", "limits", "safe", "qos", "all"})


def slurm_checks(facts: SlurmFacts, spec: SpecFacts) -> list[Check]:
    """Return all checks that rest on Slurm's answers; for a missing answer, the reason."""
    config = facts.answers["config"]
    settings = parse_config(config.text)
    checks = [*_commands(facts)]
    if not settings:
        finding = config.problem or "it printed no settings"
        finding = f"the controller did not report its settings ({finding})"
        remedy = "wait until `scontrol ping` says UP, or report it to the site's support"
        return [*checks, Check.problem("controller", finding, remedy)]
    return [
        *checks,
        _queue(facts.answers["queue"]),
        *_accounts(facts, settings),
        *_requeue(settings, spec),
        *_job_settings(settings, spec),
        _controller_clock(facts),
        *_partition_states(facts.answers["nodes"], spec),
        *preemption_checks(settings, facts.answers["partitions"], spec),
    ]


def is_unreachable(facts: SlurmFacts) -> bool:
    """Check whether the controller did not answer."""
    return not parse_config(facts.answers["config"].text)


def _commands(facts: SlurmFacts) -> Iterator[Check]:
    if facts.missing:
        finding = f"not on PATH here: {', '.join(facts.missing)}"
        remedy = "work on a login node of the cluster, or `module load slurm`"
        yield Check.problem("commands", finding, remedy)
    else:
        yield Check.ok("commands", f"{', '.join(NEEDED)} are on PATH")
    answer = facts.answers["version"]
    match = re.search(r"(?<!\d)(\d+)\.(\d+)(?:\.(\d+))?", answer.text)
    if match is None:
        reason = answer.problem or f"sbatch --version said {answer.text.strip()!r}"
        yield Check.unknown("slurm-version", reason)
    elif (int(match[1]), int(match[2])) < _OLDEST_SLURM:
        oldest = ".".join(map(str, _OLDEST_SLURM))
        finding = f"Slurm {match[0]}: older than any that was tried ({oldest})"
        remedy = "run `slurm-jobs doctor --drill` before you trust it"
        yield Check.warning("slurm-version", finding, remedy)
    else:
        yield Check.ok("slurm-version", f"Slurm {match[0]}")


def _queue(answer: ProgramAnswer) -> Check:
    problem = answer.problem
    if not problem:
        try:
            number = len(split_rows(answer.text, 9, "squeue"))
        except SchedulerError as error:
            problem = str(error)
        else:
            return Check.ok("squeue", f"squeue answers; your jobs there: {number}")
    return Check.problem(
        "squeue",
        f"squeue did not answer: {problem}",
        "without it nothing is submitted or resumed; report it to the site's support",
    )


def _accounts(facts: SlurmFacts, settings: Mapping[str, str]) -> Iterator[Check]:
    kind = settings.get("AccountingStorageType", "")
    sacct, sacctmgr = facts.answers["accounts"], facts.answers["association"]
    if kind in {"", "(null)", "none", "accounting_storage/none"}:
        yield Check.warning(
            "accounting",
            "off: Slurm forgets a job that has ended after some minutes (MinJobAge "
            f"{settings.get('MinJobAge', 'unknown')})",
            "no action needed: the run's records prove what is done. Why a job was "
            "killed, and its memory, only `slurm-jobs status` within that time can show",
        )
    elif sacct.problem:
        yield Check.warning(
            "accounting",
            f"on ({kind}), and sacct does not answer: {sacct.problem}",
            "reports lack Slurm's own numbers until it does; runs continue without it",
        )
    else:
        yield Check.ok("accounting", f"on ({kind}), and sacct answers")
    enforced = set(settings.get("AccountingStorageEnforce", "").split(","))
    if not enforced & _LIMITING:
        return
    rules = ", ".join(sorted(enforced))
    accounts = sorted({line.split("|")[0] for line in sacctmgr.text.splitlines() if line})
    if sacctmgr.problem:
        yield Check.unknown("account", f"sacctmgr: {sacctmgr.problem}")
    elif accounts:
        finding = f"limits are enforced ({rules}); your accounts: {', '.join(accounts)}"
        yield Check.ok("account", finding)
    else:
        finding = f"accounts are enforced ({rules}), and you have none: sbatch will refuse"
        remedy = "ask the site for an account, then `slurm: {account: NAME}` in the profile"
        yield Check.problem("account", finding, remedy)


def _requeue(settings: Mapping[str, str], spec: SpecFacts) -> Iterator[Check]:
    default = settings.get("JobRequeue")
    if not spec.may_requeue:
        yield Check.warning(
            "requeue",
            "the spec says `no-requeue`: near its time limit a training saves and ends there",
            "take `no-requeue` out of `slurm:`, or type `slurm-jobs resume` each time",
        )
    elif default is None:
        yield Check.unknown("requeue", "Slurm does not report JobRequeue")
    else:
        finding = "jobs may be requeued (JobRequeue=1)"
        if default == "0":
            finding = "JobRequeue=0 is the default of jobs that do not ask; ours ask (`--requeue`)"
        yield Check.ok("requeue", f"{finding}; `doctor --drill` proves it")
    match = re.search(r"cred_expire=(\d+)", settings.get("AuthInfo", ""))
    wait_s = int(match[1]) if match else _DEFAULT_CRED_EXPIRE_S
    source = f"cred_expire={wait_s}" if match else f"cred_expire's default of {wait_s} s"
    finding = f"a requeued job waits {wait_s} s before it may start ({source})"
    if wait_s > _LONG_WAIT_S:
        remedy = "ask for longer time limits, so that it happens rarely (`timeout_min`)"
        yield Check.warning("requeue-wait", finding, remedy)
    else:
        yield Check.ok("requeue-wait", finding)


def _job_settings(settings: Mapping[str, str], spec: SpecFacts) -> Iterator[Check]:
    """Check arrays, dependencies and the time to save.

    Slurm sends `--signal` up to a minute early (sbatch(1)). After TERM it sends KILL when KillWait
    has passed.
    """
    size, wait = settings.get("MaxArraySize", ""), settings.get("KillWait", "").partition(" ")[0]
    if not size.isdecimal():
        yield Check.unknown("arrays", "Slurm does not report MaxArraySize")
    elif int(size) == 0:
        grade = Check.problem if spec.num_slices > 1 else Check.warning
        remedy = "leave `array:` out: one task then does a stage's whole work"
        yield grade("arrays", "job arrays are switched off (MaxArraySize=0)", remedy)
    else:
        finding = f"indices up to {int(size) - 1} (MaxArraySize={int(size)})"
        if spec.num_slices > int(size):
            finding += f"; {spec.num_slices} slices are submitted as several jobs"
        yield Check.ok("arrays", finding)
    finding = (
        f"{spec.stage} is asked to save {spec.lead_s} s before its time limit (Slurm may be a "
        f"minute early); at the limit SIGTERM, {wait} s later SIGKILL (KillWait)"
    )
    if not wait.isdecimal():
        yield Check.unknown("stop-signal", "Slurm does not report KillWait")
    elif spec.lead_s < 30:
        remedy = f"stages.{spec.stage}.resources.signal_lead_s: 120"
        yield Check.warning("stop-signal", finding, remedy)
    else:
        yield Check.ok("stop-signal", finding)
    if "kill_invalid_depend" in settings.get("DependencyParameters", "").lower():
        finding = "jobs that can never start are cancelled (kill_invalid_depend)"
    else:
        finding = "jobs that can never start would wait for ever; ours ask to be cancelled then"
    yield Check.ok("dependencies", finding)


def _controller_clock(facts: SlurmFacts) -> Check:
    """Compare the clock that `scontrol` prints above the settings, in whole seconds."""
    name = "controller-clock"
    match = re.search(r"Configuration data as of (\d+)", facts.answers["config"].text)
    if match is None:
        finding = "the settings have no time to compare with this clock"
        return Check.unknown(name, finding)
    before_s, after_s = facts.asked_unix_s
    middle, half, standing = clock_difference(int(match[1]) - after_s, int(match[1]) + 1 - before_s)
    finding = f"the controller's clock is {middle:+.1f} s from this one's (within {half:.1f} s)"
    remedy = "report it to the site's support: `timedatectl` shows whether a clock syncs"
    if standing == "ok":
        return Check.ok(name, finding)
    return Check(name=name, standing=standing, told=finding, remedy=remedy)


def _partition_states(answer: ProgramAnswer, spec: SpecFacts) -> Iterator[Check]:
    """Check the spec's partitions in the answer of `sinfo`, and whether nodes are up."""
    name = "partitions"
    if answer.problem:
        yield Check.unknown(name, f"sinfo: {answer.problem}")
        return
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
    if absent:
        finding = f"no partition is called {', '.join(absent)}"
        remedy = f"one of these in `slurm: {{partition: NAME}}`: {', '.join(sorted(total))}"
        yield Check.problem(name, finding, remedy)
    if dead:
        finding = f"no node of {', '.join(dead)} is up: jobs there wait"
        yield Check.problem(name, finding, f"sinfo -R -p {dead[0]}")
    if not absent and not dead:
        counts = [f"{p} ({up[p]} of {total[p]} nodes up)" for p in wanted]
        yield Check.ok(name, ", ".join(counts))
