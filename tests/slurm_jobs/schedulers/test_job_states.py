import pytest

from slurm_jobs.schedulers.job_states import wait_of

# Every reason of src/common/job_state_reason.c of Slurm 26.11, and sentences of src/slurmctld.
CURED = """\
|
None | Priority | Resources | Dependency | BeginTime | JobArrayTaskLimit | Licenses | Reservation |
Prolog | Cleaning | SchedDefer | Constraints | FedJobLock | MaxPoweredUpNodes | MpiPortsBusy |
AssocMaxJobsLimit | AssocGrpCpuLimit | AssocGrpGRES | AssocGrpCPURunMinutesLimit |
AssocMaxSubmitJobLimit | QOSMaxJobsPerUserLimit | QOSMaxCpuPerUserLimit | QOSMaxGRESPerUser |
QOSGrpNodeLimit | QOSGrpGRESRunMinutes | QOSMaxSubmitJobPerUserLimit | MaxJobsPerAccount |
MaxCpuPerAccount | MaxNodeRunMinsPerUser | ReqNodeNotAvail | AccountingPolicy | AssocGrpBB |
AssocGrpBBRunMinutes | AssocGrpBilling | AssocGrpBillingRunMinutes | AssocGrpEnergy |
AssocGrpEnergyRunMinutes | AssocGrpGRESRunMinutes | AssocGrpJobsLimit | AssocGrpLicense |
AssocGrpLicenseRunMinutes | AssocGrpMemLimit | AssocGrpMemRunMinutes | AssocGrpNodeLimit |
AssocGrpNodeRunMinutes | AssocGrpSubmitJobsLimit | AssocGrpUnknown | AssocGrpUnknownRunMinutes |
AssociationJobLimit | AssociationResourceLimit | BurstBufferResources | BurstBufferStageIn |
InactiveLimit | JobLaunchFailure | MaxBBPerAccount | MaxBBRunMinsPerAccount | MaxBBRunMinsPerUser |
MaxBillingPerAccount | MaxBillingRunMinsPerAccount | MaxBillingRunMinsPerUser |
MaxCpuRunMinsPerAccount | MaxCpuRunMinsPerUser | MaxEnergyPerAccount | MaxEnergyRunMinsPerAccount |
MaxEnergyRunMinsPerUser | MaxGRESPerAccount | MaxGRESRunMinsPerAccount | MaxGRESRunMinsPerUser |
MaxLicensePerAccount | MaxLicenseRunMinsPerAccount | MaxLicenseRunMinsPerUser |
MaxMemoryPerAccount |
MaxMemoryRunMinsPerAccount | MaxMemoryRunMinsPerUser | MaxNodePerAccount |
MaxNodeRunMinsPerAccount | MaxSubmitJobsPerAccount | MaxUnknownPerAccount |
MaxUnknownRunMinsPerAccount | MaxUnknownRunMinsPerUser | NonZeroExitCode | NvidiaImexChannels |
OutOfMemory | QOSGrpBB | QOSGrpBBRunMinutes | QOSGrpBilling | QOSGrpBillingRunMinutes |
QOSGrpCPURunMinutesLimit | QOSGrpCpuLimit | QOSGrpEnergy | QOSGrpEnergyRunMinutes | QOSGrpGRES |
QOSGrpJobsLimit | QOSGrpLicense | QOSGrpLicenseRunMinutes | QOSGrpMemLimit |
QOSGrpMemoryRunMinutes |
QOSGrpNodeRunMinutes | QOSGrpSubmitJobsLimit | QOSGrpUnknown | QOSGrpUnknownRunMinutes |
QOSJobLimit | QOSMaxBBPerUser | QOSMaxBillingPerUser | QOSMaxEnergyPerUser | QOSMaxLicensePerUser |
QOSMaxMemoryPerUser | QOSMaxNodePerUserLimit | QOSMaxUnknownPerUser | QOSResourceLimit |
RaisedSignal | SystemFailure | TimeLimit |
ReqNodeNotAvail, May be reserved for other job |
ReqNodeNotAvail, Reserved for maintenance |
a reason that no version has yet"""
HELD = """\
JobHeldUser | job_requeued_in_held_state | launch_failed_requeued_held | JobHoldMaxRequeue |
(JobHeldUser) |
job requeued in held state |
launch failed requeued held |
launch failure limit exceeded requeued held |
user env retrieval failed requeued held |
job requeued in special exit state"""
BY_ADMIN = """\
JobHeldAdmin |
(JobHeldAdmin)"""
NEVER = """\
PartitionTimeLimit | BadConstraints | InvalidAccount | InvalidQOS | AccountNotAllowed |
QOSNotAllowed | DeadLine | MaxMemPerLimit | ReservationDeleted |
ReservationInvalid | AssocMaxCpuPerJobLimit | AssocMaxNodePerJobLimit | AssocMaxGRESPerNode |
AssocMaxWallDurationPerJobLimit | AssocMaxCpuMinutesPerJobLimit | QOSMaxGRESPerJob |
QOSMaxWallDurationPerJobLimit | QOSMaxMemoryPerNode | QOSMinCpuNotSatisfied | QOSMinGRES |
AssocMaxGRESMinutesPerJob | AssocMaxBBMinutesPerJob | AssocMaxBBPerJob | AssocMaxBBPerNode |
AssocMaxBillingMinutesPerJob | AssocMaxBillingPerJob | AssocMaxBillingPerNode | AssocMaxCpuPerNode |
AssocMaxEnergyMinutesPerJob | AssocMaxEnergyPerJob | AssocMaxEnergyPerNode | AssocMaxGRESPerJob |
AssocMaxLicenseMinutesPerJob | AssocMaxLicensePerJob | AssocMaxMemMinutesPerJob |
AssocMaxMemPerJob |
AssocMaxMemPerNode | AssocMaxNodeMinutesPerJob | AssocMaxUnknownMinutesPerJob |
AssocMaxUnknownPerJob | AssocMaxUnknownPerNode | BurstBufferOperation | QOSMaxBBPerJob |
QOSMaxBBPerNode | QOSMaxBillingMinutesPerJob | QOSMaxBillingPerJob | QOSMaxBillingPerNode |
QOSMaxCpuMinutesPerJobLimit | QOSMaxCpuPerJobLimit | QOSMaxCpuPerNode | QOSMaxEnergyMinutesPerJob |
QOSMaxEnergyPerJob | QOSMaxEnergyPerNode | QOSMaxGRESMinutesPerJob | QOSMaxGRESPerNode |
QOSMaxLicenseMinutesPerJob | QOSMaxLicensePerJob | QOSMaxMemoryMinutesPerJob | QOSMaxMemoryPerJob |
QOSMaxNodeMinutesPerJob | QOSMaxNodePerJobLimit | QOSMaxUnknownMinutesPerJob | QOSMaxUnknownPerJob |
QOSMaxUnknownPerNode | QOSMinBB | QOSMinBilling | QOSMinEnergy | QOSMinLicense | QOSMinMemory |
QOSMinNode | QOSMinUnknown |
uid 1001 not in group permitted to use this partition (gpu). groups allowed: vision |
Job's account not permitted to use this partition (gpu allows a not b) |
Job's QOS not permitted to use this partition (gpu allows a not b) |
Reservation day_1 was deleted |
Reservation day_1 is invalid"""
UNMET = """\
DependencyNeverSatisfied | dependency_never_satisfied |
(Dependency never satisfied)"""
BLOCKED = """\
PartitionDown | PartitionInactive | NodeDown | PartitionNodeLimit | AssocGrpCPUMinutesLimit |
QOSGrpGRESMinutes | AssocGrpWallLimit | AssocGrpBBMinutes | AssocGrpBillingMinutes |
AssocGrpEnergyMinutes | AssocGrpGRESMinutes | AssocGrpLicenseMinutes | AssocGrpMemMinutes |
AssocGrpNodeMinutes | AssocGrpUnknownMinutes | AssociationTimeLimit | PartitionConfig |
QOSGrpBBMinutes | QOSGrpBillingMinutes | QOSGrpCPUMinutesLimit | QOSGrpEnergyMinutes |
QOSGrpLicenseMinutes | QOSGrpMemoryMinutes | QOSGrpNodeMinutes | QOSGrpUnknownMinutes |
QOSGrpWallLimit | QOSTimeLimit | QOSUsageThreshold |
ReqNodeNotAvail, UnavailableNodes:node[1-3] |
ReqNodeNotAvail(Unavailable_Nodes:n1) |
ReqNodeNotAvail,_UnavailableNodes:n1 |
Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions |
(Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions) |
Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions |
Nodes required for job are DOWN, DRAINED, REBOOTING or reserved for jobs"""


@pytest.mark.parametrize(
    ("expected", "reasons"),
    [
        ("", CURED),
        ("held", HELD),
        ("held_by_admin", BY_ADMIN),
        ("unmet", UNMET),
        ("never", NEVER),
        ("blocked", BLOCKED),
    ],
)
def test_each_pending_reason_has_its_kind_of_wait(expected: str, reasons: str) -> None:
    listed = (reason.strip() for reason in reasons.split("|"))
    found = {reason: wait_of("PENDING", reason)[0] for reason in listed}
    assert found == dict.fromkeys(found, expected)


@pytest.mark.parametrize(
    ("state", "expected"),
    [("REQUEUE_HOLD", "held"), ("SPECIAL_EXIT", "held"), ("RESV_DEL_HOLD", "never")],
)
def test_a_state_that_means_held_needs_no_reason(state: str, expected: str) -> None:
    assert wait_of(state, "")[0] == expected
