"""Judgements on a Slurm site: configuration, preemption, clocks, probes. PURE."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from slurm_jobs.cluster.limits import parse_config
from slurm_jobs.nodes.doctor_model import Asked, Check, SlurmFacts, SpecFacts, Standing
from slurm_jobs.nodes.probe_records import number_text
from slurm_jobs.schedulers.slurm import split_rows
from slurm_jobs.shared import units
from slurm_jobs.shared.errors import SchedulerError
from slurm_jobs.shared.node_records import ClockFacts, NodeFacts, NodeProbe

# Clocks of nodes, and the delay until their files are visible to each other.


_WARNING_S, _PROBLEM_S = 5.0, 120.0
"""Five seconds are enough to order records; munge refuses credentials that are 300 s old."""
_UNSURE_S = 5.0
_LATE_S = 5.0
_REMEDY = "report it to the site's support: `chronyc tracking` on the node shows whether it syncs"


def clock_checks(node: NodeFacts) -> Iterator[Check]:
    """Compare a node's clock with the login node's, and with that of the job's first node."""
    if node.login is not None:
        yield _clock("clock", node.login, "the login node's")
    else:
        yield Check.unknown("clock", f"of the login node's clock: {node.login_reason}")
    if node.rank == 0:
        return
    if node.first is None:
        yield Check.problem(
            "node-clocks",
            node.first_reason,
            "ranks meet there: see `main_addr:` of the profile, and NCCL_SOCKET_IFNAME",
        )
        return
    yield _clock("node-clocks", node.first, "the first node's")
    name = "node-files"
    if node.file_s is None:
        yield Check.warning(
            name,
            f"of a file that the first node wrote, {node.first_reason}",
            "ask the site for `actimeo` of this file system, or put runs_dir on another",
        )
        return
    if node.file_s > _LATE_S:
        finding = f"a file of the first node was seen only after {units.seconds(node.file_s)}"
        yield Check.warning(name, finding, "no action needed: slurm-jobs checks again for a minute")
        return
    yield Check.ok(name, f"a file of the first node is seen within {_bound(node.file_s)}")


def _clock(name: str, clock: ClockFacts, whose: str) -> Check:
    middle, half = (clock.least_s + clock.most_s) / 2, (clock.most_s - clock.least_s) / 2
    surely = max(0.0, abs(middle) - half)
    if surely <= _WARNING_S and half > _UNSURE_S:
        finding = (
            f"within {units.seconds(abs(middle) + half)} of {whose}; a closer bound is not known"
        )
        return Check.unknown(name, finding)
    if surely <= _WARNING_S:
        most = abs(middle) + half
        return Check.ok(name, f"within {_bound(most)} of {whose}")
    standing: Standing = "problem" if surely > _PROBLEM_S else "warning"
    side = "behind" if middle > 0 else "ahead of"
    finding = f"{units.seconds(abs(middle))} {side} {whose} (within {units.seconds(half)})"
    return Check(name=name, standing=standing, told=finding, remedy=_REMEDY)


def _bound(seconds: float) -> str:
    """Return a round number above it, so that similar nodes get the same text."""
    bounds = {0.001: "1 ms", 0.01: "10 ms", 0.1: "0.1 s", 1.0: "1 s"}
    return next((text for most, text in bounds.items() if seconds <= most), units.seconds(seconds))


# Preemption of jobs, by partition. See "Preemption" in slurm.conf(5).
#
# With grace time a preempted job gets SIGTERM immediately, and our jobs save then. Without grace
# time SIGKILL comes first, and the work since the last checkpoint is repeated.


_SHORT_GRACE_S = 60
_NAME = "preemption"


