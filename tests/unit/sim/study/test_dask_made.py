"""A cluster created by a function for a study: the function is called once, and the cluster is always closed."""

import sys
from types import SimpleNamespace

import pytest

from cpsched_sim.errors import InputError
from cpsched_sim.experiments import dask_executor


class Client:
    """A client of a Dask cluster that decides nothing."""

    refuses = fails = False

    def __init__(self, cluster=None, **words):
        if Client.refuses:
            raise TimeoutError("no scheduler answers")
        self.cluster, self.closed = cluster, False

    def submit(self, *words, **more):
        raise KeyboardInterrupt

    def cancel(self, futures, force):
        if Client.fails:
            raise OSError("connection lost")

    def close(self):
        self.closed = True


MADE = []


class Cluster:
    """What a function makes."""

    def __init__(self):
        self.closed = 0
        MADE.append(self)

    def close(self):
        self.closed += 1


@pytest.fixture(autouse=True)
def distributed(monkeypatch):
    """The library, without a cluster."""
    Client.refuses = Client.fails = False
    MADE.clear()
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Client))
    monkeypatch.setitem(sys.modules, "of_the_site", SimpleNamespace(make=Cluster, other=Client, nothing=lambda: None))


def file_of(tmp_path, body):
    path = tmp_path / "workers.py"
    path.write_text(f"from of_the_site import make as Cluster, other as Client\n\n{body}\n")
    return path


def begun(engine):
    engine(print, {0: {}}, lambda at, message: None, lambda: None)


def test_named_function_is_called_once_in_file_and_module(tmp_path):
    path = file_of(tmp_path, "def make():\n    raise KeyError\n\ndef workers():\n    return Cluster()")
    for on in (f"{path}:workers", "of_the_site:make"):
        MADE.clear()
        found = dask_executor.make_dask_executor(on, 0.0)
        assert [found.own] == MADE
        assert found.client.cluster is found.own


@pytest.mark.parametrize("fails", [False, True], ids=["in peace", "after the connection was lost"])
def test_cluster_is_closed_whatever_ends_study(fails):
    engine = dask_executor.make_dask_executor("of_the_site:make", 0.0)
    Client.fails = fails
    with pytest.raises((KeyboardInterrupt, OSError)):
        begun(engine)
    assert engine.own.closed == 1
    assert engine.client.closed is not fails


def test_client_of_user_has_no_own_cluster():
    engine = dask_executor.make_dask_executor("of_the_site:other", 0.0)
    assert (engine.own, engine.client.cluster) == (None, None)
    with pytest.raises(KeyboardInterrupt):
        begun(engine)
    assert engine.client.closed


def test_unreachable_cluster_is_closed():
    Client.refuses = True
    with pytest.raises(InputError, match="--on of_the_site:make: TimeoutError: no scheduler answers"):
        dask_executor.make_dask_executor("of_the_site:make", 0.0)
    assert [each.closed for each in MADE] == [1]


@pytest.mark.parametrize(
    ("on", "told"),
    [
        ("workers", "ValueError: must be tcp://HOST:PORT, a scheduler file, or module:function"),
        ("of_the_site:nothing", "ValueError: the function must return a Dask cluster or a Dask client"),
        ("of_the_site:absent", "AttributeError: "), ("absent:make", "ModuleNotFoundError: "),
        ("absent.py:make", "FileNotFoundError: "),
    ],
)  # fmt: skip
def test_rejects_function_that_returns_no_cluster(on, told):
    with pytest.raises(InputError, match=f"--on {on}: {told}"):
        dask_executor.make_dask_executor(on, 0.0)


@pytest.mark.parametrize("body", ["def make(:", "def make():\n    raise RuntimeError('sbatch: no such partition')"])
def test_broken_file_is_reported(tmp_path, body):
    path = file_of(tmp_path, body)
    with pytest.raises(InputError, match=r"workers.py:make: (SyntaxError|RuntimeError: sbatch: no such partition)"):
        dask_executor.make_dask_executor(f"{path}:make", 0.0)
