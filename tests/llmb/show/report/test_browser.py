# SPDX-License-Identifier: Apache-2.0
"""Tests of the page of HTML in a real browser: it fetches nothing, nothing overflows, all can be
read.
"""

import json
from pathlib import Path
from typing import Any, Protocol

import pytest

from llmb.show.report.page import to_html
from llmb.show.report.value import Report

WIDTHS = (320, 400, 800, 1400)


class Browser(Protocol):
    """The fixture of conftest.py."""

    events: list[dict[str, Any]]

    def open(self, path: Path) -> None: ...
    def value(self, script: str) -> Any: ...
    def width(self, pixels: int, *, scheme: str = ...) -> None: ...
    def screenshot(self) -> bytes: ...
    def pdf(self) -> bytes: ...


@pytest.fixture
def page(morning: Report, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(to_html(morning), "utf-8")
    return path


def test_nothing_is_fetched_and_nothing_complains(browser: Browser, page: Path) -> None:
    browser.width(1400)
    browser.open(page)
    asked = [
        e["params"]["request"]["url"]
        for e in browser.events
        if e["method"] == "Network.requestWillBeSent"
    ]
    assert asked == [page.as_uri()]
    found = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    assert [event for event in browser.events if event["method"] in found] == []
    assert browser.value("document.compatMode") == "CSS1Compat"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_is_as_wide_as_the_window(width: int, browser: Browser, page: Path) -> None:
    browser.width(width)
    browser.open(page)
    assert browser.value("document.documentElement.scrollWidth") <= width
    beyond = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, .skip, svg'))
        .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
    assert browser.value(beyond) == []


def test_a_wide_window_needs_no_scrolling(browser: Browser, page: Path) -> None:
    browser.width(1400)
    browser.open(page)
    script = """[...document.querySelectorAll('.scroll')]
        .map(e => [e.getAttribute('aria-label'), e.scrollWidth - e.clientWidth])"""
    assert [name for name, more in browser.value(script) if more > 0] == []


CONTRAST = """(() => {
  const light = (text) => {
    const parts = text.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const own = getComputedStyle(e).backgroundColor;
      if (!own.startsWith('rgba(0, 0, 0, 0')) return own;
    }
    return 'rgb(255, 255, 255)';
  };
  const low = {};
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.textContent.trim()).join('');
    if (!own || e.closest('script, title, desc')) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(e.namespaceURI.endsWith('svg') ? style.fill : style.color), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low[e.tagName + '.' + (e.className.baseVal ?? e.className)] = ratio;
  }
  return JSON.stringify(low);
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(scheme: str, browser: Browser, page: Path) -> None:
    browser.width(1400, scheme=scheme)
    browser.open(page)
    dark = browser.value("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    assert json.loads(browser.value(CONTRAST)) == {}


def test_a_table_is_sorted_by_a_click(browser: Browser, page: Path) -> None:
    browser.width(1400)
    browser.open(page)
    column = "[...document.querySelectorAll('#results tbody tr')].map(r => r.cells[2].textContent)"
    before = browser.value(column)
    click = (
        "[...document.querySelectorAll('#results th button')].find(b => b.textContent ==="
        " 'GPUs').click()"
    )
    browser.value(click)
    assert browser.value(column) == sorted(before, key=int)
    browser.value(click)
    assert browser.value(column) == sorted(before, key=int, reverse=True)
    sort = "document.querySelector('#results th[aria-sort]').getAttribute('aria-sort')"
    assert browser.value(sort) == "descending"
    ratios = (
        "[...document.querySelectorAll('#results tbody tr')].map(r => r.cells[4].dataset.value)"
    )
    browser.value(click.replace("GPUs", "Ratio"))
    found = browser.value(ratios)
    known = [text for text in found if text]
    assert known == sorted(known, key=float)
    assert found == known + [""] * (len(found) - len(known))


def test_it_is_read_without_the_script(browser: Browser, page: Path) -> None:
    source = page.read_text("utf-8")
    start, end = source.index("<script>"), source.index("</script>")
    page.write_text(source[:start] + source[end + 9 :], "utf-8")
    browser.width(1400)
    browser.open(page)
    assert browser.value("document.querySelectorAll('button').length") == 0
    hidden = (
        "[...document.querySelectorAll('td, dd, li, h2')].filter(e => e.getClientRects().length ==="
        " 0).length"
    )
    assert browser.value(hidden) == 0


def test_a_script_of_another_does_not_run(browser: Browser, page: Path) -> None:
    source = page.read_text("utf-8")
    strange = (
        "<script>document.title = 'taken'</script><img src=x onerror=\"document.title ="
        " 'taken'\"></main>"
    )
    page.write_text(source.replace("</main>", strange), "utf-8")
    browser.width(1400)
    browser.open(page)
    assert browser.value("document.title").startswith("Benchmarks on aurora")


def test_it_prints(browser: Browser, page: Path) -> None:
    browser.width(1400, scheme="dark")
    browser.open(page)
    printed = browser.pdf()
    assert printed.startswith(b"%PDF-")
    assert 4 < printed.count(b"/Type /Page\n") < 16
    assert browser.screenshot().startswith(b"\x89PNG")
