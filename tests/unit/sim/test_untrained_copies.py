"""A comparison uses unused copies, even of instances that have been simulated before."""

import threading
import weakref

import pytest

import cpsched
import cpsched_sim
from cpsched import registry
from cpsched_sim import untrained_copies
from cpsched_sim.cli.input_commands import workload_eurora


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "day.csv.gz"
    workload_eurora(path, days=0.2, seed=1, load=2.5)
    return cpsched_sim.load(path, max_jobs=300)


@pytest.mark.parametrize(
    ("dispatcher", "predictor"), [("lookahead", "walltime"), ("prb", "last-two"), ("easy", "quantile")]
)
def test_used_instance_is_compared_like_new_one(workload, dispatcher, predictor):
    used = registry.DISPATCHERS.build(dispatcher), registry.PREDICTORS.build(predictor)
    first = cpsched_sim.simulate(workload, *used)
    cpsched_sim.simulate(workload, *used)
    by_name = cpsched_sim.compare(workload, [dispatcher], [predictor]).rows[0]
    by_instance = cpsched_sim.compare(workload, [used[0]], [used[1]]).rows[0]
    assert by_instance.error == ""
    for name in ("bsld", "mean_wait_s", "rounds"):
        assert by_instance.summary[name] == by_name.summary[name] == first.summary()[name]


class Copyless(cpsched.Predictor):
    """Holds what cannot be copied."""

    def __init__(self):
        self.lock = threading.Lock()

    def predict(self, job):
        return job.walltime_s


def test_uncopyable_instance_is_simulated_but_not_compared(workload):
    predictor = Copyless()
    assert cpsched_sim.simulate(workload, "easy", predictor).never_started_count == 0
    with pytest.raises(cpsched.PluginLoadError, match=r"Copyless: cannot be copied \(TypeError.*pass its class"):
        cpsched_sim.compare(workload, ["easy"], [predictor])
    assert cpsched_sim.compare(workload, ["easy"], [Copyless]).rows[0].error == ""


class CountedCopies:
    """An instance that records its copies."""

    def __init__(self):
        self.copies = weakref.WeakSet()

    def __deepcopy__(self, memo):
        copy = type(self)()
        self.copies.add(copy)
        return copy


def test_copy_is_freed_with_its_instance():
    """Otherwise a later instance with the same id would be replaced by it."""
    predictor = CountedCopies()
    copies = predictor.copies
    untrained_copies.store_untrained_copy(predictor)
    assert len(copies) == 1
    del predictor
    assert len(copies) == 0