def preemption_checks(
    settings: Mapping[str, str], asked: Asked, spec: SpecFacts
) -> Iterator[Check]:
    """Yield one check for all partitions of the spec that behave the same."""
    kind = settings.get("PreemptType")
    if kind is None:
        yield Check.unknown(_NAME, "Slurm does not report PreemptType")
        return
    if kind.endswith("/none"):
        yield Check.ok(_NAME, "off: no job is ended for another's sake")
        return
    if kind.endswith("/qos"):
        yield Check.unknown(
            _NAME,
            "by QOS: the QOS of each job sets how, and with what grace time",
            "`sacctmgr show qos format=name,preempt,preemptmode,gracetime`; then "
            "`slurm-jobs doctor --drill`",
        )
        return
    if asked.problem:
        yield Check.unknown(_NAME, f"partitions: {asked.problem}")
        return
    by_fate: dict[tuple[str, int | None], list[str]] = {}
    everything = _partitions(asked.text)
    wanted = {p for names in spec.partitions for p in names.split(",")}
    if not wanted:
        wanted = {name for name, values in everything.items() if values.get("Default") == "YES"}
    selected = {n: v for n, v in everything.items() if n in wanted} or everything
    for name, values in selected.items():
        if kind.endswith("/partition_prio") and not _is_below(values, everything):
            yield Check.ok(_NAME, f"no partition has priority over {name}")
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


def _is_below(values: Mapping[str, str], everything: Mapping[str, Mapping[str, str]]) -> bool:
    """Check whether another partition has priority over this one; otherwise no job is preempted."""
    tiers = [int(v.get("PriorityTier", "1") or 1) for v in everything.values()]
    return int(values.get("PriorityTier", "1") or 1) < max(tiers)


def _check(mode: str, grace_s: int | None, names: list[str], spec: SpecFacts) -> Check:
    where = ", ".join(names)
    modes = mode.split(",")
    if "OFF" in modes:
        return Check.ok(_NAME, f"jobs in {where} are not preempted")
    if "SUSPEND" in modes and "REQUEUE" not in modes and "CANCEL" not in modes:
        finding = (
            f"jobs in {where} may be suspended, and continue later: their clock stops meanwhile"
        )
        return Check.ok(_NAME, finding)
    fate = "requeued" if "REQUEUE" in modes else "cancelled"
    finding = f"jobs in {where} may be preempted ({mode}: {fate})"
    if grace_s is None:
        return Check.unknown(_NAME, f"{finding}; GraceTime is not reported")
    again = "" if fate == "requeued" else "; then type `slurm-jobs resume`"
    if grace_s == 0:
        lost = _lost(spec)
        return Check.warning(
            _NAME, f"{finding} with no grace time: {lost}", f"{_often(spec)}{again}"
        )
    finding += f" with {grace_s} s to save"
    if grace_s < _SHORT_GRACE_S or again:
        return Check.warning(_NAME, finding, f"{_often(spec)}{again}")
    return Check.ok(_NAME, finding)


def _lost(spec: SpecFacts) -> str:
    if spec.checkpoint_min is not None:
        return f"up to {spec.checkpoint_min:g} min of training are lost each time"
    return "what was done since the last checkpoint is lost each time"


def _often(spec: SpecFacts) -> str:
    stage = spec.stage if spec.trains else "train"
    minutes = 10 if spec.checkpoint_min is None else min(10.0, spec.checkpoint_min / 2)
    return f"stages.{stage}.config.checkpoint.every_min: {minutes:g}"


# Read rates of file systems, from the newest probes of the nodes.


_SLOW_READ = {"local": 200e6, "shared": 50e6}
"""Bytes per second. Own choice: below it a GPU node waits for images, see docs/report-rules.md."""
_OLD_S = 30 * 86_400.0


