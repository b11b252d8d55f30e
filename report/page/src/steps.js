/* The rank and the step that the page shows. */

import { el } from "./dom.js";
import { unpackJson } from "./packed.js";
import { $, page } from "./state.js";

/** The list of a rank's steps. It is hidden if there are no steps. @param {Rank} rank */
export function fillSteps(rank) {
  const steps = rank.steps ?? [];
  $("step-pick").hidden = !steps.length;
  $("step").replaceChildren(
    el("option", { value: "" }, "all"),
    ...steps.map((step, at) =>
      step.data
        ? el("option", { value: at }, step.name)
        : el("option", { value: at, disabled: true, title: "Not on this page; use etplus report --steps" }, step.name),
    ),
  );
}

/** Ends of a time axis: of the shown step, or else of the whole trace. @param {Rank} rank */
export const shownTime = ({ step, span_ns }) => (step ? { min: step.from, max: step.to } : { min: 0, max: span_ns });

/** Show a rank, and the chosen step if the rank has that step. @param {number} at */
export function chooseRank(at) {
  const { report } = page;
  const chosen = report.ranks[$("rank").value].steps?.[$("step").value]?.number;
  $("rank").value = at;
  fillSteps(report.ranks[at]);
  const step = report.ranks[at].steps?.findIndex((one) => one.number === chosen && one.data) ?? -1;
  $("step").value = step < 0 ? "" : step;
  return page.draw(at, step < 0 ? null : step);
}

/**
 * The report with the data of a step for each rank. A rank that lacks the step keeps the data of its whole trace.
 * @param {Report} report
 * @param {Step} step
 * @returns {Promise<Report>}
 */
export async function reportOfStep(report, { number }) {
  const ranks = report.ranks.map(async (rank) => {
    const own = rank.steps?.find((one) => one.number === number && one.data);
    return own ? { ...rank, ...(own.unpacked ??= await unpackJson(own.data ?? "")), step: own } : rank;
  });
  return { ...report, ranks: await Promise.all(ranks) };
}
