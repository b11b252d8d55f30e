/* GPU time by module, operator and kernel: a map to zoom into, and a table. */

import { chart, legend, tip, tooltip } from "../chart.js";
import { el, none } from "../dom.js";
import { card, kindsOf, leftOut, section } from "../layout.js";
import { short } from "../names.js";
import { shownTimeline } from "../state.js";
import { tableCard } from "../table.js";
import { fillOf, ink, Theme } from "../theme.js";
import { Details } from "../timeline/details.js";
import { regions } from "../timeline/facts.js";
import { callOf, shapesLabel, topOf } from "../timeline/places.js";
import { show } from "../units.js";

/** @type {Section} */
export function breakdownSection(report, rank) {
  const { tree, analysis } = rank;
  if (!tree.total_ns)
    return section("breakdown", "GPU time", null, card(null, null, none("The trace has no GPU events.")));
  const node = el("div"),
    kinds = report.gpu_kinds;
  chart(node, 460, () => ({
    tooltip: tooltip((item) => {
      const path = item.treePathInfo.slice(1).map((/** @type {Branch} */ one) => one.name),
        of = item.data.of;
      return of
        ? tip(
            short(of.name, 200),
            [
              path.length > 1 ? ["in", short(path.slice(0, -1).join(" › "), 140)] : null,
              of.kind === undefined ? null : [of.level, kinds[of.kind].name],
              ["time", show(of.total_ns, "ns")],
              ["share", show(of.total_ns / tree.total_ns, "share")],
              ["GPU events", show(of.count, "count")],
            ],
          )
        : null;
    }),
    series: [
      {
        type: "treemap",
        data: (tree.children ?? []).map((child) => treemapNode(child, kinds)),
        left: 0,
        right: 0,
        top: 30,
        bottom: 0,
        leafDepth: levelsToShow(tree),
        roam: false,
        nodeClick: "zoomToNode",
        drillDownIcon: "",
        animationDuration: Theme.paper ? 0 : 200,
        visibleMin: 20,
        breadcrumb: {
          top: 0,
          left: 0,
          height: 22,
          itemStyle: {
            color: Theme.value("sunk"),
            borderColor: Theme.value("line"),
            textStyle: { color: Theme.value("text") },
          },
          emphasis: { itemStyle: { color: Theme.value("accent-soft") } },
        },
        name: "All GPU time",
        label: {
          fontSize: 12,
          padding: [3, 5],
          lineHeight: 15,
          overflow: "truncate",
          formatter: (item) => `${short(item.name, 70)}\n${show(item.value, "ns")}`,
        },
        upperLabel: {
          show: true,
          height: 20,
          color: Theme.value("text"),
          fontSize: 12,
          padding: [0, 6],
          formatter: (item) => `${short(item.name, 80)}  ${show(item.value / tree.total_ns, "share")}`,
        },
        itemStyle: { gapWidth: 2, borderWidth: 0, borderColor: Theme.value("card") },
        levels: [
          { itemStyle: { gapWidth: 3 }, upperLabel: { show: false } },
          ...[1, 2, 3, 4, 5, 6, 7, 8].map(() => ({
            itemStyle: { gapWidth: 2, borderWidth: 2, borderColor: Theme.value("sunk") },
          })),
        ],
      },
    ],
  }));
  return section(
    "breakdown",
    "GPU time",
    "By module, operator and kernel. Click to zoom in; use the path above to go back.",
    card(null, null, legend(kindsOf(leaves(tree), kinds)), node),
    tableCard(
      "By operator and kernel",
      leftOut(rank, "breakdown"),
      "breakdown",
      analysis.breakdown,
      { sort: "total_ns", jump: breakdownPlace },
    ),
  );
}

/**
 * The longest event of a row's kernel: same modules and shapes of the topmost operator, or of its forward operator.
 * @type {PlaceOf}
 */
const breakdownPlace = ({ device, stream, kernel, op, repeated, modules, shapes }) => ({
  gpu: true,
  device,
  stream,
  name: kernel,
  op: repeated ? "" : op,
  fits:
    modules || shapes
      ? async (event, texts) => {
          const call = await callOf(event),
            top = call && (await topOf(call));
          if (!top || shapesLabel(texts.signatures[top.signature]) !== shapes) return false;
          const forward = Details.first(top.sources, "forward"),
            paths = [top, forward === null ? null : await shownTimeline().details.of(forward)];
          return paths.some((one) => one && regions(texts, one.path).join(" / ") === modules);
        }
      : null,
});

/** Number of levels to draw: as many as fit, but at least a few. @param {Branch} tree */
function levelsToShow(tree) {
  let level = tree.children ?? [],
    depth = 1;
  while (depth < 6 && level.length < 24) {
    level = level.flatMap((branch) => branch.children ?? [branch]);
    depth += 1;
  }
  return depth;
}

/** @param {Branch} tree @returns {Branch[]} */
export function leaves(tree) {
  return tree.children ? tree.children.flatMap(leaves) : [tree];
}

/**
 * A branch in the form of ECharts; a group has the color of the kind with the most time in the group.
 * @param {Branch} branch
 * @param {Kind[]} kinds
 * @returns {any}
 */
function treemapNode(branch, kinds) {
  const children = branch.children?.map((child) => treemapNode(child, kinds));
  const weights = new Map();
  for (const leaf of leaves(branch)) weights.set(leaf.kind, (weights.get(leaf.kind) ?? 0) + leaf.total_ns);
  const kind = [...weights].reduce((a, b) => (b[1] > a[1] ? b : a))[0];
  const which = kind === undefined ? "faint" : kinds[kind].color;
  return {
    name: branch.name,
    value: branch.total_ns,
    of: branch,
    children,
    itemStyle: { color: fillOf(which) },
    label: { color: ink(Theme.color(which)) },
  };
}
