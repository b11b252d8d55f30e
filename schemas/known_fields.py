"""An allowlist of the fields that etplus keeps; all other arguments, header keys and environment values are dropped.

Programs write secrets into traces, and a list of known secrets is never complete. A known field keeps its value,
but objects lose unknown members: `{"rank": 0, "env": {"HF_TOKEN": "x"}}` in `distributedInfo` becomes `{"rank": 0}`.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.errors import UNREADABLE

_Raws = dict[str, msgspec.Raw]
# Maps each known member of an object to the known members of its value, or to None if its value is not an object.
Fields = Mapping[str, "Fields | None"]


def _known(names: str, **objects: Fields | None) -> dict[str, Fields | None]:
    """Return a table of known members. `names` lists the members that are not objects."""
    return {**dict.fromkeys(names.split()), **objects}


_DEVICE = _known(
    "id name totalGlobalMem computeMajor computeMinor maxThreadsPerBlock maxThreadsPerMultiprocessor regsPerBlock "
    "regsPerMultiprocessor warpSize sharedMemPerBlock sharedMemPerMultiprocessor numSms sharedMemPerBlockOptin "
    "maxSharedMemoryPerMultiProcessor"
)
_GROUP = _known("pg_name pg_desc backend_config pg_size ranks")
_DISTRIBUTED = _known("backend rank world_size pg_count nccl_version", pg_config=_GROUP)
KINETO_HEADER = _known(
    "schemaVersion baseTimeNanoseconds displayTimeUnit traceName trace_id host_name ranks record_shapes with_stack "
    "profile_memory with_flops with_modules cuda_runtime_version cuda_driver_version cupti_version "
    "hip_runtime_version hip_driver_version roctracer_version",
    deviceProperties=_DEVICE,
    distributedInfo=_DISTRIBUTED,
)
ET_HEADER = _known("schema pid time start_ts finish_ts")
# Kineto events have these arguments. etplus writes the last line, and PyTorch's profiler writes the others.
ARGUMENTS = frozenset(
    (
        "External id,Ev Idx,Record function id,Sequence number,Fwd thread id,finished,correlation,cbid,stream,device,"
        "context,queued,priority,grid,block,shared memory,registers per thread,blocks per SM,warps per SM,"
        "est. achieved occupancy %,bytes,memory bandwidth (GB/s),kind,copy kind,src kind,dst kind,memory kind,flags,"
        "channel,channel_type,cid,graph id,graph node id,value,ptr,src,dst,size,kernel,"
        "Input Dims,Input type,Input Strides,Concrete Inputs,Output Dims,Output type,Output Strides,"
        "Python id,Python parent id,Python module id,CallFrom,Module Hierarchy,Call stack,flops,scope,"
        "Total Reserved,Total Allocated,Bytes,Device Id,Device Type,Addr,Allocated,Reserved,"
        "cuda_sync_kind,wait_on_stream,wait_on_cuda_event_id,wait_on_cuda_event_record_corr_id,"
        "Collective name,dtype,In msg nelems,Out msg nelems,In split size,Out split size,Group size,"
        "Process Group Name,Process Group Description,Process Group Ranks,Global rank start,Global rank stride,"
        "Rank,Src Rank,Dst Rank,Seq,rank,Input Tensors start,Output Tensors start,Is asynchronized op,"
        "original_stream,stack,module_fqn,"
        "kernel_backend,kernel_file,kernel_hash,kernel_kwargs,kernel_name,num_warps,num_stages,"
        "name,labels,sort_index,Op count,id,dur_ns,"
        "kernel_flop,kernel_num_gb,achieved_flops_percent,achieved_bandwidth_percent"
    ).split(",")
)
_EVENT = frozenset("ph cat name pid tid ts dur id bp s args".split())
# PyTorch's observer writes these attributes into ET nodes.
ATTRIBUTES = frozenset(
    (
        "rf_id fw_parent seq_id scope tid fw_tid op_schema kernel_backend kernel_file tensor_range collective_name "
        "dtype in_msg_nelems out_msg_nelems in_split_size out_split_size global_rank_start global_rank_stride pg_name "
        "pg_desc pg_size"
    ).split()
)
_SIDE = _known("values shapes types strides")
_COMM = _known(
    "collective dtype in_nelems out_nelems bytes group_size pg_name pg_desc pg_ranks src_rank dst_rank seq in_split "
    "out_split pg_first_rank"
)
_COMM["inferred_messages"] = _COMM
_NODE = _known(
    "id name parent ctrl_deps rf_id fw_parent seq_id scope tid fw_tid op_schema input_shapes input_types input_strides "
    "output_shapes output_types output_strides ts dur inclusive_dur exclusive_dur kineto_event link inter_thread_dep "
    "sync_dep cat ph pid stream device correlation pg_name et_id reason",
    inputs=_SIDE,
    outputs=_SIDE,
    comm=_COMM,
    captured_by=_known("op link replay"),
    counterpart=_known("node same_module"),
)
_COUNTS: Fields = {}  # Counts by category or reason. Keys are kept if they look like words from etplus or Kineto.
_FOUND = _known("by says")
_CATEGORY = _known("total attached unverified", by_method=_COUNTS, unattached=_COUNTS)
_LINK = _known(
    "method considered warnings",
    et=_known("file schema nodes ops pid threads orphans"),
    kineto=_known(
        "file events cpu_ops cpu_ops_not_in_et",
        **dict.fromkeys(("by_category", "read", "not_used", "dropped"), _COUNTS),
    ),
    ops=_known("total linked certain unverified", unlinked=_COUNTS),
    windows=_known(
        "et_sequence kineto_sequence linked_sequence kineto_ns linked_ns iterations iteration_annotation "
        "linked_iterations notes"
    ),
    identity=_known("verdict rank world_size several_ranks", proves=_FOUND, refutes=_FOUND, unknown=_FOUND),
    gpu=_known(
        "time_ns attached_time_ns",
        categories=dict.fromkeys(("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"), _CATEGORY),
        repetition=_known(
            "events paired paired_time_ns same_module time_ns",
            trial=_known("events paired right"),
            unpaired=_COUNTS,
        ),
    ),
    dependencies=_known("inferred unresolved", edges=_COUNTS, contradicted=_COUNTS),
    facts=_known(
        "et_pid kineto_pids joined names_differ",
        threads=_known("matched of evidence equal_places sequence_offset unsure"),
    ),
)
# The `etplus` object in the root of an ET+ file has these members.
SUMMARY = _known(
    "version tool_version nodes_from damage inferred_edges",
    kineto=_known(
        "file_name base_time_ns schema_version clock_offset_ns",
        device_properties=_DEVICE,
        distributed_info=_DISTRIBUTED,
    ),
    unattached=_COUNTS,
    link=_LINK,
    compiled=_known("files graph_calls kernels annotated", refused=_COUNTS),
)
_SECTIONS = _known(
    "schema pid time start_ts finish_ts edges memory",
    etplus=SUMMARY,
    stacks=_known("names above_step name line id_step entry", evidence=_COUNTS),
    generated_kernels=_known(
        "id kernel",
        kernels=_known("name region backward handle nodes kernel_file kernel_hash kernel_kwargs kernel_backend"),
    ),
    captured_graphs=_known(
        "notes",
        graphs=_known("file index batch_size mode launches"),
        replays=_known("correlation graph candidates evidence reason events certain unverified"),
        ops=_known("name kind parent graph", inputs=_SIDE, outputs=_SIDE, comm=_COMM),
    ),
)
# These fields are the largest ones in a file, and they cannot contain free text.
_NUMERIC = frozenset(("edges", "memory", "ts", "dur", "id", "ctrl_deps", "sync_dep"))
_LISTS = ("runtime", "unattached")  # An ET+ file has lists of records under these keys, in addition to `nodes`.

_WORD = r"(?:[a-z(][a-z',;:_+()-]*|--strict|ET|GPU|CPU|CUDA|ROCm|Kineto|Trace)"
_COUNTED = re.compile(rf"{_WORD}(?: {_WORD}){{0,15}}|phase \w")
# These fields contain free text from a person or program.
_FREE = frozenset(
    (
        "traceName host_name file_name file files says warnings considered notes damage iteration_annotation "
        "linked_iterations pg_desc region nodes kernel_file kernel_kwargs names labels CallFrom"
    ).split()
) | {"Process Group Description", "Module Hierarchy", "Call stack", "stack", "module_fqn"}
# These keys contain values of arguments; in schema 1.0.1, `inputs` and `outputs` also contain values.
_VALUES = frozenset(("values", "inputs", "outputs"))
_ANNOTATIONS = frozenset(("user_annotation", "gpu_user_annotation", "python_function"))
_KNOWN_NAME = re.compile(
    r"ProfilerStep#\d+|(?:nccl|gloo|mpi|ucc|xccl):\w+|## process_group:init ##|\[[\w|]+\]|etplus\.run=[\w-]+ rank=\d+|"
    r"Torch-Compiled Region: [\d/]+|PyTorch Profiler \(\d+\)|(?:CPU|GPU) ?\d*|h_[0-9a-f]{12}|"
)
_NUMBERS = re.compile(r"[\s\d.,eE+\-\[\]<>]*|(?:True|False|None|<None>|nan|inf)")
_FRAME = re.compile(r"(?P<file>.*)\((?P<line>\d+)\): (?P<function>.*)|nn\.Module: (?P<module>.*?)(?P<number>_\d+)?")
_decode = msgspec.json.Decoder(_Raws).decode
_encode = msgspec.json.encode
_decode_attrs = msgspec.json.Decoder(list[_Raws]).decode


def known_head(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    head = _decode(before + after)
    kept = FieldFilter().members(head, {**ET_HEADER, "nodes": None})
    if _same(kept, head):
        return before, after
    members = [b'\n  "%b": %b,' % (key.encode(), bytes(kept[key])) for key in kept if key != "nodes"]
    return b"{" + b"".join(members) + b'\n  "nodes": [', b"]\n}"


def known_sections(header: _Raws, summary: dict[str, Any]) -> tuple[_Raws, bytes]:
    keep = FieldFilter()
    return keep.sections(header), bytes(keep.member(msgspec.Raw(_encode(summary)), SUMMARY))


def known_args(texts: Iterable[bytes]) -> list[bytes]:
    """Remove unknown arguments from JSON strings; strings with only known arguments stay unchanged."""
    keep = FieldFilter().args
    return [keep(text) for text in texts]


class FieldFilter:
    """Removes unknown fields from records and headers. If `names` is True, also hashes free text (`hashed_name`)."""

    def __init__(self, *, names: bool = False) -> None:
        self._names = names

    def members(self, header: _Raws, fields: Fields) -> _Raws:
        return {key: self.member(header[key], fields[key], key) for key in header if key in fields}

    def sections(self, header: _Raws) -> _Raws:
        found = self.members(header, _SECTIONS)
        for key in _LISTS:
            if key in header:
                records = msgspec.json.decode(header[key], type=list[msgspec.Raw])
                kept = list(map(self.node, given := list(map(bytes, records))))
                found[key] = header[key] if kept == given else msgspec.Raw(b"[%b]" % b",\n".join(kept))
        return {key: found[key] for key in header if key in found}

    def event(self, text: bytes) -> bytes:
        event = _decode(text)
        kept = {key: value for key, value in event.items() if key in _EVENT and not (key != "args" and _nested(value))}
        if "args" in kept:
            free = self._names and _text(event.get("ph")) == "M"
            kept["args"] = msgspec.Raw(self.args(bytes(kept["args"]), every_name=free))
        if self._names and "name" in kept and _is_annotation(None, _text(event.get("cat"))):
            kept["name"] = _changed(kept["name"], hashed_names)
        return text if _same(kept, event) else _encode(kept)

    def args(self, text: bytes, *, every_name: bool = False) -> bytes:
        """Remove unknown arguments of an event; return `{}` for text that is not an object."""
        try:
            given = _decode(text)
        except UNREADABLE:
            return b"{}" if text.strip() != b"null" else text
        kept = {key: value for key, value in given.items() if key in ARGUMENTS}
        if b"{" in text[1:]:
            kept = {key: value for key, value in kept.items() if not _nested(value)}
        if self._names:
            for key, value in kept.items():
                if key in _FREE or (key == "name" and every_name):
                    kept[key] = _changed(value, hashed_names)
                elif key == "Concrete Inputs":
                    kept[key] = _changed(value, _hashed_values)
        return text if _same(kept, given) else _encode(kept)

    def node(self, text: bytes) -> bytes:
        node = _decode(text)
        kept = self.members(node, _NODE)
        scope = _text(node.get("scope"))
        if "attrs" in node:
            kept["attrs"], scope = self._attrs(node["attrs"], scope)
        if "args" in node:
            kept["args"] = msgspec.Raw(self.args(bytes(node["args"])))
        if self._names and "name" in kept and _is_annotation(scope, _text(node.get("cat"))):
            kept["name"] = _changed(kept["name"], hashed_names)
        return text if _same(kept, node) else _encode({key: kept[key] for key in node if key in kept})

    def _attrs(self, raw: msgspec.Raw, scope: Any) -> tuple[msgspec.Raw, Any]:
        given, kept = _decode_attrs(raw), list[_Raws]()
        for attr in given:
            name = _text(attr.get("name"))
            if not isinstance(name, str) or name not in ATTRIBUTES or "value" not in attr:
                continue
            found: _Raws = {
                key: attr[key] for key in ("name", "type", "value") if key in attr and not _nested(attr[key])
            }
            if self._names and name in _FREE:
                found["value"] = _changed(found["value"], hashed_names)
            scope = _text(attr["value"]) if name == "scope" else scope
            kept.append(found)
        same = len(kept) == len(given) and all(map(_same, kept, given))
        return raw if same else msgspec.Raw(_encode(kept)), scope

    def member(self, raw: msgspec.Raw, fields: Fields | None, key: str = "") -> msgspec.Raw:
        """Remove unknown members from a value; return the same bytes if nothing changes."""
        if (not self._names or key in _NUMERIC) and b"{" not in bytes(raw):
            return raw
        value = json.loads(bytes(raw))
        kept = self._value(value, fields, key)
        return raw if kept == value else msgspec.Raw(json.dumps(kept).encode())

    def _value(self, value: Any, fields: Fields | None, key: str) -> Any:
        if isinstance(value, list):
            return [self._value(item, fields, key) for item in value if fields or not isinstance(item, dict)]
        if isinstance(value, dict):
            if fields is _COUNTS:
                counts = (item for item in value.items() if _COUNTED.fullmatch(item[0]) and _is_count(item[1]))
                return dict(counts)
            known = fields or {}
            return {name: self._value(item, known[name], name) for name, item in value.items() if name in known}
        if self._names and key in _FREE:
            return hashed_names(value)
        return _hashed_values(value) if self._names and key in _VALUES else value


def hashed_name(text: str) -> str:
    """Return a stable hash of a name, but keep the profiler's own names and the structure of Python frames."""
    if _KNOWN_NAME.fullmatch(text):
        return text
    frame = _FRAME.fullmatch(text)
    if frame is None:
        return "h_" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    if frame["line"] is None:
        return f"nn.Module: {hashed_name(frame['module'])}{frame['number'] or ''}"
    return f"{hashed_name(frame['file'])}({frame['line']}): {hashed_name(frame['function'])}"


