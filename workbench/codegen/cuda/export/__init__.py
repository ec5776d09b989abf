"""Programs as files that run without the workbench: kernels, a launcher that checks itself, loaders, a description."""

from workbench.codegen.cuda.export.folder import export_program

__all__ = ["export_program"]
