"""Misbehaving plug-ins of every kind. Tests refer to them by name. A comment marks the line to report to the author."""

import ctypes
import sys
import time

import numpy as np

import cpsched
from cpsched_sim.traces.trace_record import ProcessorCountRequest, TraceReader, TraceRecord


class RaisingDispatcher(cpsched.Dispatcher):
    def decide(self, snapshot, need="plan"):
        return 1 // 0  # the fault


class ExitingDispatcher(cpsched.Dispatcher):
    def decide(self, snapshot, need="plan"):
        sys.exit(0)  # the fault


class TextDispatcher(cpsched.Dispatcher):
    def decide(self, snapshot, need="plan"):  # the fault
        return "start them all"


class WildDispatcher(cpsched.Dispatcher):
    def decide(self, snapshot, need="plan"):  # the fault
        starts = cpsched.Starts.of({int(snapshot.queue[0]): ((999, 1),)})
        return cpsched.Decision(starts, cpsched.Effort("wild"))


class IdleDispatcher(cpsched.Dispatcher):
    def decide(self, snapshot, need="plan"):  # the fault
        return cpsched.Decision(cpsched.Starts.of({}), cpsched.Effort("idle"))


class ShortOrder(cpsched.Dispatcher):
    """Returns an order for five jobs, for any queue."""

    def decide(self, snapshot, need="plan"):
        return cpsched.plan(snapshot, order=[1, 2, 3, 4, 5], need=need)  # the fault


class NanOrder(cpsched.Dispatcher):
    def decide(self, snapshot, need="plan"):
        return cpsched.plan(snapshot, order=lambda job: float("nan"), need=need)  # the fault


class MutatingDispatcher(cpsched.Dispatcher):
    def decide(self, snapshot, need="plan"):
        snapshot.free[:] = 0  # the fault
        return cpsched.plan(snapshot, need=need)


class LearningDispatcher(cpsched.Dispatcher):
    learns = True

    def decide(self, snapshot, need="plan"):
        return cpsched.plan(snapshot, need=need)

    def learn(self, ended):
        raise LookupError("nothing to learn")  # the fault


class HangingDispatcher(cpsched.Dispatcher):
    def decide(self, snapshot, need="plan"):
        time.sleep(600)  # the fault


class StuckInC(cpsched.Dispatcher):
    """Holds the interpreter's lock forever, in a call that handles no signal: for a mutex that it holds itself."""

    def decide(self, snapshot, need="plan"):
        mutex, lock = ctypes.create_string_buffer(64), ctypes.PyDLL(None).pthread_mutex_lock
        lock(mutex)
        lock(mutex)  # the fault


class StubbornDispatcher(cpsched.Dispatcher):
    """Catches the exception that ends it once, like a bare `except:`."""

    def decide(self, snapshot, need="plan"):
        try:
            time.sleep(600)
        except BaseException:
            time.sleep(600)  # the fault


class PrintingDispatcher(cpsched.Dispatcher):
    """Correct, but its output must not appear among the figures."""

    def decide(self, snapshot, need="plan"):
        print("deciding", len(snapshot.queue))
        return cpsched.plan(snapshot, need=need)


class UnmakeableDispatcher(cpsched.Dispatcher):
    def __init__(self):
        raise OSError("no such table")  # the fault

    def decide(self, snapshot, need="plan"):
        return cpsched.plan(snapshot, need=need)


class RaisingPredictor(cpsched.Predictor):
    def predict(self, job):
        raise KeyError(job.user)  # the fault


class ExitingPredictor(cpsched.Predictor):
    def predict(self, job):
        sys.exit("good bye")  # the fault


class NegativePredictor(cpsched.Predictor):
    def predict(self, job):  # the fault
        return -5


class TextPredictor(cpsched.Predictor):
    def predict(self, job):  # the fault
        return "an hour"


class NanPredictor(cpsched.Predictor):
    def predict(self, job):  # the fault
        return float("nan")


class HugePredictor(cpsched.Predictor):
    def predict(self, job):  # the fault
        return 10**30


class WrongFill(cpsched.Predictor):
    """Predicts whole columns, one value too few."""

    def predict(self, job):
        return 1

    def fill(self, table, slots):
        table.estimate_s[slots] = np.ones(len(slots) + 1)  # the fault


class LearningPredictor(cpsched.Predictor):
    learns = True

    def predict(self, job):
        return job.walltime_s

    def learn(self, ended):
        raise LookupError("nothing to learn")  # the fault


class HangingPredictor(cpsched.Predictor):
    def predict(self, job):
        while True:  # the fault
            pass


def _metric(name, of):
    return cpsched.Metric(name, name, "", "as it says", "tests", "lower", of)


RAISING_METRIC = _metric("raising", lambda measures: 1 // 0)  # the fault
EXITING_METRIC = _metric("exiting", lambda measures: sys.exit(0))  # the fault
TEXT_METRIC = _metric("text", lambda measures: "a lot")  # the fault
NAN_METRIC = _metric("nan", lambda measures: float("nan"))  # the fault
INFINITE_METRIC = _metric("infinite", lambda measures: np.inf)  # the fault
ARRAY_METRIC = _metric("array", lambda measures: measures.wait_s)  # the fault
HUGE_METRIC = _metric("huge", lambda measures: 10**400)  # the fault
MUTATING_METRIC = _metric("mutating", lambda measures: measures.start_s.sort())  # the fault
HANGING_METRIC = _metric("hanging", lambda measures: time.sleep(600))  # the fault
NUMPY_METRIC = _metric("numpy", lambda measures: np.float32(measures.wait_s.mean()))


class Format(TraceReader):
    """Lines such as `17 0 600 3600 8`: job, submission, run time, walltime, processors."""

    def __init__(self, path, lenient=False):
        super().__init__(path, lenient)
        self.header["MaxProcs"] = "4"

    def _record(self, text):
        job, submit_s, run_s, walltime_s, processors = map(int, text.split())
        return TraceRecord(job, submit_s, run_s, walltime_s, ProcessorCountRequest(processors))


class RaisingFormat(Format):
    def _record(self, text):
        job, submit_s, run_s, walltime_s, processors = (int(word) for word in text.split())  # the fault
        return TraceRecord(job, submit_s, run_s, walltime_s, ProcessorCountRequest(processors))


class ExitingFormat(Format):
    def _record(self, text):
        sys.exit(0)  # the fault


class TextFormat(Format):
    def _record(self, text):  # the fault
        return text


class WordsFormat(Format):
    def _record(self, text):  # the fault
        return TraceRecord(*text.split()[:4], ProcessorCountRequest(1))


class FractionFormat(Format):
    def _record(self, text):  # the fault
        return super()._record(text)._replace(run_s=1.5)


class HangingFormat(Format):
    def _record(self, text):
        time.sleep(600)  # the fault


class UnmakeableFormat(Format):
    def __init__(self, path, lenient=False):
        raise OverflowError("too many lines")  # the fault
