"""Test legal but odd names at a site: Slurm's output is parsed to the intended values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.slurm_text.gres import Gres, parse_gres
from cpsched.slurm_text.site_policy import parse_site_policy
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader
from tests.odd_slurm import TYPES, OddSlurm
from tests.slurm_replies import ALL, QOS_LINE, STATE, association
from tests.unit.bridge.adapters.slurm.transport.cli.standin import Job, Programs

RELEASES = {"22.05.8": (22, 5), "24.11.5": (24, 11), "26.05.5": (26, 5)}
TEXTS = ("a\n   State=DOWN", "x\n\nJobId=7 JobName=b", "é“", "NodeName=n1", "%s|$(x)", "   Colour=red", "wrap")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("seed", range(4))
def test_reads_all_odd_objects(seed: int, release: str) -> None:
    """No object of the clusters is omitted, and each record has the printed values."""
    odd = OddSlurm(seed, RELEASES[release])
    nodes = [odd.node() for _ in range(20)]
    of_nodes = ",".join(each.record["name"] for each in nodes)
    partitions = [odd.partition(odd.draw.choice([of_nodes, "n[01-03,7]-r[1-2],x"])) for _ in range(6)]
    reservations = [odd.reservation(of_nodes) for _ in range(6)]
    jobs = [
        Job(
            number,
            odd.draw.choice([text for text in TEXTS if "JobId=" not in text]),  # such a name forges a record
            odd.draw.choice(TEXTS),
            columns={"tres-per-node": f"gres/gpu:{kind}:2", "Partition": partitions[0].record["name"]},
            lines={"requested": f"cpu=1,mem=1000M,node=1,billing=1,gres/gpu=2,gres/gpu:{kind}=2"},
        )
        for number, kind in enumerate(odd.draw.sample(TYPES, 6), start=1000)
    ]
    said = {
        "scontrol --all show nodes": "".join(each.text for each in nodes),
        "scontrol --all show partitions": "".join(each.text for each in partitions),
        "scontrol --all show reservations": "".join(each.text for each in reservations),
    }
    seen = SlurmCliReader(programs=Programs(jobs, release, broken=said)).read()
    for records, made in ((seen.nodes, nodes), (seen.partitions, partitions), (seen.reservations, reservations)):
        for record, each in zip(records, made, strict=True):
            assert {name: getattr(record, name) for name in each.record} == each.record
    assert [job.gres_per_node for job in seen.jobs] == [
        {job.columns["tres-per-node"].removeprefix("gres/").rpartition(":")[0]: 2} for job in jobs
    ]
    observed = SlurmTranslator().observe(seen)
    assert observed.unusable == ()
    assert len(observed.pending) + len(observed.unmanaged) == len(jobs)


@pytest.mark.parametrize("seed", range(4))
def test_reads_all_associations_with_odd_names(seed: int) -> None:
    odd = OddSlurm(seed)
    accounts = [(odd.name(blanks=True), number) for number in range(100, 106)]
    rows = [association(name, id=number, parent="root(1)") for name, number in accounts]
    users = [(name, odd.name(), number + 100) for name, number in accounts]
    rows += [association(name, user, number, per_job="gres/gpu:1g.10gb+me=1,cpu=3") for name, user, number in users]
    qos = [odd.name() for _ in range(4)]
    state = "\n".join([STATE, *rows, *(QOS_LINE.format(name=name) for name in qos)])
    found = parse_site_policy(ALL | {"state": state})
    assert found.unreadable.list_objects() == ()
    assert all(found.policy.accounts.find(name, user) is not None for name, user, _ in users)
    assert set(qos) < found.usage.qos_minutes.keys()


SIGNS = st.characters(exclude_characters=",:=()\n\r\t ", exclude_categories=("Cs", "Cc"))
NAMES = st.text(SIGNS, min_size=1, max_size=12).filter(lambda name: name.lower() not in ("no_consume", "gres"))
GRES = st.builds(Gres, NAMES.filter(lambda name: "/" not in name), st.one_of(st.just(""), NAMES),
                 st.integers(0, 10**9), st.booleans())  # fmt: skip


@given(st.lists(GRES, max_size=5), st.sampled_from(["", "(S:0)", "(S:0-1,3)", "(IDX:N/A)"]), st.booleans())
def test_reads_gres_values_as_printed(made: list[Gres], end: str, of_job: bool) -> None:
    """The values have the form that Slurm prints for nodes or, with a prefix, for jobs."""
    items = [
        f"{'gres/' if of_job else ''}{each.key}{'' if each.is_consumable else ':no_consume'}"
        f"{'=' if of_job else ':'}{each.count}{'' if of_job else end}"
        for each in made
    ]
    assert list(parse_gres(",".join(items))) == made
