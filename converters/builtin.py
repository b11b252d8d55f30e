"""The built-in formats.

Each function imports the module that writes its format, so that listing the formats imports none of these modules.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..schemas.text.gc_control import gc_disabled
from ..schemas.text.transaction import check_outputs
from ..trace.errors import UsageError
from ..trace.kinds import RUNTIME
from ..trace.trace import Trace
from .exporter import PICTURES, Conversion, Exporter, Inputs, NoOptions, with_gz
from .folder import InputPair
from .traces import Traces

if TYPE_CHECKING:
    from ..schemas.chakra.et_def_pb2 import GlobalMetadata, Node
    from ..schemas.graph_arrays import GraphArrays
    from .chakra import Written
    from .collectives import Agreement, RankComms, RankRecording

_CHAKRA_SUFFIXES = with_gz(".et")
_SILENT = "warning: no rank communicates, so the simulated time does not depend on the network"
_NOT_SHOWN = "edges left out because their source or target has no time"
_CHANGED_TIMES = "the durations above are as recorded; the exported durations come from a replay on the set's network"


@dataclass(frozen=True)
class ChakraOptions:
    """Options of "chakra".

    Attributes:
        memory_nodes: write memcpys and memsets as memory nodes (see `write_et`).
        degrade: convert communications that do not match between ranks to computations instead of raising an error.
        groups: the process-group file for Chakra inputs. By default, the file in the same folder is used.
        without_times: also accept Execution Traces that were not linked. Their nodes have no durations.
        as_prefix: name the files `<output>.<rank>.et`. By default, this happens only for several ranks.
    """

    memory_nodes: bool = False
    degrade: bool = False
    groups: str | None = None
    without_times: bool = False
    as_prefix: bool | None = None


@dataclass(frozen=True)
class AstraSimOptions:
    """Options of "astra-sim".

    Attributes:
        skew: start each rank at its measured time (see `JobTimes`). If False, all ranks start at time 0.
        renumber_ranks: number the input's ranks from 0.
        replicate: number of simulated ranks. All simulated ranks run the same single trace (see `replicated`).
        roofline: memory bandwidth of the device in GB/s, for a roofline simulation.
        network: network description, such as "bandwidth=25,latency=5us"; see `parse_network`.
        degrade, groups, as_prefix: have the same meaning as in `ChakraOptions`.
    """

    skew: bool = True
    renumber_ranks: bool = False
    replicate: int | None = None
    roofline: float | None = None
    network: str | None = None
    degrade: bool = False
    groups: str | None = None
    as_prefix: bool | None = None


@dataclass(frozen=True)
class GoalOptions:
    """Options of "goal". With the "direct" algorithm, each rank sends to all other ranks at once."""

    algorithm: Literal["ring", "direct"] = "ring"
    degrade: bool = False


@dataclass(frozen=True)
class EtPlusOptions:
    """Options of "etplus". If `schema` is set, nodes with an older schema are upgraded to it (see `upgraded`)."""

    schema: Literal["1.1.1"] | None = None


@dataclass(frozen=True)
class GraphOptions:
    """Options of the graph formats (see `write_graph`). `max_nodes` is a limit per rank."""

    subtree: str | None = None
    max_nodes: int | None = None


@dataclass(frozen=True)
class NpzOptions:
    """Options of "npz". `split` determines how to split a dataset. `config` can set "threads" and "batch"."""

    split: Literal["model", "graph"] = "model"
    config: Mapping[str, float] = field(default_factory=dict)
    as_prefix: bool | None = None


@dataclass(frozen=True)
class _Format:
    name: str
    suffixes: tuple[str, ...]
    inputs: Inputs
    writer: Callable[[Traces, str, Any], Conversion]
    options: type[Any] = NoOptions

    @property
    def summary(self) -> str:
        return _SUMMARIES[self.name]

    def write(self, traces: Traces, path: str, options: Any) -> Conversion:
        return self.writer(traces, path, options)


def _chakra(traces: Traces, path: str, options: ChakraOptions) -> Conversion:
    from .chakra import write_et
    from .chakra_copy import copy_set, files_to_copy
    from .collectives import agree, matched

    if options.without_times:
        traces = _without_times(traces)
    files = files_to_copy(traces)
    if files is not None:
        return copy_set(files, path, prefix=_is_prefix(len(files), options.as_prefix), groups=options.groups)
    surveyed, recorded = _survey(traces)
    prefix = _is_prefix(len(surveyed), options.as_prefix)
    found, notes = matched(surveyed, recorded, degrade=options.degrade)
    write = partial(write_et, memory_nodes=options.memory_nodes)
    done = _write_ranks(traces, path, prefix, agree(found), write, sources={rank: rank for rank in traces})
    return replace(done, notes=(*done.notes, *notes))


def _astra_sim(traces: Traces, path: str, options: AstraSimOptions) -> Conversion:
    from ..timeline.network_file import network_dict, parse_network
    from .astra_config import DEFAULT, write_astra_config
    from .astra_links import astra_links, described_beyond_a_formula, sized_exactly
    from .astra_sim import JobTimes, for_simulator, simulated_ranks, write_astra_sim
    from .chakra_copy import copy_for_astra_sim, files_to_copy
    from .collectives import agree, matched
    from .host_timeline import host_timeline, sized_by, with_slowed_work

    files = files_to_copy(traces)
    if files is not None:
        return copy_for_astra_sim(files, path, options)
    network = given = DEFAULT if options.network is None else parse_network(options.network)
    exact = described_beyond_a_formula(network)
    surveyed, recorded = _survey(traces)
    timeline = host_timeline(traces, recorded, network)
    if timeline is not None:
        network = timeline.network
        surveyed = [own.survey(rank, traces.unmatched(rank)) for rank, own in timeline.ranks.items()]
    found, changes = matched(surveyed, recorded, degrade=options.degrade)
    ranks, sources, renamed = simulated_ranks(found, renumber=options.renumber_ranks, replicate=options.replicate)
    prefix = _is_prefix(len(ranks), options.as_prefix)
    job = JobTimes(recorded)
    skew, notes = job.start_skew() if options.skew else ({}, ())
    transferred = job.transferred() if timeline is None else {}
    agreed, links = agree(ranks), astra_links(network, len(ranks))
    agreement = for_simulator(agreed)
    agreement = sized_exactly(agreement, agreed, network, links) if exact else sized_by(agreement, network)
    to_run = agreement.ranks
    if timeline is not None:
        skew = timeline.start_skew() if options.skew else skew
        to_run, slowed = with_slowed_work(agreement, timeline, sources, links if exact else None)
        changes = (*changes, *([_CHANGED_TIMES] if changes else []), *slowed, *timeline.notes)

    def write(trace: Trace, path: str, comms: RankComms) -> Written:
        source, own = sources[comms.rank], to_run[comms.rank]
        on_host = None if timeline is None else timeline.ranks[source]
        arrivals = transferred.get(source) if on_host is None else on_host.transferred
        return write_astra_sim(trace, path, own, skew.get(source, 0), arrivals, options.roofline, on_host)

    done = _write_ranks(traces, path, prefix, agreement, write, sources=sources, groups=prefix)
    if prefix:
        config, about = write_astra_config(path, network, links, groups=bool(agreement.groups))
        done = replace(done, files=(*done.files, *config), notes=(*done.notes, *about), network=network_dict(given))
    base_error = None if timeline is None else timeline.base.to_dict()
    return replace(done, notes=(*done.notes, *renamed, *notes, *changes), base_error=base_error)


def _goal(traces: Traces, path: str, options: GoalOptions) -> Conversion:
    from .collectives import matched
    from .goal import write_goal

    check_outputs([path])
    surveyed, recorded = _survey(traces)
    _, notes = matched(surveyed, recorded, degrade=options.degrade)
    ranks = dict(sorted(traces.items()))
    moved = ", ".join(f"{rank} as {k}" for k, rank in enumerate(ranks) if rank != k)
    notes = (*notes, *([f"ranks renumbered: {moved}"] if moved else []))
    if len(ranks) < 2:
        notes = (*notes, "only one rank was given, so its communications became computations of measured duration")
    operations, counts = write_goal(list(ranks.values()), path, options.algorithm)
    return Conversion((path,), operations, counts, notes)


def _chakra_json(traces: Traces, path: str, options: NoOptions, *, lines: bool) -> Conversion:
    from ..schemas.chakra.stream import write_json

    check_outputs([path])
    _, metadata, nodes, counts = _messages(traces)
    return Conversion((path,), write_json(path, metadata, nodes, lines=lines), counts)


def _etplus(traces: Traces, path: str, options: EtPlusOptions) -> Conversion:
    from ..schemas.chakra.chakra_reader import write_messages
    from ..schemas.chakra.node_records import upgraded
    from ..schemas.parquet.stored_folder import is_stored
    from .chakra import chakra_messages

    check_outputs([path])
    source = traces.source
    if options.schema is None and not isinstance(source, (Trace, InputPair)) and is_stored(source):
        (trace,) = traces.values()
        trace.write(path)  # A folder of columns also keeps the text of the ET+ file.
        return Conversion((path,), int((trace.nodes.kind != RUNTIME).sum()), Counter())
    if options.schema is None:
        file, metadata, nodes, counts = _messages(traces)
    else:
        (trace,) = traces.values()
        file, (metadata, nodes, counts) = trace.file, chakra_messages(trace)
        metadata, nodes = upgraded(metadata, nodes)
    return Conversion((path,), write_messages(file, metadata, nodes, path), counts)


def _chrome(traces: Traces, path: str, options: NoOptions) -> Conversion:
    from .chrome import write_chrome

    check_outputs([path])
    trace = write_chrome(dict(traces), path)
    return Conversion((path,), trace.slices, Counter({_NOT_SHOWN: trace.left_out} if trace.left_out else {}))


def _pftrace(traces: Traces, path: str, options: NoOptions) -> Conversion:
    from .pftrace import write_pftrace

    check_outputs([path])
    return write_pftrace(dict(traces), path)


def _graph(traces: Traces, path: str, options: GraphOptions, *, to: str) -> Conversion:
    from .graph import PICTURE_NODES, write_graph

    check_outputs([path])
    traces_by_rank = dict(traces)
    most = options.max_nodes
    if most is None and path.lower().endswith(PICTURES):
        most = max(PICTURE_NODES // len(traces_by_rank), 1)
    nodes, selected = write_graph(traces_by_rank, path, to, subtree=options.subtree, max_nodes=most)
    total, wanted = sum(map(len, traces_by_rank.values())), sum(selected)
    notes = (f"{nodes} of {total} nodes were selected",) if nodes < total else ()
    if most != options.max_nodes and nodes < wanted:
        notes = (
            f"the {nodes} nodes that start first are drawn, out of {wanted}; to draw all nodes, "
            f"pass --max-nodes {max(selected)} (Graphviz then takes a long time), or write .graphml or .dot",
        )
    return Conversion((path,), nodes, notes=notes)


def _npz(traces: Traces, path: str, options: NpzOptions) -> Conversion:
    from ..schemas.graph_arrays import write_graph_arrays
    from .npz import graph_arrays, write_dataset

    many = len(traces) > 1 if options.as_prefix is None else options.as_prefix
    if len(traces) > 1 and not many:
        raise UsageError(f"{len(traces)} graphs form a dataset; pass a folder name without .npz as the output")
    if not many:
        check_outputs([path])
    nodes: list[int] = []

    def graphs() -> Iterator[GraphArrays]:
        for trace in traces.values():
            graph = graph_arrays(trace, config=options.config)
            nodes.append(len(graph))
            yield graph

    if many:
        return Conversion(tuple(write_dataset(graphs(), Path(path), options.split)), sum(nodes))
    for graph in graphs():
        write_graph_arrays(graph, path)
    return Conversion((path,), sum(nodes))


def _parquet(traces: Traces, path: str, options: NoOptions) -> Conversion:
    from ..schemas.parquet.parquet_writer import write_parquet
    from ..schemas.parquet.stored_folder import stored_ranks

    rows, many = 0, len(traces) > 1
    others = {stored.rank for stored in stored_ranks(path)} - set(traces if many else ())
    if others:
        raise UsageError(f"{path}: has rank {min(others)}, which is not an input; choose another name or remove it")
    for rank, trace in traces.items():
        write_parquet(trace, path, rank=rank if many else None)
        rows += len(trace)
    return Conversion((path,), rows)


def _survey(traces: Traces) -> tuple[list[RankComms], dict[int, RankRecording]]:
    from .collectives import rank_recording, survey

    surveyed: list[RankComms] = []
    recorded: dict[int, RankRecording] = {}
    for rank, trace in traces.items():
        surveyed.append(survey(trace, rank, traces.unmatched(rank)))
        if len(traces) > 1:
            recorded[rank] = rank_recording(trace, traces.unmatched(rank))
    return surveyed, recorded


def _without_times(traces: Traces) -> Traces:
    from ..schemas.etplus.read_etplus import read_etplus

    files = traces.whole_files
    if files is None:
        raise UsageError("--without-times converts only complete Execution Traces; pass Execution Trace files")
    return Traces([read_etplus(file, without_times=True) for file in files], rank=traces.wanted)


def _is_prefix(ranks: int, as_prefix: bool | None) -> bool:
    prefix = ranks > 1 if as_prefix is None else as_prefix
    if ranks > 1 and not prefix:
        raise UsageError(f"each of the {ranks} ranks needs its own file; pass a prefix without .et (-o PREFIX)")
    return prefix


@gc_disabled()
def _write_ranks(
    traces: Traces,
    path: str,
    prefix: bool,
    agreement: Agreement,
    write: Callable[..., Written],
    *,
    sources: Mapping[int, int],
    groups: bool = False,
) -> Conversion:
    from .row_dependencies import Coupling, coupling_of

    paths = {rank: f"{path}.{rank}.et" if prefix else path for rank in sorted(sources)}
    check_outputs(paths.values())
    counts: Counter[str] = Counter()
    nodes, coupled = 0, Coupling()
    for rank, source in sources.items():
        trace = traces[source]
        written = write(trace, paths[rank], comms=agreement.ranks[rank])
        nodes += written.nodes
        counts += written.counts
        coupled += coupling_of(trace, agreement.ranks[rank].found)
    files = list(paths.values())
    if agreement.groups or groups:
        from ..schemas.chakra.comm_groups import prefix_of, write_groups

        files += write_groups(path if prefix else prefix_of(path), agreement.groups, agreement.names)
    communicates = any(rank.found for rank in agreement.ranks.values())
    silent = len(sources) > 1 and not communicates and not coupled.fixed_ns
    notes = (*agreement.notes, *coupled.notes(), *([_SILENT] if silent else []))
    return Conversion(tuple(files), nodes, counts, notes)


def _messages(traces: Traces) -> tuple[str, GlobalMetadata, Iterator[Node], Counter[str]]:
    from ..schemas.chakra.stream import read_chakra
    from .chakra import chakra_messages

    source = traces.source
    if not isinstance(source, Trace) and os.fspath(source).endswith(_CHAKRA_SUFFIXES):
        return os.fspath(source), *read_chakra(source), Counter()
    (trace,) = traces.values()
    return trace.file, *chakra_messages(trace)


_SUMMARIES = {
    "chakra": "Chakra protobuf (.et) that keeps everything in the ET+",
    "astra-sim": "Chakra protobuf that ASTRA-sim can run to completion, with a process group file",
    "goal": "GOAL text for LogGOPSim, ATLAHS and htsim, with all ranks, threads and streams",
    "json": "a Chakra trace as one JSON array",
    "jsonl": "a Chakra trace as JSON lines",
    "etplus": "ET+, from a Chakra trace or from the ET+ of another linker",
    "parquet": "a folder of Parquet files for DuckDB, polars, pandas and every command of etplus",
    "chrome": "Chrome trace for ui.perfetto.dev, one process per rank",
    "pftrace": "Perfetto trace with GPU render stages, flows and counters, one process per rank",
    "graphml": "graph for networkx, yEd, Cytoscape, Gephi",
    "dot": "Graphviz graph, drawn as a picture if OUT ends in .svg, .pdf or .png",
    "networkx-json": "graph for networkx.node_link_graph",
    "npz": "training arrays in the TpuGraphs format; for several files, a folder with a split",
}
# `--help` lists the formats in this order. If two formats share a suffix, the suffix selects the first one.
BUILT_IN: tuple[Exporter, ...] = (
    _Format("chakra", _CHAKRA_SUFFIXES, "ranks", _chakra, ChakraOptions),
    _Format("astra-sim", _CHAKRA_SUFFIXES, "ranks", _astra_sim, AstraSimOptions),
    _Format("goal", with_gz(".goal"), "ranks", _goal, GoalOptions),
    _Format("json", (), "one", partial(_chakra_json, lines=False)),
    _Format("jsonl", with_gz(".jsonl"), "one", partial(_chakra_json, lines=True)),
    _Format("etplus", with_gz(".etplus.json"), "one", _etplus, EtPlusOptions),
    _Format("parquet", (".parquet", ".etplus"), "ranks", _parquet),
    _Format("chrome", with_gz(".perfetto.json", ".chrome.json"), "ranks", _chrome),
    _Format("pftrace", with_gz(".pftrace"), "ranks", _pftrace),
    _Format("graphml", with_gz(".graphml"), "ranks", partial(_graph, to="graphml"), GraphOptions),
    _Format("dot", (*with_gz(".dot"), *PICTURES), "ranks", partial(_graph, to="dot"), GraphOptions),
    _Format("networkx-json", (), "ranks", partial(_graph, to="networkx-json"), GraphOptions),
    _Format("npz", (".npz",), "traces", _npz, NpzOptions),
)
