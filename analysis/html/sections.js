/* The sections of the page, in order; each gives an element, or null where the trace has nothing for it. */

const SECTIONS = [timelineSection];

function timelineSection(report, rank) {
  const timeline = new Timeline(rank.timeline);
  timeline.mount();
  return section("timeline", "Timeline", null, card(null, null, timeline.node));
}