def probe_checks(
    probes: Sequence[NodeProbe], problems: Sequence[str], now_unix_s: float, command: str
) -> Iterator[Check]:
    """Yield one check per file system, for the node with the slowest read."""
    name = "file-rates"
    if not probes:
        why = f" ({problems[0]})" if problems else ""
        finding = f"not measured: no probe of a node is stored next to the runs{why}"
        yield Check.unknown(name, finding, command)
        return
    for place, label in (("local", "node-local"), ("shared", "shared")):
        read = f"{place}_read_bytes_per_s"
        measured = [probe for probe in probes if read in probe.numbers]
        if not measured:
            finding = f"{label}: no probe could measure it"
            yield Check.unknown(name, finding, command)
            continue
        slowest = min(measured, key=lambda probe: probe.numbers[read])
        age_s = now_unix_s - slowest.measured_unix_s
        finding = (
            f"{label}: {number_text(slowest, read)} read, "
            f"{number_text(slowest, f'{place}_write_bytes_per_s')} written on {slowest.node}, the "
            f"slowest of {len(measured)} probed ({units.seconds(max(0.0, age_s))} ago)"
        )
        is_slow = slowest.numbers[read] < _SLOW_READ[place]
        if is_slow or age_s > _OLD_S:
            yield Check.warning(name, finding, command)
        else:
            yield Check.ok(name, finding)


# Slurm's settings and their consequences for our jobs.
#
# sacct(1), scontrol(1) and slurm.conf(5) describe the settings. Each judgement also considers the
# options of our own jobs, which override defaults.


NEEDED = ("sbatch", "squeue", "sacct", "scontrol", "sinfo", "scancel", "srun")
_OLDEST = (20, 11)
"""Older versions were never tested; the parsed output is of 22.05 and later."""
_DEFAULT_CRED_EXPIRE_S = 120
"""Default `cred_expire` of AuthInfo, for which a requeued job waits; seen on a real cluster."""
_LONG_WAIT_S = 300
_CLOCK_WARNING_S, _CLOCK_PROBLEM_S = 5.0, 120.0
"""Five seconds are enough to order records; munge refuses credentials that are 300 s old."""
_UPDATED = re.compile(r"Configuration data as of (\d+)")
_LIMITING = frozenset({"associations", "limits", "safe", "qos", "all"})


def slurm_checks(facts: SlurmFacts, spec: SpecFacts) -> list[Check]:
    """Return all checks that rest on Slurm's answers; for a missing answer, the reason."""
    config = facts.answers["config"]
    settings = parse_config(config.text)
    checks = [*_commands(facts), _version(facts.answers["version"])]
    if not settings:
        why = config.problem or "it printed no settings"
        finding = f"the controller did not report its settings ({why})"
        remedy = "wait until `scontrol ping` says UP, or report it to the site's support"
        checks.append(Check.problem("controller", finding, remedy))
        return checks
    given = settings.get("DependencyParameters", "")
    if "kill_invalid_depend" in given.lower():
        finding = "jobs that can never start are cancelled (kill_invalid_depend)"
    else:
        finding = "jobs that can never start would wait for ever; ours ask to be cancelled then"
    checks += [
        _queue(facts.answers["queue"]),
        *_accounts(facts, settings),
        _requeue(settings, spec),
        _requeue_wait(settings),
        _arrays(settings, spec),
        _stop_signal(settings, spec),
        Check.ok("dependencies", finding),
        _controller_clock(facts),
        *_partition_states(facts.answers["nodes"], spec),
        *preemption_checks(settings, facts.answers["partitions"], spec),
    ]
    return checks


def is_unreachable(facts: SlurmFacts) -> bool:
    """Check whether the controller did not answer."""
    return not parse_config(facts.answers["config"].text)


def _commands(facts: SlurmFacts) -> Iterator[Check]:
    if facts.missing:
        named = ", ".join(facts.missing)
        yield Check.problem(
            "commands",
            f"not on PATH here: {named}",
            "work on a login node of the cluster, or `module load slurm`",
        )
    else:
        yield Check.ok("commands", f"{', '.join(NEEDED)} are on PATH")


def _version(asked: Asked) -> Check:
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", asked.text)
    if match is None:
        why = asked.problem or f"sbatch --version said {asked.text.strip()!r}"
        return Check.unknown("slurm-version", why)
    finding = f"Slurm {match[0]}"
    if (int(match[1]), int(match[2])) < _OLDEST:
        remedy = "run `slurm-jobs doctor --drill` before you trust it"
        finding += ": older than any that was tried (20.11)"
        return Check.warning("slurm-version", finding, remedy)
    return Check.ok("slurm-version", finding)


