"""Messages between two bridges over TCP on the loopback interface: their codes, and what becomes of others."""

import socket
from contextlib import ExitStack

import pytest

from cpsched_bridge.cycle.leader_election import PeerMessage
from cpsched_bridge.errors import SettingsError
from cpsched_bridge.program import peer_connection
from cpsched_bridge.program.peer_connection import PeerConnection
from cpsched_bridge.settings import LeaseSettings
from tests.patience import until

ONE = PeerMessage("aaaa", "1", "one:/state", True)
TWO = PeerMessage("bbbb", "7", "two:/state", False)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def secret_file(folder, text="0123456789abcdef", mode=0o600):
    path = folder / f"secret-{text[:4]}"
    path.write_text(f"{text}\n")
    path.chmod(mode)
    return path


@pytest.fixture
def pair(tmp_path):
    """Two running connections; the second one's secret is chosen by the test."""
    with ExitStack() as stack:

        def connect(other_secret="0123456789abcdef"):
            ports, connections = [free_port(), free_port()], []
            for own, secret in ((0, "0123456789abcdef"), (1, other_secret)):
                settings = LeaseSettings(
                    listen=f"127.0.0.1:{ports[own]}",
                    peer=f"127.0.0.1:{ports[1 - own]}",
                    secret_file=secret_file(tmp_path, secret),
                )
                connection = PeerConnection(settings)
                stack.enter_context(connection.run(lambda now_s: None))
                connections.append(connection)
            connections[1].link.own = TWO
            return connections

        yield connect


def test_message_arrives_and_is_answered(pair):
    one, two = pair()
    assert one.send(ONE) == TWO
    assert two.link.peer == ONE
    assert two.link.heard_s > 0


def test_name_of_other_bridge_is_looked_up_until_it_has_answered(pair, monkeypatch):
    one, two = pair()
    one._peer = ("other.test", two.port)  # noqa: SLF001
    looked_up, get_addresses = [], socket.getaddrinfo

    def look_up(host, *arguments):
        looked_up.append(host)
        return get_addresses("127.0.0.1", *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert [one.send(ONE) for _ in range(3)] == [TWO] * 3
    assert looked_up == ["other.test", "127.0.0.1", "127.0.0.1"]


def test_message_with_other_secret_is_ignored(pair):
    one, two = pair(other_secret="another secret of 16 bytes")
    assert one.send(ONE) is None
    assert two.link.peer == PeerMessage()


def exchange(port, secret, kind, word, text):
    """Answer a server's word with a message that the test makes, and return the whole answer."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        there = connection.recv(16)
        code = peer_connection.make_code(secret, kind, there + word, text)
        connection.sendall(word + code + len(text).to_bytes(2, "big") + text)
        return there, connection.recv(4096)


def test_recorded_answer_and_malformed_messages_are_ignored(pair):
    _, two = pair()
    secret, word = b"0123456789abcdef", b"w" * 16
    assert exchange(two.port, secret, b"request", word, ONE.to_text())[1].endswith(TWO.to_text())
    two.link.peer = PeerMessage()
    for kind, text in ((b"answer", ONE.to_text()), (b"request", b"{"), (b"request", b'{"x": 1}'), (b"request", b"[]")):
        assert exchange(two.port, secret, kind, word, text)[1] == b""
    with socket.create_connection(("127.0.0.1", two.port), 5) as silent:
        assert len(silent.recv(16)) == 16
        assert silent.recv(1) == b"", "it is closed after a second"
    assert two.link.peer == PeerMessage()


def test_no_answer_from_a_closed_or_silent_port(pair):
    one, two = pair()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one._peer = silent.getsockname()  # noqa: SLF001
        assert one.send(ONE) is None
    assert one.send(ONE) is None
    assert two.link.peer == PeerMessage()


def test_link_is_kept_once_a_second_until_the_end(tmp_path):
    settings = LeaseSettings(listen=f"127.0.0.1:{free_port()}", peer="127.0.0.1:1", secret_file=secret_file(tmp_path))
    kept = []
    with PeerConnection(settings).run(kept.append):
        until(lambda: len(kept) >= 2)
    count = len(kept)
    assert kept[1] - kept[0] >= peer_connection.INTERVAL_S - 0.1
    assert len(kept) == count


@pytest.mark.parametrize(
    ("text", "mode", "rule"),
    [("short", 0o600, "at least 16 bytes"), ("0123456789abcdef", 0o640, "readable only by its owner")],
)
def test_weak_or_readable_secret_is_refused(tmp_path, text, mode, rule):
    with pytest.raises(SettingsError, match=rule):
        peer_connection.read_secret(secret_file(tmp_path, text, mode))


def test_port_in_use_is_reported(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SettingsError, match=f"lease.listen={listen}"):
            PeerConnection(LeaseSettings(listen=listen, peer="127.0.0.1:1", secret_file=secret_file(tmp_path)))


@pytest.mark.parametrize(
    "changes", [{"listen": ""}, {"peer": ""}, {"secret_file": None}, {"peer": "other"}, {"peer": "other:0"}]
)
def test_incomplete_settings_are_refused(changes):
    whole = {"listen": "127.0.0.1:1", "peer": "[::1]:2", "secret_file": "/x"}
    assert LeaseSettings(**whole).peer == "[::1]:2"
    with pytest.raises(ValueError, match="must be"):
        LeaseSettings(**whole | changes)
