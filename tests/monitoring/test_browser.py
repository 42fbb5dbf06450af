"""The status page in a real browser: Debian's Chromium, headless."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched_bridge.errors import BackendTimeout
from cpsched_bridge.ports import Outage
from cpsched_bridge.settings import Settings
from cpsched_bridge.web.http_server import HttpServer
from cpsched_bridge.web.status_application import StatusApplication
from tests.bridges import a_bridge
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster
from tests.monitoring.browser import chromium, complaints, lacks

pytestmark = pytest.mark.skipif(bool(lacks()), reason=f"not installed: {lacks()} (make monitoring-packages)")
HOSTILE = '"><img src=x onerror="document.title=\'stolen\'"><script>document.title="stolen"</script>'


class Page:
    """A bridge over a fake cluster whose page can go away and come back."""

    def __init__(self, folder, cluster=None):
        self.cluster = cluster or FakeCluster(cluster=a_cluster(nodes=4, cores=4), now_s=1000)
        self.settings = Settings.model_validate({"mode": "control"})
        self.watch = StatusApplication(self.settings)
        self.bridge = a_bridge(folder, self.cluster, EasyDispatcher(), listeners=(self._tell,))
        self.endpoint = HttpServer(self.watch.build_app(), "127.0.0.1", 0)
        self.url = self.endpoint.url

    def _tell(self, report):
        self.watch(report)

    def cycle(self, to_s=None):
        self.cluster.now_s = to_s or self.cluster.now_s
        self.bridge.cycle()

    def stop(self):
        self.endpoint.close()

    def restart(self):
        """A new process, from a browser's view: it has none of the old one's memory."""
        self.watch = StatusApplication(self.settings)
        self.endpoint = HttpServer(self.watch.build_app(), "127.0.0.1", int(self.url.rsplit(":", 1)[1].rstrip("/")))


@pytest.fixture(scope="module")
def browser():
    with chromium() as driver:
        yield driver


@pytest.fixture
def driver(browser):
    """The browser with an empty page and an empty console."""
    browser.get("about:blank")
    browser.get_log("browser")
    return browser


@pytest.fixture
def page(tmp_path):
    made = Page(tmp_path)
    made.cluster.submit(a_job(1, units=4, per_unit=4, walltime_s=600, user="ada"))
    made.cycle()
    made.cluster.submit(a_job(2, units=4, per_unit=4, walltime_s=300, user="ben", submit_s=1000))
    made.cycle(1060)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """The address of a page with hundreds of nodes and jobs, whose names and lists are long."""
    cluster = FakeCluster(cluster=a_cluster(nodes=300, cores=64), now_s=100_000)
    made = Page(tmp_path_factory.mktemp("crowded"), cluster)
    words = {
        "user": "a-user-with-a-long-name",
        "name": "openfoam_cavity_run_without_a_single_space_2026",
        "queue": "main",
    }
    made.cluster.submit(*(a_job(n, per_unit=16, walltime_s=900 * n, submit_s=n, **words) for n in range(1, 700)))
    made.cycle()
    made.cluster.submit(*(a_job(2000 + n, units=1 + n % 9, per_unit=64, submit_s=n, **words) for n in range(400)))
    made.cycle(100_030)
    made.cycle(100_400)
    jobs = made.watch.page_state.get_view().jobs
    assert len(jobs.running) > 300
    assert len(jobs.waiting) > 300
    yield made.url
    made.stop()


def wait(driver, what, seconds=20):
    """Until `what` holds; the page may put new elements in place of those that it looks at."""
    return WebDriverWait(driver, seconds, ignored_exceptions=[StaleElementReferenceException]).until(lambda _: what())


def text_of(driver, id):
    return driver.find_element(By.ID, id).text


def bar(driver, job):
    """Left, right, top and bottom of a job's bar on the screen."""
    return driver.execute_script(
        "const t=[...document.querySelectorAll('.gantt rect title')].find(t=>t.textContent.startsWith(arguments[0]));"
        "const b=t.parentNode.getBoundingClientRect(); return [b.left,b.right,b.top,b.bottom]", f"job {job} ",
    )  # fmt: skip


def now_line(driver):
    return driver.execute_script("return document.querySelector('.g-now').getBoundingClientRect().left")


def test_page_loads_without_console_messages_and_shows_jobs(driver, page):
    driver.get(page.url)
    assert text_of(driver, "waiting") == "1"
    one, two = bar(driver, 1), bar(driver, 2)
    now = now_line(driver)
    assert one[0] < now < one[1], "job 1 runs"
    assert abs(two[0] - one[1]) < 1.5, "job 2 is planned for when job 1 ends"
    assert two[0] > now
    assert complaints(driver) == []


def test_page_updates_and_keeps_opened_parts(driver, page):
    driver.get(page.url)
    driver.execute_script("document.getElementById('decisions-details').open = true")
    driver.find_element(By.CSS_SELECTOR, "#queue-table a").send_keys("")
    page.cluster.submit(a_job(3, units=4, per_unit=4, user="eve", submit_s=1061))
    page.cycle(1070)
    wait(driver, lambda: text_of(driver, "waiting") == "2")
    assert driver.find_element(By.ID, "decisions-details").get_attribute("open") is not None
    focused = driver.switch_to.active_element.get_attribute("href") or ""
    assert focused.endswith("jobs/2")


