"""What the library gives prints in a screen, whatever it holds; and what users would loop over can be."""

import etplus
from etplus.analysis import difference
from etplus.planning.costs.end_to_end import predict
from etplus.planning.costs.fitting import fit
from etplus.planning.measure.measured import Conditions, Measured
from etplus.timeline.iterations import find_iterations
from support import linked

GPU = "pairs/gpu_shaped_from_cpu"
LINES, COLUMNS = 24, 80


def test_public_objects_print_within_one_screen() -> None:
    trace = linked(GPU)
    analysis, graph = trace.analyze(), etplus.build_graph(trace)
    things = [
        trace, analysis, trace.ops, trace.ops[0], trace.kernels, trace.kernels[0], trace.steps[0], trace.gpu,
        trace.nodes, trace.report, trace.replay("kernel*0.5"), graph, trace.critical_path(), fit([trace]),
        difference(analysis, analysis), etplus.fit_constants(graph), find_iterations(trace),
        predict(trace, fit([trace]), force=True),
        Measured(1, ("x",) * 99, Conditions("cpu", 1, "2.13"), (), (), 0.5, 0.1),
    ]  # fmt: skip
    for thing in things:
        lines = repr(thing).split("\n")
        assert len(lines) <= LINES and max(map(len, lines)) <= COLUMNS, repr(thing)[:2000]