def _queue(asked: Asked) -> Check:
    try:
        number = len(split_rows(asked.text, 9, "squeue")) if not asked.problem else 0
        problem = asked.problem
    except SchedulerError as error:
        problem = str(error)
    if problem:
        return Check.problem(
            "squeue",
            f"squeue did not answer: {problem}",
            "without it nothing is submitted or resumed; report it to the site's support",
        )
    return Check.ok("squeue", f"squeue answers; your jobs there: {number}")


def _accounts(facts: SlurmFacts, settings: Mapping[str, str]) -> Iterator[Check]:
    kind = settings.get("AccountingStorageType", "")
    asked = facts.answers["accounts"]
    if kind in {"", "(null)", "none", "accounting_storage/none"}:
        yield Check.warning(
            "accounting",
            "off: Slurm forgets a job that has ended after some minutes (MinJobAge "
            f"{settings.get('MinJobAge', 'unknown')})",
            "no action needed: the run's records prove what is done. Why a job was "
            "killed, and its memory, only `slurm-jobs status` within that time can show",
        )
    elif asked.problem:
        yield Check.warning(
            "accounting",
            f"on ({kind}), and sacct does not answer: {asked.problem}",
            "reports lack Slurm's own numbers until it does; runs continue without it",
        )
    else:
        yield Check.ok("accounting", f"on ({kind}), and sacct answers")
    enforced = set(settings.get("AccountingStorageEnforce", "").split(","))
    if enforced & _LIMITING:
        yield _association(facts.answers["association"], enforced)


def _association(asked: Asked, enforced: set[str]) -> Check:
    name = "account"
    if asked.problem:
        return Check.unknown(name, f"sacctmgr: {asked.problem}")
    accounts = sorted({line.split("|")[0] for line in asked.text.splitlines() if line})
    rules = ", ".join(sorted(enforced))
    if not accounts:
        return Check.problem(
            name,
            f"accounts are enforced ({rules}), and you have none: sbatch will refuse",
            "ask the site for an account, then `slurm: {account: NAME}` in the profile",
        )
    return Check.ok(name, f"limits are enforced ({rules}); your accounts: {', '.join(accounts)}")


def _requeue(settings: Mapping[str, str], spec: SpecFacts) -> Check:
    name, given = "requeue", settings.get("JobRequeue")
    if not spec.may_requeue:
        return Check.warning(
            name,
            "the spec says `no-requeue`: near its time limit a training saves and ends there",
            "take `no-requeue` out of `slurm:`, or type `slurm-jobs resume` each time",
        )
    if given is None:
        return Check.unknown(name, "Slurm does not report JobRequeue")
    finding = "jobs may be requeued (JobRequeue=1)"
    if given == "0":
        finding = "JobRequeue=0 is the default of jobs that do not ask; ours ask (`--requeue`)"
    return Check.ok(name, f"{finding}; `doctor --drill` proves it")


def _requeue_wait(settings: Mapping[str, str]) -> Check:
    name, given = "requeue-wait", settings.get("AuthInfo")
    match = re.search(r"cred_expire=(\d+)", given or "")
    wait_s = int(match[1]) if match else _DEFAULT_CRED_EXPIRE_S
    why = f"cred_expire={wait_s}" if match else f"cred_expire's default of {wait_s} s"
    finding = f"a requeued job waits {wait_s} s before it may start ({why})"
    if wait_s > _LONG_WAIT_S:
        remedy = "ask for longer time limits, so that it happens seldom (`timeout_min`)"
        return Check.warning(name, finding, remedy)
    return Check.ok(name, finding)


