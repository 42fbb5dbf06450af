"""The exceptions of the bridge.

An exception means that the outside or the configuration broke; a start that did not work out is a result.

    BridgeError              a `CpschedError`: everything this package raises on purpose
    ├── BackendError         the cluster did not do as asked: the cycle failed, the loop backs off
    │   ├── BackendUnavailable   not reached: nothing took effect
    │   │   ├── BackendBegins        the process that asks the cluster is still beginning: ask again
    │   │   ├── BackendCannotBegin   that process cannot begin: it ends, or hangs, before it can be asked
    │   │   └── AnswerNotUnderstood  reached, but its answer ends early or has another form
    │   ├── BackendTimeout       no answer within the deadline: it may have taken effect
    │   │   └── BackendDied      the process that was asked ended over the call: the same
    │   └── CommandRefused       reached, understood and refused as a whole (privilege, version)
    ├── PolicyFailed         the policy raised, or answered what may not be carried out: the cycle failed
    ├── DecisionTimeout      the policy did not answer in time
    ├── DispatcherFailed     a dispatcher in a process of its own died, or says what it raised
    ├── SettingsError        the configuration file: names file, line, field, value and rule (exit code 2)
    │   └── WrongSetting         the same, told by somebody who does not know the file
    ├── AlreadyRunning       another bridge holds the lock
    ├── NotReady             a check that control mode requires fails
    │   └── Unreachable          it could not be checked, since the cluster does not answer
    ├── AddressTaken         the metrics address cannot be listened on
    ├── StillHeld            jobs could not be handed back to the cluster's own scheduler
    ├── NoLedger             jobs were handed back by the cluster alone: there was no ledger to tell of others
    ├── DamagedFile          journal or ledger is gone, or cannot be read as what it is
    ├── UnknownRound         the journal has no such round (exit code 2)
    └── UnknownJob           neither ledger nor journal has heard of the job (exit code 2)
"""

from __future__ import annotations

from cpsched.errors import CpschedError


class BridgeError(CpschedError):
    """Base of everything this package raises on purpose."""

    exit_code = 1
    """What a command ends with: 2 where what it was given is to blame."""


class BackendError(BridgeError):
    """The cluster did not do as asked."""


class BackendUnavailable(BackendError):
    """The cluster was not reached; the call had no effect."""


class BackendStarting(BackendUnavailable):
    """The process that asks the cluster has not begun yet (imports); asking again goes on waiting for it."""


class BackendStartFailed(BackendUnavailable):
    """The process that asks the cluster ends or hangs before it can be asked anything."""


class AnswerNotUnderstood(BackendUnavailable):
    """The cluster was reached, but its answer as a whole ends early or has another form; the call had no effect."""


class BackendTimeout(BackendError):
    """No answer within the deadline; whether the call had an effect is for the next observation to tell."""


class BackendDied(BackendTimeout):
    """The process that talks to the cluster ended during the call, which may have had an effect; asking on is quick."""


class CommandRefused(BackendError):
    """The cluster was reached and refused a call as a whole; the call had no effect."""


class PolicyFailure(BridgeError):
    """What a dispatcher or predictor did wrong; `kind` is its snake-case name in journal and metrics."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class DecisionTimeout(BridgeError):
    """A call into the policy was ended because it took too long."""


class DispatcherError(BridgeError):
    """A dispatcher in a process of its own died there, or raised what the message says."""


class SettingsError(BridgeError):
    """The configuration is wrong; the message names file, field, value and rule."""

    exit_code = 2


class InvalidSetting(SettingsError):
    """One setting broke a rule; `where` are the names that lead to it. `Settings.located` adds file and line."""

    def __init__(self, where: tuple[str, ...], value: object, rule: str) -> None:
        super().__init__(f"{'.'.join(where)}: {value}: {rule}")
        self.where = where
        self.value = value
        self.rule = rule


class AlreadyRunning(BridgeError):
    """Another bridge holds the instance lock."""


class NotReady(BridgeError):
    """Control mode was asked for while a required check fails."""


class ClusterUnreachable(NotReady):
    """Control mode was asked for, and the cluster does not answer: it may do so later."""


class AddressInUse(BridgeError):
    """The metrics address cannot be listened on."""


class NoLedger(BridgeError):
    """Jobs were handed back by the cluster's own records alone: no bridge's ledger was found to tell of others."""


class CorruptFile(BridgeError):
    """The journal or the ledger is gone, or cannot be read as what it is."""


class UnknownRound(BridgeError):
    """The journal holds no such round."""

    exit_code = 2


class JobsStillHeld(BridgeError):
    """Jobs could not be handed back; the message names them."""


class UnknownJob(BridgeError):
    """Neither the ledger nor the journal has heard of the job."""

    exit_code = 2
