"""What fitting learns of small traces, worked out by hand; the file that holds it; the overheads' walk."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from etplus.analysis.devices import Device, known_devices
from etplus.planning.costs.edge_latencies import iterations_of
from etplus.planning.costs.fitting import (
    EndToEndError,
    FittedModel,
    Part,
    _fits_columns,
    fit,
    fit_parts,
    measured_ns,
    measured_steps,
    prepare,
    read_model,
    self_time,
    write_model,
)
from etplus.planning.costs.task import MeasuredTask, Task
from etplus.timeline.graph_building import build_graph
from etplus.trace.errors import TraceFormatError, UsageError
from made_traces import Timeline
from test_edge_latencies import steps


def test_a_prepared_trace_has_host_times_gpu_medians_and_step_ratios() -> None:
    part = prepare(steps([100, 102, 98]).document(), None, (), False)
    assert part.took == 1000 * (100 + 102 + 98 + 14 * 2 + 4)
    assert [task.op for task in part.cpu] == ["work", "inner"] * 3
    assert part.cpu_ns.tolist() == [50_000, 50_000, 51_000, 51_000, 49_000, 49_000]
    assert (part.iterations, part.gpu, part.set_apart) == (3, [], ())
    mean = (114 + 116 + 102) / 3
    assert part.step_ratios == (round(114 / mean, 4), round(116 / mean, 4), round(102 / mean, 4))
    assert prepare(steps([100, 102, 98]).document(), "0-1", (), False).step_ratios == ()
    apart = prepare(steps([900, 102, 98, 100, 101]).document(), None, (), False)
    assert [outlier.iteration for outlier in apart.set_apart] == [0] and apart.iterations == 4
    part = prepare(steps([100] * 4, [30, 40, 80, 50]).document(), "1-3", (), True)
    assert [(event.task.kernel, event.ns, event.count) for event in part.gpu] == [("k", 50_000.0, 3)]


def test_self_and_step_times_cover_only_the_chosen_iterations() -> None:
    trace = steps([100, 102, 98]).document()
    graph, chosen = build_graph(trace), iterations_of(trace, "1", keep_outliers=True)
    calls, own = self_time(graph, trace, chosen.of_row)
    assert [trace.names[name] for name in trace.calls.name[calls].tolist()] == ["work", "inner"]
    assert own.tolist() == [51_000, 51_000]
    assert measured_steps(trace, chosen).tolist() == [116_000] and measured_ns(trace, chosen) == 116_000
    assert measured_ns(trace, iterations_of(trace, None, keep_outliers=True)) == 114_000 + 116_000 + 102_000
    bare = Timeline()
    bare.op("op", 5, 20)
    document = bare.document()
    alone = iterations_of(document, None, keep_outliers=True)
    assert measured_steps(document, alone).tolist() == [] and measured_ns(document, alone) == 20_000


def test_a_model_needs_traces_and_counts_the_chosen_iterations() -> None:
    assert fit([steps([100, 100, 98]).document()], iterations="0-1").iterations == 2
    with pytest.raises(UsageError, match="nothing to fit"):
        fit([])


def test_equal_events_of_traces_are_pooled() -> None:
    traces = [steps([100] * 3, [length] * 3).document() for length in (30, 50)]
    device = Device(name="mine", tflops={}, memory_gb_s=1)
    parts: list[Part] = [prepare(trace, None, (), False) for trace in traces]
    model = fit_parts(parts, [device], None)
    assert [(event.ns, event.count) for event in model.gpu] == [(40_000.0, 6)]
    assert model.devices == (device,) and model.steps is not None and model.kernels is None
    records = model.records()
    assert records["mine"] is device and len(records) == len(known_devices()) + 1
    mine = msgspec.structs.replace(known_devices()[0], memory_gb_s=1.0)
    assert fit_parts(parts, [mine], None).records()[mine.name] is mine


def test_held_out_traces_that_were_known_as_well() -> None:
    error = EndToEndError((0.1, 0.2, 0.3, 0.4), (0.0, 0.1, 0.11, 0.5))
    assert error.like(0.0) == (0.1, 0.2) and error.like(0.05) == (0.1, 0.2)
    assert error.like(0.055) == (0.1, 0.2, 0.3) and error.like(0.25) == (0.1, 0.2, 0.3, 0.4)
    for ratios, unknown in (((0.1,), ()), ((30.0,), (0.0,)), ((-30.0,), (0.0,)), ((float("nan"),), (0.0,))):
        with pytest.raises(ValueError, match="need one log ratio and one share"):
            EndToEndError(ratios, unknown)
    assert EndToEndError((-29.9,), (1.0,)).like(1.0) == (-29.9,)


def model_of(**changes: object) -> FittedModel:
    return msgspec.structs.replace(fit([steps([100] * 3, [30] * 3).document()]), **changes)


def test_costs_use_the_measured_times_and_fitted_kernels_of_the_model() -> None:
    model = model_of(cpu=(MeasuredTask(Task("x", "", "cpu_op"), 7.0, 1),))
    assert model.costs().predict(Task("x", "", "cpu_op")) == (7.0, "measured")
    assert model.kernels is not None and set(model.costs().fitted) == {"utilization"}
    assert model_of(kernels=None).costs().fitted == {}
    assert model.costs(beyond=True)._beyond and not model.costs()._beyond


def test_files_of_other_versions_and_numbers_are_refused(tmp_path: Path) -> None:
    model = model_of()
    write_model(model, str(tmp_path / "m.json.gz"))
    assert read_model(tmp_path / "m.json.gz") == model
    large = msgspec.structs.replace(model, makespans_ns=(2**62 - 1,))
    write_model(large, str(tmp_path / "l.json"))
    assert read_model(tmp_path / "l.json") == large
    write_model(msgspec.structs.replace(model, version=3), str(tmp_path / "n.json"))
    with pytest.raises(TraceFormatError, match="3, expected 2"):
        read_model(tmp_path / "n.json")
    write_model(msgspec.structs.replace(model, makespans_ns=(2**62,)), str(tmp_path / "o.json"))
    with pytest.raises(TraceFormatError, match="an integer has more than 62 bits"):
        read_model(tmp_path / "o.json")


def test_integers_from_two_to_the_62_do_not_fit_columns() -> None:
    for value, fits in (
        (2**62 - 1, True), (2**62, False), (-(2**62), False), ([1, [2**63]], False), ({"a": (1, {"b": 2**62})}, False),
        ({"a": [1, 2.5, "x", None]}, True), (1e300, True),
    ):  # fmt: skip
        assert _fits_columns(value) is fits, value


def test_what_was_measured_from_the_first_start_to_the_last_end() -> None:
    trace = Timeline()
    trace.op("a", 5, 10)
    trace.call("cudaFree", 0, 100)
    trace.launch("k", 16, 2, 20, 30)
    document = trace.document()
    chosen = iterations_of(document, None, keep_outliers=True)
    assert measured_ns(document, chosen) == 45_000, (
        "from the operator to the kernel's end; calls of the runtime are none"
    )
    assert measured_ns(document, replace(chosen, of_row=chosen.of_row * 0 - 1)) == 0
    assert measured_steps(document, chosen).tolist() == []
