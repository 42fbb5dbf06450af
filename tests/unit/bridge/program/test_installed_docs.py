"""Pages of the site are converted for users without a clone of the repository."""

from cpsched_bridge.program.deploy_files import adapt_page_for_installation

NAMES = {"install.md": "INSTALL.md", "operate.md": "OPERATE.md"}


def test_removes_notes_for_site_builders():
    page = 'Run:\n\n<!-- skip: next "needs a cluster" -->\n```bash\ntrue\n```\n'
    assert adapt_page_for_installation(page, NAMES) == "Run:\n\n```bash\ntrue\n```\n"


def test_removes_clone_sections_and_their_space():
    page = "One.\n\n<!-- clone -->\n## From a clone\n\nmake it\n<!-- end clone -->\n\n## Two\n"
    assert adapt_page_for_installation(page, NAMES) == "One.\n\n## Two\n"
    assert (
        adapt_page_for_installation("measured<!-- clone --> (`make it`)<!-- end clone -->:\n", NAMES) == "measured:\n"
    )


def test_links_lead_to_installed_page_or_become_text():
    page = "[a](install.md), [b](operate.md#alerts), [c](lookahead.md#x), [d](#here), [e](https://example.org/x.md)\n"
    expected = "[a](INSTALL.md), [b](OPERATE.md#alerts), c, [d](#here), [e](https://example.org/x.md)\n"
    assert adapt_page_for_installation(page, NAMES) == expected
