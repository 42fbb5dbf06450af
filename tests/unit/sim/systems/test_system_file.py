import re
from pathlib import Path

import pytest

from cpsched.errors import InvalidValue, UnknownName
from cpsched.model import PowerCap, Request
from cpsched_sim.errors import InputError, InvalidSystem
from cpsched_sim.systems.system_file import System, bundled_system_names, load_system, parse_system
from cpsched_sim.traces.trace_record import ProcessorCountRequest, UnitsRequest

TWO_TYPES = """
name: small
resources: [cores, memory_mib]
node_types:
  a: { count: 2, each: { cores: 4, memory_mib: 1000 } }
  b: { count: 1, each: { cores: 8, memory_mib: 9000 } }
partitions: { "3": [b] }
units: { rule: cores }
"""


def a_system(text=TWO_TYPES, header=None, **changes):
    for old, new in changes.items():
        text = text.replace({"units": "rule: cores"}[old], new)
    return System(parse_system(Path("x.yaml"), text), header)


def test_loads_bundled_systems():
    assert bundled_system_names() == ["eurora", "kit-forhlr2", "pool"]
    eurora, kit = System(load_system("eurora")).cluster, System(load_system("kit-forhlr2")).cluster
    assert (eurora.size, eurora.capacity.sum(axis=0).tolist()) == (64, [1024, 64 * 16384, 64, 64])
    assert (eurora.node_names[0], eurora.node_names[63]) == ("node01", "node64")
    assert (kit.size, int(kit.capacity[:, 0].sum())) == (1173, 24048)


def test_node_types_have_weights():
    text = TWO_TYPES.replace(
        "count: 1, each: { cores: 8, memory_mib: 9000 }", "count: 1, each: { cores: 8 }, weight: 9"
    )
    assert a_system(text).cluster.weights.tolist() == [1, 1, 9]
    assert a_system().cluster.weights is None


def test_pool_takes_size_from_header():
    pool = System(load_system("pool"), {"MaxProcs": "100"})
    assert pool.cluster.capacity.tolist() == [[100]]
    assert pool.request(ProcessorCountRequest(7)) == Request(7, (1,))
    with pytest.raises(InputError, match="no MaxProcs"):
        System(load_system("pool"), {})


@pytest.mark.parametrize(
    ("cores", "units", "each"),
    [(1, 1, 1), (19, 1, 19), (20, 1, 20), (600, 30, 20), (48, 12, 4), (50, 5, 10), (361, 361, 1), (512, 128, 4)],
)
def test_kit_maps_cores_to_units_by_gcd(cores, units, each):
    assert System(load_system("kit-forhlr2")).request(ProcessorCountRequest(cores)) == Request(units, (each, 0, 0))


def test_partitions_become_node_sets():
    system, names = a_system(), ("all", "a", "b", "3")
    assert system.cluster.node_set_names == names
    sets = [system.request(ProcessorCountRequest(2, partition=name)).node_set for name in (*names[1:], "unheard of")]
    assert sets == [1, 2, 3, 0]


def test_partition_may_have_name_of_node_type():
    """Another partition that names the type still means the type's nodes."""
    system = a_system(TWO_TYPES.replace('{ "3": [b] }', "{ a: [a, b], later: [a] }"))
    sizes = dict(zip(system.cluster.node_set_names, system.cluster.node_sets.sum(axis=1).tolist(), strict=True))
    assert sizes["later"] < sizes["a"] == system.cluster.size


ASKED = ProcessorCountRequest(2, requested_mib=100, used_mib=30)


@pytest.mark.parametrize(
    ("units", "ask", "request_"),
    [
        ("rule: nodes, cores_per_node: 4", ProcessorCountRequest(5), Request(2, (4, 0), exclusive=True)),
        ("rule: cores, distinct: true", ProcessorCountRequest(3), Request(3, (1, 0), distinct=True)),
        # the trace's memory counts if the system says so
        ("rule: cores", ASKED, Request(2, (1, 0))),
        ("rule: cores, memory: requested", ASKED, Request(2, (1, 100))),
        ("rule: gcd, cores_per_node: 4, memory: used", ASKED, Request(1, (2, 60))),
        ("rule: cores", UnitsRequest(2, (("cores", 4), ("memory_mib", 500)), distinct=True),
         Request(2, (4, 500), distinct=True)),
    ],
)  # fmt: skip
def test_rule_gives_units(units, ask, request_):
    assert a_system(units=units).request(ask) == request_


def test_interns_requests():
    system = a_system()
    assert system.request(ProcessorCountRequest(3)) is system.request(ProcessorCountRequest(3, used_mib=8))


