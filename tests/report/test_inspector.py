"""The timeline's details, arrows, critical path and selected span, as a browser shows them."""

from typing import Any

from browser import Page


def details(browser: Page, number: int) -> dict[str, Any]:
    """What the details of an event say, once they are there."""
    browser.wait_for(f"document.querySelector('.details').dataset.event === '{number}'")
    found: dict[str, Any] = browser.evaluate(
        "(async () => { const panel = document.querySelector('.details');"
        " const lists = [...panel.querySelectorAll('.relation')];"
        " while (lists.some((one) => !one.querySelector('li, p'))) await new Promise(requestAnimationFrame);"
        " const side = (name) => Object.fromEntries(lists.map((one) => [one.dataset.relation.split(' '), one])"
        "  .filter(([[, of]]) => of === name)"
        "  .map(([[kind], one]) =>"
        "    [kind, [...one.querySelectorAll('li button')].map((button) => Number(button.dataset.event))]));"
        " return {in: side('in'), out: side('out'), arrows: JSON.parse(panel.dataset.arrows),"
        "  name: panel.querySelector('h3').textContent,"
        "  values: Object.fromEntries([...panel.querySelectorAll('dd')]"
        "   .map((one) => [one.dataset.key, JSON.parse(one.dataset.value)]))}; })()"
    )
    return found
