"""Generate the page that lists all error messages in the code, grouped by area. Each area describes a common cause and
a remedy."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
ERRORS = ("UsageError", "TraceFormatError", "LinkError", "ConvertError", "ExecutionError", "EtplusError")
_NOT_PACKAGE = {".venv", "build", "tests", "benchmarks", "docs", "examples", "fixtures", "site"}


class Area(NamedTuple):
    """Messages with a common cause. The messages come from the code in `paths`, which are relative to the root of the
    repository."""

    title: str
    paths: tuple[str, ...]
    cause: str
    remedy: str


AREAS = (
    Area("Opening files", ("schemas/text/", "schemas/mapped", "jobs/patterns"),
         "The file is missing, empty, damaged, too large for the memory limit, or in an unsupported format.",
         "Check the path and its permissions. Copy or record a damaged file again; without `--strict`, etplus reads "
         "the part of a truncated file that can be recovered. Raise `ETPLUS_MEMORY_LIMIT` for files that you trust."),
    Area("Writing files", ("schemas/text/transaction.py", "schemas/parquet/parquet_writer.py", "cli/outputs.py",
                           "analysis/csv"),
         "The output would overwrite an input, its name has an unknown extension, or its folder is not writable.",
         "Choose another name or folder. A failed run does not leave partial files."),
    Area("Execution Traces", ("schemas/execution_trace/",),
         "The file is not an Execution Trace written by PyTorch, or its schema is newer than this release of etplus.",
         "Pass the file that `torch.profiler.ExecutionTraceObserver` wrote, or record with `etplus record`."),
    Area("Kineto traces", ("schemas/kineto/", "schemas/inductor/"),
         "The file is not a trace of the PyTorch profiler, or the profiler was not active. For compiled code: a file "
         "next to the trace was not written by Inductor.",
         "Record again, with the profiler active during the steps that you want."),
    Area("ET+ files", ("schemas/etplus/", "schemas/graph_arrays.py", "schemas/opcodes"),
         "The file was edited, truncated or written by a newer version of etplus.",
         "Link the traces again, or update etplus."),
    Area("Parquet stores", ("schemas/parquet/", "analysis/sql.py", "jobs/store"),
         "The folder is incomplete, its files were edited, or the query is not a SELECT.",
         "Write the folder again with `etplus link FOLDER` or `etplus convert`, or change the query."),
    Area("Chakra traces", ("schemas/chakra/", "converters/preflight", "cli/check.py"),
         "The file is not a Chakra trace, is truncated, or cannot be read as one rank of a job.",
         "Write the file again with `etplus convert`, and check it with `etplus check`."),
    Area("Nsight Systems and Perfetto", ("schemas/nsys/", "schemas/perfetto/"),
         "The export lacks tables, or the package that reads Perfetto traces is not installed.",
         "Export again with `nsys export --type sqlite`; install `etplus[perfetto]` for Perfetto traces."),
    Area("Linking", ("linker/", "cli/link.py", "trace/build.py", "schemas/pairs"),
         "The two files come from different runs or ranks, or etplus cannot tell the Execution Trace from the Kineto "
         "trace.",
         "Pass one Execution Trace and its Kineto trace; for several ranks use `etplus link FOLDER`. See "
         "[Linking](reference/linking.md#identity)."),
    Area("Jobs", ("jobs/", "converters/folder.py", "converters/traces.py"),
         "The files are not the ranks of one job, two files have the same rank, or no scheduler answers.",
         "List the pairs with `etplus link FOLDER --dry-run`; select ranks with `--ranks`."),
    Area("Choosing a part of a trace", ("trace/selection.py", "trace/steps.py",
                                         "trace/shown", "trace/access"),
         "The selected step, window, module or phase is not in the trace.",
         "List the steps with `etplus analyze`; steps are numbered from 0."),
    Area("Recording", ("recording/", "cli/record.py"),
         "No program was given, or the recorder cannot start.",
         "See [If nothing is recorded](reference/record.md#if-nothing-is-recorded)."),
    Area("Replay and networks", ("timeline/", "cli/replay.py"),
         "A change (`--what-if`) or a network (`--network`) has a syntax error, or the trace has no work that can be "
         "replayed.",
         "See the [grammar of changes](reference/replay.md#changes)."),
    Area("Prediction", ("planning/costs/", "planning/learned/", "cli/predict", "analysis/devices", "analysis/device"),
         "There is too little data to fit a model, the model was written by another version, or the device is unknown.",
         "Fit the model on more traces of the same device; describe a device with `--device-spec`. See "
         "[Cost models](reference/predict.md)."),
    Area("Other sizes and layouts", ("planning/reshape/", "planning/reshard/", "cli/reshard.py"),
         "The trace does not show how its program would run at that size or in that layout, and etplus does not guess.",
         "State the recorded size (`--set batch=32:128`), or choose a layout that subdivides the recorded layout. "
         "See [Other layouts](reference/reshard.md)."),
    Area("Measuring and reproducing", ("planning/measure/", "cli/measure.py"),
         "An operator cannot be called again, because its arguments were not recorded or it has side effects.",
         "Record the Execution Trace with inputs, or choose another call. See [Measuring](reference/measure.md)."),
    Area("Agents", ("analysis/questions/", "cli/mcp.py"),
         "An option of a tool has a value that does not occur in the trace.",
         "Use one of the values in the message. See [A server for agents](reference/agents.md)."),
    Area("Converting", ("converters/", "cli/convert.py"),
         "The target format cannot represent this trace, or the format does not have the given option.",
         "See [Converters](reference/converters.md)."),
    Area("Plugins", ("trace/plugins.py", "analysis/findings/", "analysis/summary.py"),
         "Another package registered a plugin that does not follow the protocol.",
         "Update or remove that package. See [Extending](extending.md)."),
    Area("Options", ("cli/", "report/", "analysis/", "trace/", "schemas/", "__init__.py"),
         "An option has an invalid value, or two options contradict each other.",
         "Use a value that the message describes; `etplus COMMAND --help` shows an example."),
)  # fmt: skip


class Message(NamedTuple):
    path: str
    problem: str
    remedy: str


def messages_page() -> str:
    """Return the page. The page has a cause, a remedy and all messages for each area."""
    parts = [
        "# All messages\n",
        "This page lists all error messages in the etplus sources; `…` stands for a file, a name or a number. "
        "A command prints one line and exits with status 2; the library raises `EtplusError`. "
        "For common cases, start with [Troubleshooting](troubleshooting.md).\n",
    ]
    by_area: dict[str, list[Message]] = {area.title: [] for area in AREAS}
    for message in messages():
        by_area[area_of(message.path).title].append(message)
    for area in AREAS:
        if found := by_area[area.title]:
            parts.append(f"## {area.title}\n\n**Cause.** {area.cause}\n\n**Remedy.** {area.remedy}\n")
            parts.append("| message | what to do |\n|---|---|")
            rows = dict.fromkeys((one.problem, one.remedy) for one in found)
            parts += [f"| {_cell(problem)} | {_text(remedy) or 'see above'} |" for problem, remedy in sorted(rows)]
            parts.append("")
    return "\n".join(parts)


def area_of(path: str) -> Area:
    """Return the area of a source file. If several areas match, the longest path wins.

    Raises:
        LookupError: no area contains the file. Add its path to `AREAS`.
    """
    fits = [(len(prefix), area) for area in AREAS for prefix in area.paths if path.startswith(prefix)]
    if not fits:
        raise LookupError(f"{path} raises errors, but no area of docs/site_messages.py covers it")
    return max(fits, key=lambda found: found[0])[1]


@cache
def messages() -> tuple[Message, ...]:
    """Return the messages of all errors that the package raises itself."""
    return tuple(message for path in _sources() for message in _raised(path))


def _sources() -> Iterator[Path]:
    for path in sorted(ROOT.rglob("*.py")):
        if path.relative_to(ROOT).parts[0] not in _NOT_PACKAGE:
            yield path


def _raised(path: Path) -> Iterator[Message]:
    text = path.read_text("utf-8")
    for node in _statements(ast.parse(text if "raise " in text else "")):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            name = node.exc.func.id if isinstance(node.exc.func, ast.Name) else ""
            texts = [_template(argument) for argument in node.exc.args]
            if name not in ERRORS or not any(texts):
                continue
            if name == "TraceFormatError" and len(texts) > 2:
                problem, remedy = ": ".join(filter(None, texts[:3])), "; ".join(texts[3:])
            else:
                problem, _, remedy = texts[0].rpartition("; ") if "; " in texts[0] else (texts[0], "", "")
            if problem.strip("…:; "):
                yield Message(str(path.relative_to(ROOT)), problem, remedy.strip("… "))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements inside a node, at any depth. This function is much faster than `ast.walk`, which also visits
    every expression."""
    for field in ("body", "handlers", "cases", "orelse", "finalbody"):
        for child in getattr(node, field, ()):
            yield child
            yield from _statements(child)


def _template(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(_template, values))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _template(left) + _template(right)
        case ast.IfExp(body=body):
            return _template(body)
        case _:
            return "…"


def _cell(text: str) -> str:
    flat = " ".join(text.split()).replace("|", "\\|")
    return f"`{flat}`" if flat and "`" not in flat else flat


def _text(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
