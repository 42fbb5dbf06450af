"""A page of the site becomes one for those who have no clone."""

from cpsched_bridge.program.deploy_files import for_an_installation

NAMES = {"install.md": "INSTALL.md", "operate.md": "OPERATE.md"}


def test_notes_for_those_who_build_the_site_are_left_out():
    page = 'Run:\n\n<!-- skip: next "needs a cluster" -->\n```bash\ntrue\n```\n'
    assert for_an_installation(page, NAMES) == "Run:\n\n```bash\ntrue\n```\n"


def test_what_concerns_a_clone_is_left_out_with_its_space():
    page = "One.\n\n<!-- clone -->\n## From a clone\n\nmake it\n<!-- end clone -->\n\n## Two\n"
    assert for_an_installation(page, NAMES) == "One.\n\n## Two\n"
    assert for_an_installation("measured<!-- clone --> (`make it`)<!-- end clone -->:\n", NAMES) == "measured:\n"


def test_links_lead_to_the_page_beside_or_become_words():
    page = "[a](install.md), [b](operate.md#alerts), [c](lookahead.md#x), [d](#here), [e](https://example.org/x.md)\n"
    expected = "[a](INSTALL.md), [b](OPERATE.md#alerts), c, [d](#here), [e](https://example.org/x.md)\n"
    assert for_an_installation(page, NAMES) == expected
