"""Debian's Chromium, headless, through its own driver."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from tests.monitoring.stack import missing

PROGRAMS = ("chromium", "chromedriver")


@contextlib.contextmanager
def chromium(
    width: int = 1400, height: int = 1000, dark: bool = False, scripts: bool = True
) -> Iterator[webdriver.Chrome]:
    """A browser, closed at the end."""
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},{height}",
                 "--hide-scrollbars", "--force-prefers-reduced-motion"):  # fmt: skip
        options.add_argument(word)
    if dark:
        options.add_argument("--force-dark-mode")
    if not scripts:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        if dark:
            media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        yield driver
    finally:
        driver.quit()


def complaints(driver: webdriver.Chrome) -> list[str]:
    """Return the console's messages, except for expected missing answers."""
    return [entry["message"] for entry in driver.get_log("browser")]


def lacks() -> list[str]:
    """Return the missing programs."""
    return missing(*PROGRAMS)
