"""Files are read, column by column, as when last looked at (tests/goldens.py).

They cover arrow_tables, captured_graphs, chakra_reader, comm_groups, comm_types, compile_files, event_account,
event_args, event_form, file_ranks, foreign_reader, gc_control, graph_annotations, graph_arrays, host_calls, input_args,
json_form, json_text, kineto_calls, kineto_decode, kineto_events, known_fields, list_schedule, memory_limit,
node_records, nsys_reader, old_layouts, parquet_reader, parquet_writer, read_et, read_etplus, read_kineto,
read_perfetto, record_store, row_reading, schemas.chakra.attributes, schemas.chakra.encode, schemas.chakra.stream,
schemas.communications, schemas.etplus.sections, schemas.execution_trace.arguments, schemas.execution_trace.tensors,
schemas.kineto.corrections, schemas.kineto.processes, schemas.nsys.database, schemas.nsys.ranges,
schemas.perfetto.packets, schemas.text.files, schemas.text.records, schemas.text.recover,
schemas.text.repair, schemas.text.sniff, schemas.text.storage, schemas.text.text, stored_folder, stored_tables,
wire_format, write_etplus.
"""

import pytest
from goldens import cases, differences


@pytest.mark.parametrize(("folder", "name"), cases("reading", "schemas"))
def test_reading_a_file_gives_the_lines_of_its_golden_file(folder: str, name: str) -> None:
    assert not differences(folder, name)[:3]
