/* The data of the page, and the types that its modules share. Rows of tables have the keys that their columns specify. */

/** Apache ECharts, which page.html loads before the page's own script. */
declare const echarts: any;

type Row = Record<string, any>;

/** Makes a section of the page from the data, null if it has nothing to show. */
type Section = (report: Report, rank: Rank) => HTMLElement | null;

/** A color: index in the palette, or name in the style sheet. */
type Color = number | string;

/** A legend entry: a name and its color. */
interface Kind {
  name: string;
  color: Color;
}

interface Report {
  title: string;
  version: string;
  /** columns of the tables, by the first word of the table name */
  columns: Record<string, TableColumn[]>;
  warnings: string[];
  findings: Findings | null;
  gpu_kinds: Kind[];
  job: JobTimeline | null;
  many?: ManyRanks;
  /** only on a page that compares two traces or jobs; such a page has no ranks */
  difference?: Difference;
  ranks: Rank[];
}

interface Rank {
  label: string;
  file: string;
  rank: number | null;
  start_ns: number;
  span_ns: number;
  host_calls: number;
  runtime_calls: number;
  gpu_events: number;
  attributed_ns: number;
  analysis: Analysis;
  left_out: Record<string, number>;
  kernel_kinds: number[];
  tree: Branch;
  gaps: Row[];
  tables?: FurtherTable[];
  counters: Counter[];
  coverage: Row | null;
  flame: FlameColumns;
  /** packed until the rank is drawn */
  path_rows: Row[] | string | null;
  steps: Step[];
  timeline: TimelineData;
  /** step that the data of the rank is cut to, if any */
  step?: Step;
}

/** Tables and totals, as `etplus analyze --json` prints them. */
interface Analysis extends Record<AnalysisTable, Row[]> {
  devices: Record<string, Row>;
  kernel_labels: Record<string, string>;
  iterations: Row;
  host: Row;
  damage: string[];
  notes: string[];
  consecutive_kernel_delay_ns: number;
}

type AnalysisTable =
  | "breakdown" | "communication" | "copies" | "device_use" | "gemms" | "host_ops" | "idle_causes" | "iteration_list"
  | "kernels" | "launches" | "memory" | "memory_holders" | "memory_outliving" | "modules" | "operators" | "phases"
  | "queues" | "sequences" | "serving_phases" | "serving_steps" | "sources" | "streams";

/** Two traces or jobs, as `etplus diff --json` prints them. */
interface Difference extends Record<"ops" | "kernels" | "lines" | "paths" | "phases", Row[]> {
  iteration_list: { a: Row[]; b: Row[] };
  host_ops?: Row[];
  ranks?: Row[];
  left_out: Record<string, number>;
  losses: string[];
  gains: string[];
  damage: string[];
  only_a: number[];
  only_b: number[];
  [total: string]: any;
}

interface Step {
  number: number;
  name: string;
  from: number;
  to: number;
  /** packed tables of the step, null if the page does not have them */
  data: string | null;
  unpacked?: Row;
}

/** Device time by module, operator and kernel; leaves have a kind. */
interface Branch {
  name: string;
  level: string;
  total_ns: number;
  count: number;
  kind?: number;
  children?: Branch[];
}

interface FurtherTable {
  name: string;
  title: string;
  columns: TableColumn[];
  rows: any[][];
  left_out?: number;
}

interface Counter {
  kind: string;
  title: string;
  device: number;
  ts: number[];
  values: number[];
}

interface FlameColumns {
  names: string[];
  name: number[];
  parent: number[];
  kind: number[];
  count: number[];
  total: number[];
  left_out: number;
}

interface Findings {
  found: Finding[];
  first: number;
  looked_for: string[];
  none_reason: string;
  notes: string[];
  base_error: { makespan: number } | null;
  makespan_ns: number | null;
  together: Gain | null;
}

interface Gain {
  ns: number;
  low_ns: number;
  high_ns: number;
  replayed_ns?: number | null;
  unexplained?: number | null;
}

interface Finding {
  id: string;
  title: string;
  evidence: { text: string; value: number | null; unit: string; command: string }[];
  certainty: string;
  advice: string;
  check: string;
  command?: string;
  cost_ns: number | null;
  gain: Gain | null;
  where: Row;
}

