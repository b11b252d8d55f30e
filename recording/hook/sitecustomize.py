"""Python runs this file when a recorded program starts. It sets up the recorder, then runs the file that it shadows."""

import importlib
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (no import that the program would not make)


def _load_recorder() -> None:
    try:
        path = os.path.join(_HERE, "__init__.py")  # noqa: PTH118
        spec = importlib.util.spec_from_file_location("_etplus_hook", path, submodule_search_locations=[_HERE])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        importlib.import_module("_etplus_hook.install").install()
    except Exception as error:
        sys.stderr.write(f"etplus record: cannot record this process ({type(error).__name__}: {error})\n")


def _run_shadowed() -> None:
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)
        if error.name != "sitecustomize":
            raise


if __name__ == "sitecustomize":
    # Child processes, such as torchrun's workers, find this folder through PYTHONPATH. The program should not see it.
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]  # noqa: PTH100
    if "ETPLUS_RECORD" in os.environ:
        _load_recorder()
    _run_shadowed()
