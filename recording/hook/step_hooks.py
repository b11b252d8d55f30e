"""Find the steps of a program: calls of `Optimizer.step()` or, if it has no optimizer, outermost module calls."""

from __future__ import annotations

import inspect
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

OPTIMIZER, FORWARD = "optimizer steps", "forward passes"
_OF_HOOKS = r"Using `torch\.compile\(module\)` when there are global hooks on modules"


class _StepEnd(dict):  # type: ignore[type-arg]
    """The keyword arguments of `Optimizer.step()`. Their destructor runs when the step has returned."""

    ended: Callable[[], None] | None = None

    def __del__(self) -> None:
        if self.ended is not None:
            self.ended()


class StepHooks:
    """From `add` to `drop`, PyTorch hooks call `step_over` with OPTIMIZER or FORWARD after every step."""

    def __init__(self, step_over: Callable[[str], None]) -> None:
        self._step_over = step_over
        self._optimizer_hooks: list[Any] = []
        self._module_hooks: list[Any] = []
        self._optimizer: Any = None  # weak reference to the optimizer that is counted
        self._others: dict[int, int] = {}  # number of steps that each other optimizer ran since the last counted step
        self._local = threading.local()

    def add(self) -> None:
        from torch.nn.modules import module
        from torch.optim import optimizer

        self._optimizer_hooks = [
            optimizer.register_optimizer_step_pre_hook(self._before_step),
            optimizer.register_optimizer_step_post_hook(self._after_step),
        ]
        # torch.compile warns about global module hooks, although these hooks do nothing in compiled code.
        warnings.filterwarnings("ignore", _OF_HOOKS)
        always = {"always_call": True}
        if "always_call" not in inspect.signature(module.register_module_forward_hook).parameters:
            always = {}
        self._module_hooks = [
            module.register_module_forward_pre_hook(self._before_forward),
            module.register_module_forward_hook(self._after_forward, **always),
        ]

    def drop(self) -> None:
        self._drop_module_hooks()
        _remove(self._optimizer_hooks)

    def _drop_module_hooks(self) -> None:
        if not self._module_hooks:  # every step calls this method
            return
        _remove(self._module_hooks)
        warnings.filters[:] = [found for found in warnings.filters if getattr(found[1], "pattern", "") != _OF_HOOKS]  # type: ignore[index]

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        import torch

        if not self._optimizer_hooks or _is_compiling(torch) or not self._counts(optimizer):
            return None
        self._drop_module_hooks()
        kwargs = _StepEnd(kwargs)
        self._local.step = kwargs  # kept alive until `_after_step`, because a step that raises is not counted
        return args, kwargs

    def _after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        ending = getattr(self._local, "step", None)
        if ending is not None:
            ending.ended = lambda: self._step_over(OPTIMIZER)
            self._local.step = None

    def _counts(self, optimizer: Any) -> bool:
        if self._optimizer is not None and self._optimizer() is optimizer:
            self._others.clear()
            return True
        self._others[id(optimizer)] = self._others.get(id(optimizer), 0) + 1
        if self._optimizer is None or self._optimizer() is None or self._others[id(optimizer)] > 1:
            self._optimizer = weakref.ref(optimizer)
            self._others.clear()
            return True
        return False

    def _before_forward(self, *_: Any) -> None:
        import torch

        if _is_compiling(torch):
            return
        self._local.depth = depth = getattr(self._local, "depth", 0) + 1
        if depth == 1 and _optimizer_exists(torch):  # the hooks must be gone before any code is compiled
            self._drop_module_hooks()

    def _after_forward(self, *_: Any) -> None:
        import torch

        if _is_compiling(torch):
            return
        self._local.depth = depth = getattr(self._local, "depth", 0) - 1
        if depth == 0:
            self._step_over(FORWARD)


def _remove(hooks: list[Any]) -> None:
    while hooks:
        hooks.pop().remove()


def _is_compiling(torch: Any) -> bool:
    compiler = getattr(torch, "compiler", None)
    return bool(getattr(compiler, "is_compiling", torch.jit.is_scripting)())


def _optimizer_exists(torch: Any) -> bool:
    pending = [torch.optim.Optimizer]
    while pending:
        kind = pending.pop()
        if getattr(kind.__dict__.get("step"), "hooked", False):
            return True
        pending += kind.__subclasses__()
    return False