/** All ranks of a job. The page shows some of them in detail. */
interface ManyRanks {
  numbers: number[];
  quantities: Quantity[];
  stragglers: number[];
  outliers: number[];
  tables: FurtherTable[];
}

interface Quantity {
  title: string;
  values: (number | null)[];
  outliers: number[];
}

/** The ranks of a job on one clock. */
interface JobTimeline {
  span: number;
  names: string[];
  ranks: JobRank[];
  collectives: Collective[];
  left_out: number;
  unmatched: number;
}

interface JobRank {
  begin: number;
  first: number;
  lanes: string[];
  ts: number[];
  dur: number[];
  lane: number[];
  kind: number[];
  name: number[];
  count: number[];
  offset: number | null;
  [more: string]: any;
}

interface Collective {
  kind: string;
  group: string;
  bytes: number;
  members: number[];
  start: number[];
  end: number[];
  /** wait per member, null if the ranks do not wait for each other */
  wait: number[] | null;
  last: number | null;
}

/* The timeline. */

interface TimelineData {
  span: number;
  resolution: number;
  hidden: number;
  names: string[];
  kinds: EventKind[];
  lanes: Lane[];
  lane: number[];
  depth: number[];
  ts: number[];
  dur: number[];
  busy: number[];
  count: number[];
  name: number[];
  kind: number[];
  op: number[];
  load: [number, number][];
  found: FoundName[];
  places: FoundPlace[];
  path: PathData | null;
  tiles: TileData | null;
  /** absent on a page without tiles */
  details: PackedDetails;
}

interface EventKind extends Kind {
  gpu: boolean;
}

interface Lane {
  name: string;
  note: string;
  gpu: boolean;
  rows: number;
  device?: number;
  stream?: number;
}

interface LaneRow {
  lane: number;
  depth: number;
  begin: number;
  end: number;
}

interface FoundName {
  name: number;
  kind: number;
  count: number;
  total: number;
  ts: number;
  dur: number;
}

interface FoundPlace {
  text: string;
  what: string;
  count: number;
  total: number;
  ts: number;
  dur: number;
}

/** Form of a packed column. */
interface Field {
  name: string;
  size: number;
  delta: boolean;
}

type Numbers = Int32Array | Float64Array | number[];
type Columns = Record<string, Numbers>;

interface TileData {
  fields: Field[];
  lane: number[];
  depth: number[];
  from: number[];
  to: number[];
  count: number[];
  data: string[];
}

/** An unpacked tile: columns of its events, its row, and the number of its first event. */
interface Tile {
  lane: number;
  depth: number;
  first: number;
  count: number;
  ts: Numbers;
  dur: Numbers;
  name: Numbers;
  kind: Numbers;
  op: Numbers;
  [column: string]: any;
}

interface PathData {
  kinds: string[];
  work: number[];
  main: number[];
  makespan_ns: number;
  shown_ns: number;
  tiles: TileData;
}

interface PackedDetails {
  texts: string;
  relations: string[];
  cpu: Field[];
  gpu: Field[];
  links: Field[];
  data: string[];
  sources: { data: string[]; count: number[] };
  targets: { data: string[]; count: number[] };
}

/** Texts that columns of details refer to by number. */
type Texts = Row;

interface Relation {
  kind: string;
  /** number of the related event, −1 if it is not on the page */
  other: number;
}

/** An event of the timeline with its columns. */
interface TimelineEvent {
  number: number;
  lane: number;
  depth: number;
  ts: number;
  dur: number;
  name: number;
  kind: number;
  op: number;
  [column: string]: any;
}

interface DetailedEvent extends TimelineEvent {
  gpu: boolean;
  sources: Relation[];
  targets: Relation[];
}

/** Shown item of the timeline: a call, or a block of merged calls. */
interface ShownItem {
  name: number;
  kind: EventKind;
  ts: number;
  dur: number;
  op: number;
  lane: Lane;
  count?: number;
  event?: number | null;
  busy?: number;
}

interface Arrow {
  kind: string;
  from: TimelineEvent;
  to: TimelineEvent;
}

