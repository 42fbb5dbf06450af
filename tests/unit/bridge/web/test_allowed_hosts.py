"""The permitted Host headers, in all their odd forms."""

import pytest

from cpsched_bridge.web.access_control import is_allowed_host

OURS = ["localhost", "LocalHost:9764", "127.0.0.1", "10.1.2.3:80", "[::1]", "[2001:DB8::7]:65535", "[::ffff:10.0.0.1]",
        "head1.example", "HEAD1.Example:443"]  # fmt: skip
NOT_OURS = [
    "", " ", ":", ":80", "@", "evil.example", "evil.example@127.0.0.1", "127.0.0.1@evil.example", "ada:x@localhost",
    "localhost.", "127.0.0.1.", "head1.example.", ".localhost", "localhost:", "localhost:http", "localhost:99999",
    "localhost:80:80", "localhost:+80", "localhost:８０", "localhost:80 ", " localhost", "localhost\t", "localhost/",
    "localhost/x", "localhost?x", "localhost#", "localhost\\evil.example", "localhost,evil.example", "localhost;x",
    "localhost\x00", "localhost\n", "localhost%00", "%6cocalhost", "http://localhost", "//localhost",
    "::1", "[::1", "::1]", "[]", "[localhost]", "[127.0.0.1]", "[::1]x", "[::1]:", "[::1%25eth0]", "[fe80::1%lo]",
    "[::1].evil.example", "[v1.a]", "127.1", "127.0.0.01", "0x7f.0.0.1", "2130706433", "127.0.0.1.nip.io", "1.2.3.4.5",
    "１２７.0.0.1", "locаlhost", "localhost.localdomain", "head1", "xhead1.example", "head1.example.evil.example",
    "*", "*.example", "-", "a..b",
]  # fmt: skip


@pytest.mark.parametrize("host", OURS)
def test_allows_addresses_localhost_and_listed_names(host):
    assert is_allowed_host(host, ["head1.example"])


@pytest.mark.parametrize("host", NOT_OURS)
def test_rejects_all_other_hosts(host):
    assert not is_allowed_host(host, ["head1.example"])


def test_ignores_case_of_listed_name():
    assert is_allowed_host("head1.example", ["Head1.EXAMPLE"])