def test_updates_can_be_paused(driver, page):
    driver.get(page.url)
    driver.find_element(By.ID, "pause").click()
    before = text_of(driver, "round")
    page.cycle(1080)
    import time

    time.sleep(3)
    assert text_of(driver, "round") == before
    driver.find_element(By.ID, "pause").click()
    wait(driver, lambda: text_of(driver, "round") != before)


def test_page_survives_restart_of_bridge(driver, page):
    driver.get(page.url)
    page.stop()
    wait(driver, lambda: "No response from the bridge" in text_of(driver, "lost"))
    assert text_of(driver, "waiting") == "1", "what was known stays"
    page.restart()
    page.cluster.submit(a_job(3, units=4, per_unit=4, submit_s=1061))
    page.cycle(1090)
    wait(driver, lambda: not driver.find_element(By.ID, "lost").is_displayed())
    wait(driver, lambda: text_of(driver, "waiting") == "2")
    driver.get_log("browser")  # that the address did not answer is in the console


def test_hostile_names_are_shown_as_text(driver, page):
    page.cluster.submit(a_job(5, units=4, per_unit=4, user=HOSTILE, name=HOSTILE, submit_s=1062, queue=HOSTILE))
    page.cycle(1100)
    for path in ("", "jobs", "jobs?state=all&user=" + quote(HOSTILE), "nodes", "wall", "jobs/5"):
        driver.get(page.url + path)
        assert path in ("nodes", "wall") or "onerror" in driver.find_element(By.TAG_NAME, "body").text
        assert not driver.find_elements(By.CSS_SELECTOR, "img, #live script")
        assert driver.title != "stolen"
    assert complaints(driver) == []


def test_click_on_job_shows_reason(driver, page):
    driver.get(page.url)
    driver.find_element(By.CSS_SELECTOR, "#queue-table a").click()
    assert driver.current_url.endswith("/jobs/2")
    assert "Planned start: in 9 min at the latest" in driver.find_element(By.CSS_SELECTOR, ".answer").text
    driver.find_element(By.ID, "back").click()
    assert driver.current_url.rstrip("?") == page.url


def test_form_filters_and_sorts_jobs(driver, page):
    page.cluster.submit(*(a_job(n, units=4, per_unit=4, user=f"u{n % 3}", submit_s=1061) for n in range(10, 16)))
    page.cycle(1070)
    driver.get(page.url + "jobs")
    Select(driver.find_element(By.NAME, "user")).select_by_visible_text("u1")
    Select(driver.find_element(By.NAME, "sort")).select_by_value("-job")
    driver.find_element(By.CSS_SELECTOR, ".filters button").click()
    shown = "return [...document.querySelectorAll('#queue-table td.job a')].map(each => each.textContent.trim())"
    assert driver.execute_script(shown) == ["13", "10"], "in one go: the page may renew its table meanwhile"
    driver.find_element(By.ID, "all-jobs").click()
    assert len(driver.find_elements(By.CSS_SELECTOR, "#queue-table tbody tr")) == 7
    assert complaints(driver) == []


@pytest.mark.parametrize("path", ["", "jobs?state=all", "nodes", "wall", "jobs/2"])
def test_pages_have_landmarks_captions_and_few_tab_stops(driver, crowded, path):
    driver.get(crowded + path)
    assert len(driver.find_elements(By.TAG_NAME, "main")) == 1
    assert len(driver.find_elements(By.TAG_NAME, "h1")) == 1
    assert driver.find_elements(By.CSS_SELECTOR, "header nav[aria-label]")
    assert not driver.execute_script("return [...document.querySelectorAll('table')].filter(t => !t.caption).length")
    unnamed = (
        "return [...document.querySelectorAll('input:not([type=hidden]), select')].filter(e => !e.labels.length).length"
    )
    assert not driver.execute_script(unnamed)
    stops = driver.execute_script(
        "return [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex]')]"
        ".filter(e => e.tabIndex >= 0 && !e.closest('tbody') && e.getClientRects().length).length"
    )
    assert stops <= 50, "besides the rows of the table"


@pytest.mark.parametrize("path", ["", "jobs?state=all", "nodes", "wall", "jobs/2"])
def test_phone_page_fits_width_and_summarizes_jobs(crowded, path):
    with chromium(500, 844) as driver:
        phone = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        driver.get(crowded + path)
        assert driver.execute_script("return document.documentElement.scrollWidth") == 390
        rows = "[...document.querySelectorAll('.jobs tbody tr, .nodes tbody tr')]"
        high = driver.execute_script(f"return {rows}.map(e => e.getBoundingClientRect().height)")
        assert max(high, default=0) <= 140
        right = "e.getBoundingClientRect().right"
        outside = f"return [...document.querySelectorAll('.jobs td')].filter(e => {right} > 391).length"
        assert driver.execute_script(outside) == 0, "the reason and the start are on the screen"


