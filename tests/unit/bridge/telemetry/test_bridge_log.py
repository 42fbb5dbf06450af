"""The rate limit on log messages that clients can cause."""

import logging
from asyncio import CancelledError

import pytest

from cpsched_bridge.telemetry.bridge_log import LogRateLimit, RateLimitedHandler, write_client_log_line


class Log:
    def __init__(self):
        self.now_s, self.told = 100.0, []
        self.said = LogRateLimit(lambda *told: self.told.append(told), lambda: self.now_s)


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def logger(log):
    found = logging.getLogger("tests.once-a-minute")
    RateLimitedHandler(log.said).capture_loggers("tests.once-a-minute")
    yield found
    found.handlers = []


def test_logs_first_at_once_and_counts_rest_per_minute(log):
    for _ in range(1000):
        log.said.log("bad")
    assert log.told == [("bad", 1, "")]
    log.now_s += 59.9
    log.said.flush_minute()
    assert len(log.told) == 1
    log.now_s += 0.1
    log.said.flush_minute()
    assert log.told == [("bad", 1, ""), ("bad", 999, "")]


def test_logs_one_line_a_minute_while_repeating(log):
    for second in range(601):
        log.now_s = 100.0 + second
        log.said.log("bad")
    assert [times for _, times, _ in log.told] == [1, 59, *[60] * 9]


def test_logs_at_once_after_quiet_minute(log):
    log.said.log("bad")
    for _ in range(2):
        log.now_s += 60
        log.said.flush_minute()
    log.said.log("bad")
    assert log.told == [("bad", 1, "")] * 2


def test_counts_kinds_separately_up_to_limit(log):
    for n in range(10_000):
        log.said.log(f"kind {n}")
    assert (len(log.told), log.told[-1][0]) == (33, "other lines")


def test_library_messages_of_one_kind_are_merged(log, logger):
    for n in range(100):
        logger.warning("client %s is rude", n)
    logger.error("Exception in a request\n", exc_info=ValueError("x"))
    logger.error("Exception in a request\n", exc_info=KeyError("y"))
    logger.error("Exception in a request\n", exc_info=CancelledError())
    logger.info("nothing to report")
    assert [(said, times) for said, times, _ in log.told] == [
        ("client 0 is rude", 1),
        ("Exception in a request: ValueError: x", 1),
        ("Exception in a request: KeyError: 'y'", 1),
    ]
    assert "ValueError" in log.told[1][2]


def test_truncates_long_line(log):
    log.said.log("x" * 100_000)
    assert len(log.told[0][0]) == 300


def test_escapes_client_text_for_terminal(capsys):
    write_client_log_line("\x1b[2J", 1, "Traceback\n\x1b[31m")
    printed = "".join(capsys.readouterr())
    assert "\\x1b[2J" in printed
    assert "\x1b[2J" not in printed
    assert "\x1b[31mT" not in printed.replace("\\x1b[31m", "")
