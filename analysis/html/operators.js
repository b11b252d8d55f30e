/* Every operator and every module class: time on the host and on the device, alone and with what is inside. */

const SELF_COLUMNS = [
  { key: "count", title: "Calls", unit: "count" },
  { key: "self_ns", title: "Host self", unit: "ns", like: "total_ns", hint: "On the host, without the calls inside" },
  { key: "total_ns", title: "Host total", unit: "ns", hint: "On the host, with the calls inside" },
  {
    key: "device_self_ns",
    title: "GPU self",
    unit: "ns",
    like: "device_total_ns",
    hint: "GPU events launched with nothing of this table between",
  },
  { key: "device_total_ns", title: "GPU total", unit: "ns", hint: "With the GPU events launched inside" },
];

function operatorsSection(report, rank) {
  const { operators, modules } = rank.analysis;
  if (!operators.length && !modules.length) return null;
  const device = operators.some((row) => row.device_total_ns);
  const columns = SELF_COLUMNS.filter((column) => device || !column.key.startsWith("device"));
  return section(
    "operators",
    "Operators and modules",
    "Self is without what runs inside, total with it; an operator inside one of the same name counts once.",
    operators.length
      ? card(
          "By operator",
          leftOut(rank, "operators"),
          table(
            [
              { key: "op", title: "Operator", unit: "text", code: true },
              { key: "shapes", title: "Shapes", unit: "text" },
              ...columns,
              { key: "launches", title: "GPU events", unit: "count" },
            ],
            operators,
            { sort: device ? "device_self_ns" : "self_ns", name: "operators" },
          ),
        )
      : null,
    modules.length
      ? card(
          "By module class",
          leftOut(rank, "modules") ?? "modules of one class at one place in one row",
          table(
            [
              { key: "module", title: "Module or annotation", unit: "text", code: true, indent: "depth" },
              ...columns,
              { key: "path", title: "In", unit: "text" },
            ],
            modules,
            { sort: "", name: "modules" },
          ),
        )
      : null,
  );
}