def test_pages_work_without_scripts_and_wall_refreshes(crowded):
    with chromium(scripts=False) as driver:
        for path, id in (("", "queue-table"), ("jobs?state=running", "queue-table"), ("nodes", "nodes-table")):
            driver.get(crowded + path)
            assert driver.find_elements(By.CSS_SELECTOR, f"#{id} tbody a")
            assert not driver.find_elements(By.CSS_SELECTOR, "#pause:not([hidden])")
        driver.get(crowded + "wall")
        assert driver.find_elements(By.CSS_SELECTOR, "noscript meta[http-equiv=refresh]")
        assert text_of(driver, "half-waited")


def test_wall_alerts_are_large(driver, page):
    page.cluster.fail("observe", BackendTimeout("no answer"))
    page.cycle(1070)
    driver.get(page.url + "wall")
    alert = driver.find_element(By.CSS_SELECTOR, ".wall-alert.urgent")
    assert "The last cycle failed" in alert.text
    assert float(alert.value_of_css_property("font-size").removesuffix("px")) >= 40


def test_keyboard_reaches_all_and_can_skip_navigation(driver, page):
    driver.get(page.url)
    body = driver.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    skip = driver.switch_to.active_element
    assert skip.text == "Skip to the content"
    skip.send_keys(Keys.ENTER)
    seen = set()
    for _ in range(20):
        ActionChains(driver).send_keys(Keys.TAB).perform()  # no element by name: the page may be renewed in between
        seen.add(driver.execute_script("const at = document.activeElement; return at.href || at.tagName"))
    assert f"{page.url}jobs/2" in seen
    assert driver.find_element(By.CSS_SELECTOR, ".gantt").get_attribute("aria-label").startswith("4 nodes")


def test_narrow_window_scrolls_chart_and_tables_only(driver, page):
    page.cluster.outages = (Outage("reserved", "update", (3,), 1600, 1900),)
    page.cycle(1062)
    before = driver.get_window_size()
    try:
        driver.set_window_size(500, 900)
        driver.get(page.url)
        wide, window = driver.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert wide <= window
        label = driver.find_element(By.CSS_SELECTOR, ".gantt .g-text")
        assert label.size["height"] >= 8, "words in the chart can be read"
    finally:
        driver.set_window_size(before["width"], before["height"])


def test_labels_at_chart_edges_are_complete(driver, page):
    driver.get(page.url)
    left, right, *ends = driver.execute_script(
        "const s=document.querySelector('.gantt').getBoundingClientRect();"
        "const t=[...document.querySelectorAll('.gantt .g-text')].map(e=>e.getBoundingClientRect());"
        "return [s.left, s.right, Math.min(...t.map(b=>b.left)), Math.max(...t.map(b=>b.right))]"
    )
    assert left <= ends[0]
    assert ends[1] <= right


def luminance(colour):
    channels = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_labels_contrast_with_bar_colours(driver, page):
    driver.get(page.url)
    for colour in range(8):
        fill = driver.execute_script(
            "const r=document.createElementNS('http://www.w3.org/2000/svg','rect');"
            "r.setAttribute('class', arguments[0]);"
            "document.querySelector('.gantt').append(r); return getComputedStyle(r).fill", f"g-bar g-{colour}",
        )  # fmt: skip
        assert 1.05 / (luminance(fill) + 0.05) >= 4.5, f"white on {fill}"


@pytest.mark.parametrize("dark", [False, True])
def test_text_contrasts_with_page_in_both_themes(page, dark):
    with chromium(dark=dark) as driver:
        driver.get(page.url)
        colour = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
        back = luminance(driver.execute_script(colour, "body", "backgroundColor"))
        assert (back < 0.1) is dark
        for selector in ("body", ".standing", "figcaption", "a[href^=jobs]", "thead th", ".soft"):
            text = luminance(driver.execute_script(colour, selector, "color"))
            contrast = (max(text, back) + 0.05) / (min(text, back) + 0.05)
            assert contrast >= 4.5, selector


@pytest.mark.parametrize("scripts", [True, False])
def test_start_form_works_by_keyboard_and_without_scripts(page, scripts):
    with chromium(390, 900, dark=True, scripts=scripts) as driver:
        driver.get(page.url + "when")
        driver.find_element(By.NAME, "time").send_keys("2:00:00", Keys.TAB)
        nodes = driver.switch_to.active_element
        assert nodes.get_attribute("name") == "nodes"
        nodes.clear()
        nodes.send_keys("3", Keys.ENTER)
        WebDriverWait(driver, 30).until(lambda driver: driver.find_elements(By.ID, "answer"))
        rows = [row.text for row in driver.find_elements(By.CSS_SELECTOR, "#answer tbody tr")]
        assert [row.partition(" in ")[0] for row in rows] == ["as given"]
        for field in driver.find_elements(By.CSS_SELECTOR, ".ask input, .ask button"):
            assert field.accessible_name
        assert driver.find_element(By.NAME, "time").get_attribute("value") == "2:00:00"
        wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert not scripts or driver.execute_script(wide) <= 0
        assert not complaints(driver)