def _arrays(settings: Mapping[str, str], spec: SpecFacts) -> Check:
    name, given = "arrays", settings.get("MaxArraySize", "")
    if not given.isdecimal():
        return Check.unknown(name, "Slurm does not report MaxArraySize")
    most = int(given)
    if most == 0:
        return Check(
            name=name,
            standing="problem" if spec.num_slices > 1 else "warning",
            told="job arrays are switched off (MaxArraySize=0)",
            remedy="leave `array:` out: one task then does a stage's whole work",
        )
    finding = f"indices up to {most - 1} (MaxArraySize={most})"
    if spec.num_slices > most:
        finding += f"; {spec.num_slices} slices become several jobs by themselves"
    return Check.ok(name, finding)


def _stop_signal(settings: Mapping[str, str], spec: SpecFacts) -> Check:
    """Check the time to save. Slurm sends `--signal` up to a minute early (sbatch(1)).

    After TERM it sends KILL when KillWait has passed.
    """
    name, wait = "stop-signal", settings.get("KillWait", "").partition(" ")[0]
    if not wait.isdecimal():
        return Check.unknown(name, "Slurm does not report KillWait")
    finding = (
        f"{spec.stage} is asked to save {spec.lead_s} s before its time limit (Slurm may be a "
        f"minute early); at the limit SIGTERM, {wait} s later SIGKILL (KillWait)"
    )
    if spec.lead_s < 30:
        return Check.warning(name, finding, f"stages.{spec.stage}.resources.signal_lead_s: 120")
    return Check.ok(name, finding)


def _controller_clock(facts: SlurmFacts) -> Check:
    """Compare the clock that `scontrol` prints above the settings, in whole seconds."""
    match = _UPDATED.search(facts.answers["config"].text)
    name = "controller-clock"
    if match is None:
        finding = "the settings bear no time that could be compared with this clock"
        return Check.unknown(name, finding)
    before_s, after_s = facts.asked_unix_s
    least, most = int(match[1]) - after_s, int(match[1]) + 1 - before_s
    middle, half = (least + most) / 2, (most - least) / 2
    finding = f"the controller's clock is {middle:+.1f} s from this one's (within {half:.1f} s)"
    surely = max(0.0, abs(middle) - half)
    if surely <= _CLOCK_WARNING_S:
        return Check.ok(name, finding)
    return Check(
        name=name,
        standing="problem" if surely > _CLOCK_PROBLEM_S else "warning",
        told=finding,
        remedy="report it to the site's support: `timedatectl` shows whether a clock syncs",
    )


def _partition_states(asked: Asked, spec: SpecFacts) -> Iterator[Check]:
    """Check the spec's partitions in the answer of `sinfo`, and whether nodes are up."""
    name = "partitions"
    if asked.problem:
        yield Check.unknown(name, f"sinfo: {asked.problem}")
        return
    up, down = _nodes_by_partition(asked.text)
    known = {*up, *down}
    default = [line.split("|")[0] for line in asked.text.splitlines() if line.endswith("*")]
    meant = [p for text in spec.partitions for p in text.split(",")] or default or sorted(known)
    absent = [p for p in meant if p not in known]
    dead = [p for p in meant if p in known and not up.get(p)]
    if absent:
        yield Check.problem(
            name,
            f"no partition is called {', '.join(absent)}",
            f"one of these in `slurm: {{partition: NAME}}`: {', '.join(sorted(known))}",
        )
    if dead:
        finding = f"no node of {', '.join(dead)} is up: jobs there wait"
        yield Check.problem(name, finding, f"sinfo -R -p {dead[0]}")
    if not absent and not dead:
        each = ", ".join(f"{p} ({up[p]} of {up[p] + down.get(p, 0)} nodes up)" for p in meant)
        yield Check.ok(name, each)


def _nodes_by_partition(text: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the nodes that are up, and those that are not, by partition."""
    up: dict[str, int] = {}
    down: dict[str, int] = {}
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != 5 or not fields[2].isdecimal():
            continue
        name, state, number, of_nodes = fields[0], fields[1], int(fields[2]), fields[3].lower()
        is_up = state == "up" and not of_nodes.startswith(("down", "drain", "fail", "unknown"))
        target = up if is_up and not of_nodes.endswith("*") else down
        target[name] = target.get(name, 0) + number
    return up, down
