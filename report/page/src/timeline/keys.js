/* The keys of the timeline, and the dialog that lists them. */

import { el } from "../dom.js";

const KEYS = [
  ["w s a d", "zoom in and out, move left and right"],
  ["← →", "go to the previous or next event in the row of the selected event, or to the first event in view if none is selected"],
  ["↑", "go to the launch call, operator or caller"],
  ["↓", "go to the called operator or launched kernel"],
  ["o", "kernel → its operator"],
  ["l", "kernel → its launch call"],
  ["k", "operator or launch call → its first kernel"],
  ["b", "forward ↔ backward operator"],
  ["g h", "go to the event that the selected event waits for or reads from; go to an event that waits for it or reads from it"],
  ["n p", "go to the next or previous element of the critical path"],
  ["c", "show or hide the critical path"],
  [". ,", "go to the next or previous search result, or to the next or previous event of the row you came from"],
  ["/ Backspace", "go to the search; go back to the row or finding that led here"],
  ["z", "fill the view with the selected event"],
  ["m", "show a table of the events that overlap the selected event"],
  ["[ ]", "set the start or end of a span to the start or end of the selected event"],
  ["Shift + drag", "select a span and list its events in a table"],
  ["Enter", "go to the details; Esc goes back, and a second Esc closes the details"],
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
