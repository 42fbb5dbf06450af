"""The messages that clients can cause, however often they try."""

import logging
from asyncio import CancelledError

import pytest

from cpsched_bridge.telemetry.log_rate_limit import LogRateLimit, RateLimitedHandler, write_log_line


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


def test_the_first_is_told_at_once_and_the_others_are_counted_at_the_end_of_the_minute(log):
    for _ in range(1000):
        log.said.log("bad")
    assert log.told == [("bad", 1, "")]
    log.now_s += 59.9
    log.said.flush_minute()
    assert len(log.told) == 1
    log.now_s += 0.1
    log.said.flush_minute()
    assert log.told == [("bad", 1, ""), ("bad", 999, "")]


def test_while_it_goes_on_there_is_one_line_a_minute(log):
    for second in range(601):
        log.now_s = 100.0 + second
        log.said.log("bad")
    assert [times for _, times, _ in log.told] == [1, 59, *[60] * 9]


def test_after_a_quiet_minute_it_is_told_at_once_again(log):
    log.said.log("bad")
    for _ in range(2):
        log.now_s += 60
        log.said.flush_minute()
    log.said.log("bad")
    assert log.told == [("bad", 1, "")] * 2


def test_kinds_are_counted_apart_and_there_are_never_many(log):
    for n in range(10_000):
        log.said.log(f"kind {n}")
    assert len(log.told) == 33
    assert log.told[-1][0] == "other lines"


def test_lines_of_a_library_are_one_kind_whatever_they_name(log, logger):
    for n in range(100):
        logger.warning("client %s is rude", n)
    logger.error("Exception in a request\n", exc_info=ValueError("x"))
    logger.error("Exception in a request\n", exc_info=KeyError("y"))
    logger.info("nothing to report")
    assert [(said, times) for said, times, _ in log.told] == [
        ("client 0 is rude", 1),
        ("Exception in a request: ValueError: x", 1),
        ("Exception in a request: KeyError: 'y'", 1),
    ]
    assert "ValueError" in log.told[1][2]


def test_that_an_answer_was_given_up_at_the_end_is_not_told(log, logger):
    logger.error("Exception in a request\n", exc_info=CancelledError())
    assert log.told == []


def test_a_line_has_a_bounded_length(log):
    log.said.log("x" * 100_000)
    assert len(log.told[0][0]) == 300


def test_nothing_that_a_client_says_steers_a_terminal(capsys):
    write_log_line("\x1b[2J", 1, "Traceback\n\x1b[31m")
    printed = "".join(capsys.readouterr())
    assert "\\x1b[2J" in printed
    assert "\x1b[2J" not in printed
    assert "\x1b[31mT" not in printed.replace("\\x1b[31m", "")
