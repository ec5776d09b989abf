"""A research workbench for multi-level superoptimization of tensor programs: `import workbench as wb`.

Invariant: importing it loads nothing of itself but the display hook and no third-party package; a name is loaded when
it is first used (PEP 562).
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from workbench.display import register_loader as _register_loader

if TYPE_CHECKING:
    from workbench import programs as programs
    from workbench import records as records
    from workbench import views as views
    from workbench import widgets as widgets
    from workbench.codegen.cuda.host_program import run_program_on_host as run_program_on_host
    from workbench.codegen.cuda.kernel_level import emit_program as emit_program
    from workbench.commands.open_device import open_device as open_device
    from workbench.core.dtypes import DType as DType
    from workbench.core.tensors import DeviceTensor as DeviceTensor
    from workbench.core.tensors import RegisterTensor as RegisterTensor
    from workbench.core.tensors import SharedTensor as SharedTensor
    from workbench.cost import course as course
    from workbench.cost import presets as _presets
    from workbench.cost.estimate import estimate as estimate
    from workbench.cost.hardware import hardware as hardware
    from workbench.cost.launch import LaunchChoice as LaunchChoice
    from workbench.cost.lower_bound import lower_bound as lower_bound
    from workbench.cost.schedules import ScheduleSpace as ScheduleSpace
    from workbench.device.executable import compile as compile
    from workbench.domains import expressions as expressions
    from workbench.domains import finite_field as _fields
    from workbench.errors import WorkbenchError as WorkbenchError
    from workbench.interpret import evaluate as evaluate
    from workbench.optimize.ablation import ablation as ablation
    from workbench.optimize.memory import Lifetime as Lifetime
    from workbench.optimize.memory import plan_memory as plan_memory
    from workbench.optimize.optimizer import optimize as optimize
    from workbench.pipeline.superoptimize import superoptimize as superoptimize
    from workbench.search.graph_expressions import distances as distances
    from workbench.search.near_misses import near_misses as near_misses
    from workbench.search.prefix import ablation as _search_ablation
    from workbench.search.prefix import course as _lecture_search
    from workbench.search.replay import replay as replay
    from workbench.search.searching import search as search
    from workbench.search.space import Space as Space
    from workbench.ugraph.block_graph import BlockGraph as BlockGraph
    from workbench.ugraph.builder import BlockBuilder as BlockBuilder
    from workbench.ugraph.builder import KernelBuilder as KernelBuilder
    from workbench.ugraph.builder import ThreadBuilder as ThreadBuilder
    from workbench.ugraph.kernel_graph import KernelGraph as KernelGraph
    from workbench.ugraph.lax import split_lax as split_lax
    from workbench.ugraph.nodes import AccumulatorKind as AccumulatorKind
    from workbench.ugraph.serialize import dumps as dumps
    from workbench.ugraph.serialize import load as load
    from workbench.ugraph.serialize import loads as loads
    from workbench.ugraph.serialize import save as save
    from workbench.ugraph.text import parse_graph as parse_graph
    from workbench.ugraph.thread_graph import ThreadGraph as ThreadGraph
    from workbench.ugraph.tracing import program as program
    from workbench.ugraph.tracing import trace as trace
    from workbench.ugraph.value import abs as abs
    from workbench.ugraph.value import add as add
    from workbench.ugraph.value import broadcast as broadcast
    from workbench.ugraph.value import clamp as clamp
    from workbench.ugraph.value import concat as concat
    from workbench.ugraph.value import div as div
    from workbench.ugraph.value import exp as exp
    from workbench.ugraph.value import gelu as gelu
    from workbench.ugraph.value import l2_norm as l2_norm
    from workbench.ugraph.value import layer_norm as layer_norm
    from workbench.ugraph.value import log as log
    from workbench.ugraph.value import matmul as matmul
    from workbench.ugraph.value import max as max
    from workbench.ugraph.value import maximum as maximum
    from workbench.ugraph.value import mean as mean
    from workbench.ugraph.value import minimum as minimum
    from workbench.ugraph.value import mul as mul
    from workbench.ugraph.value import neg as neg
    from workbench.ugraph.value import pow as pow
    from workbench.ugraph.value import relu as relu
    from workbench.ugraph.value import reshape as reshape
    from workbench.ugraph.value import rms as rms
    from workbench.ugraph.value import rms_norm as rms_norm
    from workbench.ugraph.value import rsqrt as rsqrt
    from workbench.ugraph.value import scale as scale
    from workbench.ugraph.value import sigmoid as sigmoid
    from workbench.ugraph.value import silu as silu
    from workbench.ugraph.value import softmax as softmax
    from workbench.ugraph.value import split as split
    from workbench.ugraph.value import sqrt as sqrt
    from workbench.ugraph.value import square as square
    from workbench.ugraph.value import sub as sub
    from workbench.ugraph.value import sum as sum
    from workbench.ugraph.value import sum_to_columns as sum_to_columns
    from workbench.ugraph.value import tanh as tanh
    from workbench.ugraph.value import transpose as transpose
    from workbench.verify.error_bound import bound_per_test as bound_per_test
    from workbench.verify.stability import stability as stability
    from workbench.verify.walkthrough import walk_through as walk_through
    from workbench.views.exercise import check_answer as check_answer

    cost_preset = _presets.preset
    fields = _fields
    lecture_search = _lecture_search.course
    search_ablation = _search_ablation.ablate

__version__ = "0.1.0"

OPERATORS = (
    "abs", "add", "broadcast", "clamp", "concat", "div", "exp", "gelu", "l2_norm", "layer_norm", "log", "matmul", "max",
    "maximum", "mean", "minimum", "mul", "neg", "pow", "relu", "reshape", "rms", "rms_norm", "rsqrt", "scale", "sigmoid",
    "silu", "softmax", "split", "sqrt", "square", "sub", "sum", "sum_to_columns", "tanh", "transpose",
)  # fmt: skip
"""The operators that programs are written with; each is a function of `workbench.ugraph.value`."""

_PLACES = {
    "AccumulatorKind": "workbench.ugraph.nodes",
    "BlockBuilder": "workbench.ugraph.builder",
    "BlockGraph": "workbench.ugraph.block_graph",
    "DType": "workbench.core.dtypes",
    "DeviceTensor": "workbench.core.tensors",
    "KernelBuilder": "workbench.ugraph.builder",
    "KernelGraph": "workbench.ugraph.kernel_graph",
    "LaunchChoice": "workbench.cost.launch",
    "Lifetime": "workbench.optimize.memory",
    "RegisterTensor": "workbench.core.tensors",
    "ScheduleSpace": "workbench.cost.schedules",
    "SharedTensor": "workbench.core.tensors",
    "Space": "workbench.search.space",
    "ThreadBuilder": "workbench.ugraph.builder",
    "ThreadGraph": "workbench.ugraph.thread_graph",
    "WorkbenchError": "workbench.errors",
    "ablation": "workbench.optimize.ablation",
    "bound_per_test": "workbench.verify.error_bound",
    "check_answer": "workbench.views.exercise",
    "compile": "workbench.device.executable",
    "cost_preset": "workbench.cost.presets:preset",
    "distances": "workbench.search.graph_expressions",
    "dumps": "workbench.ugraph.serialize",
    "emit_program": "workbench.codegen.cuda.kernel_level",
    "estimate": "workbench.cost.estimate",
    "evaluate": "workbench.interpret",
    "hardware": "workbench.cost.hardware",
    "lecture_search": "workbench.search.prefix.course:course",
    "load": "workbench.ugraph.serialize",
    "loads": "workbench.ugraph.serialize",
    "lower_bound": "workbench.cost.lower_bound",
    "near_misses": "workbench.search.near_misses",
    "open_device": "workbench.commands.open_device",
    "optimize": "workbench.optimize.optimizer",
    "parse_graph": "workbench.ugraph.text",
    "plan_memory": "workbench.optimize.memory",
    "program": "workbench.ugraph.tracing",
    "replay": "workbench.search.replay",
    "run_program_on_host": "workbench.codegen.cuda.host_program",
    "save": "workbench.ugraph.serialize",
    "search": "workbench.search.searching",
    "search_ablation": "workbench.search.prefix.ablation:ablate",
    "split_lax": "workbench.ugraph.lax",
    "stability": "workbench.verify.stability",
    "superoptimize": "workbench.pipeline.superoptimize",
    "trace": "workbench.ugraph.tracing",
    "verify": "workbench.verify.compare",
    "walk_through": "workbench.verify.walkthrough",
} | dict.fromkeys(OPERATORS, "workbench.ugraph.value")
"""Where each public name is defined; after a colon the name it has there, where that differs."""

_MODULES = {name: f"workbench.{name}" for name in ("errors", "programs", "records", "units", "views", "widgets")} | {
    "course": "workbench.cost.course",
    "expressions": "workbench.domains.expressions",
    "fields": "workbench.domains.finite_field",
    "widgets": "workbench.widgets",
}
"""Modules that are public: name -> module."""

__all__ = ["OPERATORS", "__version__", *sorted({*_PLACES, *_MODULES})]


class _Namespace(ModuleType):
    """The package as a module in which a public function keeps its name although a subpackage bears it too.

    Importing `workbench.verify` binds the subpackage to the attribute `verify`; without this, `wb.verify(...)` would
    stop working as soon as any module of the subpackage had been imported.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and (name in _PLACES)):
            super().__setattr__(name, value)


def __getattr__(name: str) -> object:
    """Load a public name. Raises: AttributeError for a name that there is not."""
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, other_name = _PLACES[name].partition(":")
    found: object = getattr(import_module(module), other_name or name)
    setattr(sys.modules[__name__], name, found)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _register_pictures() -> None:
    """Let notebooks show graphs as pictures, once something is shown."""
    from workbench.views import register_views

    register_views()


_register_loader(_register_pictures)
sys.modules[__name__].__class__ = _Namespace