def hashed_names(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(hashed_names, value))
    return hashed_name(value) if isinstance(value, str) else value


def _hashed_values(value: Any) -> Any:
    """Hash the string arguments of an operator, except strings that consist of numbers."""
    if isinstance(value, list):
        return list(map(_hashed_values, value))
    if not isinstance(value, str) or _NUMBERS.fullmatch(value):
        return value
    if value.startswith('[{"pg_name"'):  # A job's process groups stay, because they must match its ranks.
        with contextlib.suppress(ValueError):
            groups = [{key: group[key] for key in group if key in _GROUP} for group in json.loads(value)]
            return json.dumps([group | {"pg_desc": hashed_names(group.get("pg_desc"))} for group in groups])
    return hashed_name(value)


def _changed(raw: msgspec.Raw, change: Callable[[Any], Any]) -> msgspec.Raw:
    value = json.loads(bytes(raw))
    changed = change(value)
    return raw if changed == value else msgspec.Raw(json.dumps(changed).encode())


def _is_annotation(scope: Any, category: Any) -> bool:
    return category in _ANNOTATIONS if isinstance(category, str) else category is None and scope == ANNOTATION_SCOPE


def _text(raw: msgspec.Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)


def _same(kept: _Raws, given: _Raws) -> bool:
    return kept.keys() == given.keys() and all(bytes(kept[key]) == bytes(given[key]) for key in kept)


def _nested(raw: msgspec.Raw) -> bool:
    return b"{" in bytes(raw) and _has_object(json.loads(bytes(raw)))


def _has_object(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_has_object, value)))


def _is_count(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_count, value))
    return isinstance(value, (int, float))
