"""The page of all error messages: what the sources can raise, by area, each area with its cause and its remedy."""

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
    """Messages with one cause: the folders and files that raise them, from the root."""

    title: str
    paths: tuple[str, ...]
    cause: str
    remedy: str


AREAS = (
    Area("Opening files", ("schemas/text/", "schemas/mapped", "jobs/patterns"),
         "The file is missing, empty, damaged, too large for the memory limit, or in another format.",
         "Check the path and permissions. Copy or record a damaged file again; without "
         "`--strict` what can be recovered of a cut file is read. Raise `ETPLUS_MEMORY_LIMIT` for files you trust."),
    Area("Writing files", ("schemas/text/transaction.py", "schemas/parquet/parquet_writer.py", "cli/outputs.py",
                           "analysis/workbook.py", "analysis/csv"),
         "The output would replace an input, has an unknown extension, or its folder cannot be written.",
         "Choose another name or folder. A failed run leaves no partial file."),
    Area("Execution Traces", ("schemas/execution_trace/",),
         "The file is not an Execution Trace written by PyTorch, or its schema is newer than this release.",
         "Give the file that `torch.profiler.ExecutionTraceObserver` wrote, or record with `etplus record`."),
    Area("Kineto traces", ("schemas/kineto/", "schemas/inductor/"),
         "The file is not a trace of PyTorch's profiler, or the profiler was not active; for compiled code: the file "
         "next to the trace does not come from Inductor.",
         "Record again with the profiler active during the steps that you want."),
    Area("ET+ files", ("schemas/etplus/", "schemas/graph_arrays.py", "schemas/opcodes"),
         "The file was edited, cut off or written by a newer version of etplus.",
         "Link the traces again, or update etplus."),
    Area("Parquet stores", ("schemas/parquet/", "analysis/sql.py", "jobs/store"),
         "The folder is incomplete, was edited after it was written, or the query is not a SELECT.",
         "Write the store again with `etplus link FOLDER` or `etplus convert`."),
    Area("Chakra traces", ("schemas/chakra/", "converters/preflight", "cli/check.py"),
         "The file is no Chakra trace, is cut off, or cannot be read as one rank of a job.",
         "Write it again with `etplus convert`, and look at it with `etplus check`."),
    Area("Nsight Systems and Perfetto", ("schemas/nsys/", "schemas/perfetto/"),
         "The export lacks tables, or the package that reads it is not installed.",
         "Export again with `nsys export --type sqlite`; install `etplus[perfetto]` for Perfetto's traces."),
    Area("Linking", ("linker/", "cli/link.py", "trace/build.py", "schemas/pairs"),
         "The two files are not of one run, not of one rank, or given in a way that leaves open which is which.",
         "Give one Execution Trace and its Kineto trace; for several ranks use `etplus link FOLDER`. See "
         "[Linking](reference/linking.md#identity)."),
    Area("Jobs", ("jobs/", "converters/folder.py", "converters/traces.py",
                  "cli/link_folder.py"),
         "The files are not the ranks of one job, two have the same rank, or no scheduler answers.",
         "List the pairs with `etplus link FOLDER --dry-run`; choose with `--ranks`."),
    Area("Choosing a part of a trace", ("trace/selection.py", "trace/steps.py",
                                         "trace/shown", "trace/access"),
         "The step, window, module or phase that was asked for is not in the trace.",
         "List the steps with `etplus analyze`; counting starts at 0."),
    Area("Recording", ("recording/", "cli/record.py"),
         "No program was given, or the recorder cannot start.",
         "See [If nothing is recorded](reference/record.md#if-nothing-is-recorded)."),
    Area("Replay and networks", ("timeline/", "cli/replay.py"),
         "A change (`--what-if`) or a network (`--network`) is not written as the grammar has it, or the trace has "
         "nothing that could be replayed.",
         "See the [grammar of changes](reference/replay.md#changes)."),
    Area("Prediction", ("planning/costs/", "planning/learned/", "cli/predict", "analysis/devices", "analysis/device"),
         "There is too little to fit a model on, the model is of another version, or the device is not known.",
         "Fit on more traces of the same device; describe a device with `--device-spec`. See "
         "[Cost models](reference/predict.md)."),
    Area("Other sizes and layouts", ("planning/reshape/", "planning/reshard/", "cli/reshard.py"),
         "The trace does not prove how its program would look at that size or in that layout. etplus refuses in place "
         "of guessing.",
         "Record one more trace at another size (`--also`), or choose a layout that divides the recorded one. See "
         "[Other layouts](reference/reshard.md)."),
    Area("Measuring and reproducing", ("planning/measure/", "cli/measure.py"),
         "An operator cannot be called again: its arguments were not recorded, or it changes state outside of itself.",
         "Record the Execution Trace with inputs; choose another call. See [Measuring](reference/measure.md)."),
    Area("Agents", ("analysis/questions/", "cli/mcp.py"),
         "A tool has an option with a value that the trace does not have.",
         "The message lists what is there. See [A server for agents](reference/agents.md)."),
    Area("Converting", ("converters/", "cli/convert.py"),
         "The target format cannot express this trace, or an option does not belong to the format.",
         "See [Converters](reference/converters.md)."),
    Area("Plugins", ("trace/plugins.py", "analysis/findings/", "analysis/summary.py"),
         "Another package registered something that does not follow the protocol.",
         "Update or remove that package. See [Extending](extending.md)."),
    Area("Options", ("cli/", "report/", "analysis/", "trace/", "schemas/", "__init__.py"),
         "An option has a value that makes no sense, or does not fit another one.",
         "The message names the value that was expected; `etplus COMMAND --help` has an example."),
)  # fmt: skip


class Message(NamedTuple):
    path: str
    problem: str
    remedy: str


def messages_page() -> str:
    """All messages by area; each area opens with its cause and what to do."""
    parts = [
        "# All messages\n",
        "Every refusal of etplus, collected from its sources; `…` stands for a file, a name or a number. "
        "The command line prints one line and exits with status 2; the library raises `EtplusError`. "
        "For the common cases start with [Troubleshooting](troubleshooting.md).\n",
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
    """The area with the longest path that fits.

    Raises:
        LookupError: none has; it needs one above.
    """
    fits = [(len(prefix), area) for area in AREAS for prefix in area.paths if path.startswith(prefix)]
    if not fits:
        raise LookupError(f"{path} raises errors and is in no area of docs/site_messages.py")
    return max(fits, key=lambda found: found[0])[1]


@cache
def messages() -> tuple[Message, ...]:
    """What the package's sources raise on purpose."""
    return tuple(message for path in _sources() for message in _raised(path))


def _sources() -> Iterator[Path]:
    for path in sorted(ROOT.rglob("*.py")):
        if path.relative_to(ROOT).parts[0] not in _NOT_PACKAGE:
            yield path


def _raised(path: Path) -> Iterator[Message]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
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
