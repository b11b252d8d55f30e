"""Files are read, column by column, as when last looked at (tests/goldens.py).

They cover schemas.chakra.attributes, schemas.chakra.chakra_reader, schemas.chakra.comm_groups, schemas.chakra.encode,
schemas.chakra.foreign_reader, schemas.chakra.json_form, schemas.chakra.list_schedule, schemas.chakra.node_records,
schemas.chakra.row_reading, schemas.chakra.stream, schemas.comm_types, schemas.communications,
schemas.etplus.captured_graphs, schemas.etplus.read_etplus, schemas.etplus.record_store, schemas.etplus.sections,
schemas.etplus.write_etplus, schemas.execution_trace.arguments, schemas.execution_trace.read_et,
schemas.execution_trace.tensors, schemas.graph_arrays, schemas.inductor.compile_files,
schemas.inductor.graph_annotations, schemas.kineto.corrections, schemas.kineto.event_account, schemas.kineto.event_args,
schemas.kineto.event_form, schemas.kineto.host_calls, schemas.kineto.input_args, schemas.kineto.kineto_calls,
schemas.kineto.kineto_decode, schemas.kineto.kineto_events, schemas.kineto.old_layouts, schemas.kineto.processes,
schemas.kineto.read_kineto, schemas.known_fields, schemas.nsys.database, schemas.nsys.nsys_reader, schemas.nsys.ranges,
schemas.parquet.arrow_tables, schemas.parquet.parquet_reader, schemas.parquet.parquet_writer,
schemas.parquet.stored_folder, schemas.parquet.stored_tables, schemas.perfetto.packets, schemas.perfetto.read_perfetto,
schemas.redaction, schemas.text.file_ranks, schemas.text.files, schemas.text.gc_control, schemas.text.json_text,
schemas.text.memory_limit, schemas.text.records, schemas.text.recover, schemas.text.repair, schemas.text.storage,
schemas.text.text, schemas.wire_format.
"""

import pytest
from goldens import cases, differences


@pytest.mark.parametrize(("folder", "name"), cases("reading"))
def test_a_file_is_read_as_it_was(folder: str, name: str) -> None:
    assert not differences(folder, name)[:3]
