"""Define the bridge's exceptions.

An exception means that the cluster, the network or the configuration failed. A failed start is a result.

    BridgeError              a `CpschedError`: base of all exceptions in this package
    ├── BackendError         a call to the cluster failed: the cycle fails, the loop backs off
    │   ├── BackendUnavailable   the cluster was not reached: the call had no effect
    │   │   ├── BackendStarting      the process that calls the cluster is still starting: retry
    │   │   ├── BackendStartFailed   that process ended or hung before its first call
    │   │   └── AnswerNotUnderstood  the answer is incomplete or has an unexpected format
    │   ├── BackendTimeout       no answer within the deadline: the call may have taken effect
    │   │   └── BackendDied      the called process ended during the call, which may have taken effect
    │   └── CommandRefused       the cluster refused the whole call (privilege, version)
    │       └── ProgramMissing       a program of the cluster is not on PATH, or not executable
    ├── PolicyFailure        the policy raised an exception, or its decision is invalid: the cycle fails
    ├── DecisionTimeout      the policy exceeded its time limit
    ├── DispatcherError      a dispatcher in its own process died or raised an exception
    ├── ChildFailure         a child process did not answer; its owner translates the error
    │   ├── ChildStartFailed     it ended or hung before its first request
    │   ├── ChildTimeout         it did not answer within the deadline and was killed
    │   └── ChildDied            it ended during a request
    ├── SettingsError        the configuration is invalid: file, line, field, value and rule (exit code 2)
    │   └── InvalidSetting       the same, before file and line are known
    ├── AlreadyRunning       another bridge holds the lock
    ├── NotReady             a check that control mode requires fails
    │   └── ClusterUnreachable   a required check could not run: the cluster does not answer
    ├── AddressInUse         the bridge cannot listen on the metrics address
    ├── JobsStillHeld        jobs could not be released
    ├── ReleasedWithoutLedger             jobs were released without a ledger
    ├── CorruptFile          the journal or the ledger is missing or unreadable
    ├── UnknownRound         the journal does not contain the round (exit code 2)
    └── UnknownJob           neither ledger nor journal contains the job (exit code 2)
"""

from __future__ import annotations

from cpsched.errors import CpschedError


class BridgeError(CpschedError):
    """The base class of this package's exceptions."""

    exit_code = 1
    """Exit code of a command: 2 for invalid input, 1 for failures."""


class BackendError(BridgeError):
    """A call to the cluster failed."""


class BackendUnavailable(BackendError):
    """The cluster could not be reached. The call had no effect."""


class BackendStarting(BackendUnavailable):
    """The process that calls the cluster is still starting; a retry waits for it."""


class BackendStartFailed(BackendUnavailable):
    """The process that calls the cluster ended or hung before its first call."""


class AnswerNotUnderstood(BackendUnavailable):
    """The cluster's answer is incomplete or malformed. The call had no effect."""


class BackendTimeout(BackendError):
    """No answer within the deadline. The next observation shows the call's effect."""


class BackendDied(BackendTimeout):
    """The child process ended during a call, which may have had an effect. Retry."""


class CommandRefused(BackendError):
    """The cluster refused a whole call. The call had no effect."""


class ProgramMissing(CommandRefused):
    """A program of the cluster cannot be started on this host."""


class PolicyFailure(BridgeError):
    """A dispatcher or predictor failed; `kind` is the failure's snake-case name."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class DecisionTimeout(BridgeError):
    """A call to the policy exceeded its time limit and was terminated."""


class DispatcherError(BridgeError):
    """A dispatcher in its own process died or raised an exception."""


class ChildFailure(BridgeError):
    """A child process did not answer."""


class ChildStartFailed(ChildFailure):
    """A child process ended or hung before its first request."""


class ChildTimeout(ChildFailure):
    """A child process did not answer within the deadline and was killed."""


class ChildDied(ChildFailure):
    """A child process ended during a request."""


class SettingsError(BridgeError):
    """The configuration is invalid; the message states file, field, value and rule."""

    exit_code = 2


class InvalidSetting(SettingsError):
    """A setting at path `where` violates a rule (see `add_location_to_error`)."""

    def __init__(self, where: tuple[str, ...], value: object, rule: str) -> None:
        super().__init__(f"{'.'.join(where)}: {value}: {rule}")
        self.where = where
        self.value = value
        self.rule = rule


class AlreadyRunning(BridgeError):
    """Another bridge holds the instance lock."""


class NotReady(BridgeError):
    """A check that control mode requires fails."""


class ClusterUnreachable(NotReady):
    """A required check could not run, because the cluster does not answer."""


class AddressInUse(BridgeError):
    """The bridge cannot listen on the metrics address."""


class ReleasedWithoutLedger(BridgeError):
    """Jobs were released without a ledger; the cluster may not show all held jobs."""


class CorruptFile(BridgeError):
    """The journal or the ledger is missing or unreadable."""


class UnknownRound(BridgeError):
    """The journal does not contain the round."""

    exit_code = 2


class JobsStillHeld(BridgeError):
    """Jobs could not be released; the message names them."""


class UnknownJob(BridgeError):
    """Neither the ledger nor the journal contains the job."""

    exit_code = 2
