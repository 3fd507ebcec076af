"""PURE: what the cluster consists of, and the text of its configuration files.

Every number that a test may want to turn is a field of `ClusterConfig`; every path is one of its
properties. Nothing here touches the file system.
"""

from dataclasses import dataclass
from pathlib import Path

CPU_NODES = ("cpu1", "cpu2")
V100_NODES = ("v1", "v2")
A100_NODES = ("a1", "a2")
GPU_NODES = (*V100_NODES, *A100_NODES)
NODES = (*CPU_NODES, *GPU_NODES)
GPUS_PER_NODE = 4
NUM_PORTS = 3 + len(NODES)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterConfig:
    """One test cluster.

    The defaults make Slurm quick: a job starts within a second, a requeued one after about six.
    """

    folder: Path
    """Everything lives here. Short, because a Unix socket's path has at most 107 characters."""
    host: str
    """What gethostname() says, without the domain."""
    first_port: int
    """MariaDB, slurmdbd, slurmctld and one slurmd a node take NUM_PORTS ports from here on."""
    db_password: str
    """Of the database user; MariaDB listens on 127.0.0.1 only."""
    user: str = "sjtest"
    """Who submits jobs. Created without password or login if absent; it stays after `down`."""
    cpus_per_node: int = 8
    """What a node claims to have (config_overrides), whatever this machine has."""
    mem_mb_per_node: int = 16_000
    default_mem_mb_per_cpu: int = 500
    max_job_count: int = 10_000
    max_array_size: int = 1001
    """Slurm's default. It caps the largest index, plus one."""
    grace_time_s: int = 10
    """How long, at least, a preempted job of `low` has between its signal and SIGTERM."""
    send_user_signal: bool = True
    """Preemption sends the signal of `sbatch --signal` instead of SIGTERM."""
    kill_invalid_depend: bool = False
    """Cancel jobs whose dependency can never be satisfied; many sites do not."""
    slurmd_timeout_s: int = 10
    kill_wait_s: int = 5
    min_job_age_s: int = 300
    """How long slurmctld remembers an ended job (squeue, scontrol). Slurm's default."""
    typed_gpus: bool = True
    """Whether GPUs have types (gpu:a100:4); many sites have features of the nodes alone."""
    cluster_name: str = "testcluster"

    @property
    def db_port(self) -> int:
        return self.first_port

    @property
    def slurmdbd_port(self) -> int:
        return self.first_port + 1

    @property
    def slurmctld_port(self) -> int:
        return self.first_port + 2

    def slurmd_port(self, node: str) -> int:
        return self.first_port + 3 + NODES.index(node)

    @property
    def etc(self) -> Path:
        return self.folder / "etc"

    @property
    def slurm_conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def my_cnf(self) -> Path:
        return self.etc / "my.cnf"

    @property
    def init_sql(self) -> Path:
        return self.etc / "init.sql"

    @property
    def logs(self) -> Path:
        return self.folder / "log"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def devices(self) -> Path:
        return self.folder / "dev"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    @property
    def database(self) -> Path:
        return self.folder / "db"

    @property
    def munge_socket(self) -> Path:
        return self.run / "munge.sock"

    @property
    def munge_key(self) -> Path:
        return self.etc / "munge.key"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def work(self) -> Path:
        return self.folder / "work"


def render_my_cnf(config: ClusterConfig) -> str:
    """Return MariaDB's configuration: own folder, socket and port; quick rather than safe."""
    return f"""\
[mariadbd]
datadir={config.database}
socket={config.run}/mariadb.sock
pid-file={config.run}/mariadb.pid
log-error={config.logs}/mariadb.log
tmpdir={config.database}
bind-address=127.0.0.1
port={config.db_port}
skip-name-resolve
innodb-buffer-pool-size=64M
innodb-log-file-size=64M
innodb-flush-log-at-trx-commit=0
innodb-lock-wait-timeout=900
performance-schema=OFF
"""


def render_init_sql(config: ClusterConfig) -> str:
    """Return what MariaDB executes at its start: the accounting database and its user."""
    return f"""\
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS 'slurm'@'127.0.0.1' IDENTIFIED BY '{config.db_password}';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';
"""


def render_slurmdbd_conf(config: ClusterConfig) -> str:
    """Return slurmdbd.conf. Slurm demands that only its owner can read it."""
    return f"""\
AuthType=auth/munge
AuthInfo=socket={config.munge_socket}
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={config.slurmdbd_port}
SlurmUser=root
LogFile={config.logs}/slurmdbd.log
PidFile={config.run}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={config.db_port}
StorageUser=slurm
StoragePass={config.db_password}
StorageLoc=slurm_acct_db
CommitDelay=1
"""


