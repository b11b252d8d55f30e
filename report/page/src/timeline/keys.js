/* The keys of the timeline, and the dialog that lists them. */

import { el } from "../dom.js";

const KEYS = [
  ["w s a d", "zoom in and out, move left and right"],
  ["← →", "previous or next event in the row of the selected event; without a selection, the first event in view"],
  ["↑", "to the launch call, the operator, the caller"],
  ["↓", "to the called operator or launched kernel"],
  ["o", "kernel → its operator"],
  ["l", "kernel → its launch call"],
  ["k", "operator or launch call → its first kernel"],
  ["b", "forward ↔ backward operator"],
  ["g h", "to the event that the selected event waits for or reads from; to the event that waits for it or reads it"],
  ["n p", "next and previous element of the critical path"],
  ["c", "show or hide the critical path"],
  [". ,", "next and previous event among the search results, or of the row you came from"],
  ["/ Backspace", "to the search; back to the row or finding that led here"],
  ["z", "fill the view with the selected event"],
  ["m", "table of events that overlap the selected event"],
  ["[ ]", "set the start or end of a span to the start or end of the selected event"],
  ["Shift + drag", "select a span and list its events in a table"],
  ["Enter", "to the details; Esc goes back, and Esc again closes the details"],
  ["?", "show this list"],
];

export function keyHelp() {
  const dialog = el(
    "dialog",
    { class: "keys", "aria-label": "Keys of the timeline" },
    el("h3", {}, "Keys of the timeline"),
    el(
      "dl",
      {},
      KEYS.map(([keys, text]) => el("div", {}, el("dt", {}, el("kbd", {}, keys)), el("dd", {}, text))),
    ),
    el("form", { method: "dialog" }, el("button", {}, "Close")),
  );
  return dialog;
}