@pytest.mark.parametrize(
    ("units", "ask", "rule"),
    [
        ("rule: cores, distinct: true", ProcessorCountRequest(4), "must be at most 3"),
        ("rule: cores", UnitsRequest(1, (("gpus", 1),)), "gpus=1: small has cores, memory_mib"),
        ("rule: cores", ProcessorCountRequest(17), "units=17: must be at most 16"),
        ("rule: cores", ProcessorCountRequest(9, partition="3"), "must be at most 8"),
    ],
)
def test_rejects_infeasible_request(units, ask, rule):
    with pytest.raises(InvalidValue, match=rule):
        a_system(units=units).request(ask)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count: 2", "count: 0", "x.yaml:5: node_types.a.count: 0: must be above 0"),
        ("rule: cores", "rule: magic", "x.yaml:8: units.rule: magic:"),
        ("rule: cores", "rule: gcd", "x.yaml:8: units: a mapping: cores_per_node is required by"),
        ("[b]", "[c]", "x.yaml:1: file: a mapping: partitions.3 contains names that are not in node_types: c"),
        ("cores: 8", "gpus: 8", "node_types.b.each contains names that are not in resources: gpus"),
        ("name: small", "nome: small", "x.yaml:1: name: nothing: must be given"),
        ("[cores, memory_mib]", "[cores", "x.yaml:4: yaml:"),
        (
            "count: 2",
            "count: 1000000000",
            "x.yaml:5: node_types.a.count: 1000000000: must be",
        ),
        ("count: 2", "count: 250000", "node_types have 250,001 nodes, but at most 250,000 are allowed"),
        (
            "count: 2",
            "count: !!int x",
            "x.yaml:5: yaml: tag:yaml.org,2002:int: must be removed: tags are not supported",
        ),
        ("count: 2", "count: " + "9" * 30, "x.yaml:5: number: 999999999999999999999999999999: must be within 64 bits"),
        ("count: 2", "count: 1, count: 2", "x.yaml:5: count: given twice: must occur only once"),
        (
            "cores: 4,",
            "cores: 1099511627777,",
            "x.yaml:5: node_types.a.each.cores: 1099511627777: must be",
        ),
        ("[cores, memory_mib]", "[cores, memory_mib, cores]", "resources must be different"),
        ("[cores, memory_mib]", "[]", "x.yaml:3: resources: a list: Value should have at least 1 item"),
        ("[b]", "[]", "x.yaml:7: partitions.3: a list: Value should have at least 1 item"),
        ("name: small", "name: a\x07b", "x.yaml:2: yaml: '\\x07': must not contain control characters"),
        ("name: small", "name: " + "[" * 2000, "x.yaml:2: yaml: nesting: must not be nested deeper than 30"),
    ],
)
def test_invalid_file_names_line_field_value_and_rule(old, new, message):
    with pytest.raises(InvalidSystem, match=re.escape(message)):
        parse_system(Path("x.yaml"), TWO_TYPES.replace(old, new))


@pytest.mark.parametrize("text", ["", "# nothing", "- a", "just text"])
def test_rejects_file_without_system(text):
    with pytest.raises(InvalidSystem, match=r"x.yaml:1: file: "):
        parse_system(Path("x.yaml"), text)


def test_rejects_folder(tmp_path):
    with pytest.raises(InputError, match="must be a file, but is a directory"):
        load_system(str(tmp_path))


def test_reads_large_system():
    cluster = a_system(TWO_TYPES.replace("count: 2", "count: 20000")).cluster
    assert (cluster.size, cluster.node_names[0], cluster.node_names[-1]) == (20_001, "a00001", "b1")


def test_unknown_system_lists_known_ones(tmp_path):
    with pytest.raises(UnknownName, match="eurora, kit-forhlr2, pool"):
        load_system("marconi")
    with pytest.raises(InputError, match=r"gone\.yaml: No such file"):
        load_system(str(tmp_path / "gone.yaml"))


POWER = TWO_TYPES + "power: { cap_w: 100, watts: { cores: 8 } }\n"


def test_system_may_have_power_cap():
    assert a_system(POWER).cluster.power == PowerCap(100, (("cores", 8),))
    assert a_system(TWO_TYPES).cluster.power is None
    assert a_system().file.power is None


@pytest.mark.parametrize(
    ("power", "rule"),
    [
        ("{ cap_w: 0, watts: { cores: 8 } }", "power.cap_w: 0"),
        ("{ cap_w: 5 }", "power.watts"),
        ("{ cap_w: 5, watts: {} }", "power.watts"),
        ("{ cap_w: 5, watts: { gpus: 8 } }", "power.watts contains names that are not in resources: gpus"),
    ],
)
def test_rejects_invalid_power_cap(power, rule):
    with pytest.raises(InvalidSystem, match=re.escape(rule)):
        parse_system(Path("x.yaml"), TWO_TYPES + f"power: {power}\n")