def render_gres_conf(config: ClusterConfig) -> str:
    """Return gres.conf. Only character devices make Slurm set CUDA_VISIBLE_DEVICES.

    All nodes name the same devices, since all nodes are this machine.
    """
    files = f"{config.devices}/nvidia[0-{GPUS_PER_NODE - 1}]"
    lines = ["AutoDetect=off"]
    for kind, nodes in (("v100", V100_NODES), ("a100", A100_NODES)):
        type_word = f" Type={kind}" if config.typed_gpus else ""
        lines.append(f"NodeName={','.join(nodes)} Name=gpu{type_word} File={files}")
    return "\n".join(lines) + "\n"


def _scheduler_parameters(config: ClusterConfig) -> str:
    words = ["batch_sched_delay=0", "sched_interval=2", "sched_min_interval=100000"]
    words += ["bf_interval=1", "bf_window=1440", "bf_resolution=10"]
    if config.kill_invalid_depend:
        words.append("kill_invalid_depend")
    return ",".join(words)


def _node_lines(config: ClusterConfig) -> list[str]:
    kinds = dict.fromkeys(V100_NODES, "v100") | dict.fromkeys(A100_NODES, "a100")
    lines = []
    for node in NODES:
        words = [
            f"NodeName={node} NodeHostname={config.host} NodeAddr=127.0.0.1",
            f"Port={config.slurmd_port(node)}",
            f"CPUs={config.cpus_per_node} Boards=1 SocketsPerBoard=1",
            f"CoresPerSocket={config.cpus_per_node} ThreadsPerCore=1",
            f"RealMemory={config.mem_mb_per_node} TmpDisk=10000 State=UNKNOWN",
            f"Feature={kinds.get(node, 'cpu')}",
        ]
        if node in kinds:
            kind = f":{kinds[node]}" if config.typed_gpus else ""
            words.append(f"Gres=gpu{kind}:{GPUS_PER_NODE}")
        lines.append(" ".join(words))
    return lines


def _partition_lines(config: ClusterConfig) -> list[str]:
    all_nodes = ",".join(NODES)
    limits = "DefaultTime=60 MaxTime=1440 State=UP"
    safe = "PriorityTier=5 PreemptMode=OFF"
    preempted = f"PreemptMode=REQUEUE GraceTime={config.grace_time_s}"
    return [
        f"PartitionName=cpu Nodes={','.join(CPU_NODES)} Default=YES {limits} {safe}",
        f"PartitionName=gpu Nodes={','.join(GPU_NODES)} {limits} {safe}",
        f"PartitionName=low Nodes={all_nodes} {limits} PriorityTier=1 {preempted}",
        f"PartitionName=high Nodes={all_nodes} {limits} PriorityTier=10 PreemptMode=OFF",
    ]


def render_slurm_conf(config: ClusterConfig) -> str:
    """Return slurm.conf."""
    types = ",gres/gpu:v100,gres/gpu:a100" if config.typed_gpus else ""
    preempt = ["SlurmctldParameters=preempt_send_user_signal"] if config.send_user_signal else []
    lines = [
        f"ClusterName={config.cluster_name}",
        f"SlurmctldHost={config.host}(127.0.0.1)",
        f"SlurmctldPort={config.slurmctld_port}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        # A requeued job waits until its credential has expired: 2 minutes by default.
        f"AuthInfo=socket={config.munge_socket},cred_expire=5",
        f"StateSaveLocation={config.state}",
        f"SlurmdSpoolDir={config.spool}/%n",
        f"SlurmctldPidFile={config.run}/slurmctld.pid",
        f"SlurmdPidFile={config.run}/slurmd-%n.pid",
        f"SlurmctldLogFile={config.logs}/slurmctld.log",
        f"SlurmdLogFile={config.logs}/slurmd-%n.log",
        # One host plays every node; the nodes claim CPUs and memory that it does not have.
        "SlurmdParameters=config_overrides",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "MpiDefault=none",
        # A dead slurmd's node comes back by itself; one that was set down waits for `resume`.
        "ReturnToService=1",
        f"SlurmdTimeout={config.slurmd_timeout_s}",
        f"KillWait={config.kill_wait_s}",
        f"MinJobAge={config.min_job_age_s}",
        f"MaxArraySize={config.max_array_size}",
        f"MaxJobCount={config.max_job_count}",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=task=1",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={config.slurmdbd_port}",
        # To slurmdbd, Slurm does not use AuthInfo's socket but the one that stands here.
        f"AccountingStoragePass={config.munge_socket}",
        f"AccountingStorageTRES=gres/gpu{types}",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU_Memory",
        f"DefMemPerCPU={config.default_mem_mb_per_cpu}",
        "SchedulerType=sched/backfill",
        f"SchedulerParameters={_scheduler_parameters(config)}",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        *preempt,
        "GresTypes=gpu",
        *_node_lines(config),
        *_partition_lines(config),
    ]
    return "\n".join(lines) + "\n"
