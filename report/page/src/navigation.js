/* The navigation: groups of sections; each group is a link, or a list that opens. */

import { el } from "./dom.js";
import { $, page } from "./state.js";

/** @type {Record<string, string[]>} */
const GROUPS = {
  GPU: ["breakdown", "kernels", "idle", "launches"],
  CPU: ["operators", "source", "flame"],
  Job: ["job", "axis", "communication"],
  More: ["memory", "serving", "tables"],
};

/** Links to the sections of the page; a group with several sections becomes a list. */
export function fillNavigation() {
  /** @typedef {{id: string, heading: string}} Linked */
  const link = (/** @type {Linked} */ { id, heading }) => el("a", { href: `#${id}`, "data-to": id, onclick: closeGroups }, heading),
    sections = [...document.querySelectorAll("section")].map((node) => ({
      id: node.id,
      heading: node.querySelector("h2")?.textContent ?? "",
    })),
    groupOf = (/** @type {Linked} */ { id }) => Object.keys(GROUPS).find((name) => GROUPS[name].includes(id)) ?? id,
    /** @type {Map<string, Linked[]>} */ groups = new Map();
  for (const one of sections) groups.set(groupOf(one), [...(groups.get(groupOf(one)) ?? []), one]);
  $("nav").replaceChildren(
    ...[...groups].map(([name, of]) => (of.length === 1 || page.report.difference ? of.map(link) : groupOfLinks(name, of.map(link)))).flat(),
  );
}

/** @param {string} name @param {HTMLElement[]} links */
function groupOfLinks(name, links) {
  const list = el("div", { class: "list" }, links),
    node = el("details", { class: "group" }, el("summary", {}, name), list);
  node.addEventListener("toggle", () => {
    if (!node.open) return;
    for (const other of $("nav").querySelectorAll("details[open]")) if (other !== node) other.open = false;
    const { left, bottom } = node.getBoundingClientRect();
    list.style.top = `${bottom}px`; // the position is fixed, because the navigation may be scrolled sideways
    list.style.left = `${Math.max(4, Math.min(left, innerWidth - list.offsetWidth - 8))}px`;
  });
  node.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape") return;
    node.open = false;
    node.firstChild.focus();
  });
  return node;
}

function closeGroups() {
  for (const node of $("nav").querySelectorAll("details[open]")) node.open = false;
}

/** Close the lists on a click elsewhere. */
export function watchNavigation() {
  document.addEventListener("click", (event) => {
    if (!(/** @type {Element} */ (event.target).closest("nav details"))) closeGroups();
  });
}

/** Mark the link to a section, and the group of the link. @param {string | undefined} id */
export function markNavigation(id) {
  for (const link of $("nav").querySelectorAll("a")) link.classList.toggle("here", link.dataset.to === id);
  for (const node of $("nav").querySelectorAll("details"))
    node.firstChild.classList.toggle("here", Boolean(node.querySelector("a.here")));
}