/** A drawing over the timeline's calls. */
interface Overlay {
  from: number;
  to: number;
  draw: (api: any) => any;
}

interface Fact {
  key: string;
  label: string;
  value: any;
  text: string;
}

/**
 * A place in the timeline; the timeline shows the longest event there, or else the place `orElse`.
 */
interface Place {
  /** number of an event */
  event?: number;
  /** numbers of the events to step through */
  events?: number[];
  /** or a time span, ns */
  from?: number;
  to?: number;
  /** lane of the event; gpu: GPU events instead of CPU calls */
  gpu?: boolean;
  device?: number;
  stream?: number;
  /** full name, or name codes of the page */
  name?: string;
  codes?: Set<number>;
  /** the topmost operator that launched the event */
  op?: string;
  /** tests the columns of an event */
  has?: (columns: any, at: number, texts: Texts, name: number) => boolean;
  /** tests all details of an event; called for the longest events */
  fits?: ((event: DetailedEvent, texts: Texts) => Promise<boolean>) | null;
  /** show the longest gap between the events of the lane instead */
  gap?: boolean;
  orElse?: Place | null;
}

interface Found {
  number: number;
  ts: number;
  dur: number;
}

/* Tables. */

interface TableColumn {
  /** key of the values in the rows */
  key: string;
  title: string;
  /** as in UNITS of analysis/table.py, or "×" */
  unit: string;
  /** meaning of the column */
  hint?: string;
  /** the column is hidden unless it has several values */
  several?: boolean;
  /** long texts are cut at the front */
  front?: boolean;
  /** key of the column that defines the unit */
  like?: string;
  /** key of the column with the indentation of a text */
  indent?: string;
}

interface TableOptions {
  /** columns of a table that declares its own columns */
  columns?: TableColumn[];
  /** key of the column that sorts the rows at first, "" for the given order */
  sort?: string | null;
  filter?: boolean;
  /** place of a row in the timeline; by default the longest call or kernel named in the row */
  jump?: ((row: any) => Place | null | undefined) | null;
  /** replaces the action of a click on a row */
  click?: ((row: any) => void) | null;
}

interface TableFinder {
  has: (wanted: (row: Row) => boolean) => boolean;
  find: (wanted: (row: Row) => boolean) => boolean;
}

/** Returns the place of a table row in the timeline. */
type PlaceOf = (row: Row) => Place;

/** A click handler that leads to a place. */
type Go = (place: Place) => (event: MouseEvent) => void;

/** A stacked bar. */
interface Bar {
  name: string;
  whole: number;
  parts: { name: string; color: Color; ns: number }[];
}

/** A labeled point of a curve. */
interface Mark {
  ts: number;
  value: number;
  name: string;
}

/** A box of the flame graph. */
interface FlameNode {
  name: string;
  kind: number;
  count: number;
  total: number;
  own: number;
  level: number;
  parent: FlameNode | null;
  children: FlameNode[];
  box?: HTMLElement;
}

/** An element of the critical path. */
interface PathElement {
  number: number;
  ts: number;
  dur: number;
  kind: number;
  /** number of the event that draws the element, −1 for none */
  event: number;
  ns?: number;
}

/** Count and total time of events in a span. */
interface Total {
  name: number;
  kind?: number;
  gpu?: boolean;
  count: number;
  total: number;
}

type Timeline = import("./timeline/timeline.js").Timeline;

type Inspector = import("./timeline/inspector.js").Inspector;

type Content = Node | string | null | undefined | Content[];

interface Chart {
  node?: HTMLElement;
  instance: any;
  draw: () => void;
}

/** The options of ECharts that contain functions of the page. */
interface ChartOptions {
  series?: SeriesOptions[];
  [option: string]: any;
}

interface SeriesOptions {
  renderItem?: (params: any, api: any) => any;
  symbolSize?: number | ((value: any, item: any) => number);
  label?: LabelOptions;
  upperLabel?: LabelOptions;
  [option: string]: any;
}

interface LabelOptions {
  formatter?: (item: any) => string;
  [option: string]: any;
}

interface AxisOptions {
  /** unit of the numbers on the axis */
  unit?: string;
  axisLabel?: LabelOptions;
  [option: string]: any;
}
