import pytest

from slurm_jobs.schedulers.states import wait_of

CURED = """\

None
Priority
Resources
Dependency
BeginTime
JobArrayTaskLimit
Licenses
Reservation
Prolog
Cleaning
SchedDefer
Constraints
FedJobLock
MaxPoweredUpNodes
MpiPortsBusy
AssocMaxJobsLimit
AssocGrpCpuLimit
AssocGrpGRES
AssocGrpCPURunMinutesLimit
AssocMaxSubmitJobLimit
QOSMaxJobsPerUserLimit
QOSMaxCpuPerUserLimit
QOSMaxGRESPerUser
QOSGrpNodeLimit
QOSGrpGRESRunMinutes
QOSMaxSubmitJobPerUserLimit
MaxJobsPerAccount
MaxCpuPerAccount
MaxNodeRunMinsPerUser
QOSUsageThreshold
ReqNodeNotAvail
ReqNodeNotAvail, May be reserved for other job
ReqNodeNotAvail, Reserved for maintenance
Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions
a reason that no version has yet"""
HELD = """\
JobHeldUser
(JobHeldUser)
job requeued in held state
job_requeued_in_held_state
launch failed requeued held
launch_failed_requeued_held
JobHoldMaxRequeue
launch failure limit exceeded requeued held
user env retrieval failed requeued held
job requeued in special exit state"""
BY_ADMIN = """\
JobHeldAdmin
(JobHeldAdmin)"""
NEVER = """\
PartitionTimeLimit
BadConstraints
InvalidAccount
InvalidQOS
AccountNotAllowed
QOSNotAllowed
DeadLine
DependencyNeverSatisfied
MaxMemPerLimit
ReservationDeleted
ReservationInvalid
AssocMaxCpuPerJobLimit
AssocMaxNodePerJobLimit
AssocMaxGRESPerNode
AssocMaxWallDurationPerJobLimit
AssocMaxCpuMinutesPerJobLimit
QOSMaxGRESPerJob
QOSMaxWallDurationPerJobLimit
QOSMaxMemoryPerNode
QOSMinCpuNotSatisfied
QOSMinGRES
AssocMaxGRESMinutesPerJob"""
BLOCKED = """\
ReqNodeNotAvail, UnavailableNodes:node[1-3]
ReqNodeNotAvail(Unavailable_Nodes:n1)
ReqNodeNotAvail,_UnavailableNodes:n1
PartitionDown
PartitionInactive
NodeDown
PartitionNodeLimit
AssocGrpCPUMinutesLimit
QOSGrpGRESMinutes
AssocGrpWallLimit"""


@pytest.mark.parametrize(
    ("expected", "reasons"),
    [
        ("", CURED),
        ("held", HELD),
        ("held_by_admin", BY_ADMIN),
        ("never", NEVER),
        ("blocked", BLOCKED),
    ],
)
def test_only_reasons_that_waiting_does_not_cure_are_said_to_be_so(
    expected: str, reasons: str
) -> None:
    found = {reason: wait_of("PENDING", reason)[0] for reason in reasons.splitlines()}
    assert found == dict.fromkeys(found, expected)


@pytest.mark.parametrize(
    ("state", "expected"),
    [("REQUEUE_HOLD", "held"), ("SPECIAL_EXIT", "held"), ("RESV_DEL_HOLD", "never")],
)
def test_a_state_that_means_held_needs_no_reason(state: str, expected: str) -> None:
    assert wait_of(state, "")[0] == expected
