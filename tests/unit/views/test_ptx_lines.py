"""PTX by lines of CUDA: chains of inlined calls worked out by hand, and real kernels by the instructions that they must have."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.codegen.cuda.kernel_level import emit_program
from workbench.device.compile import compile_ptx
from workbench.device.nvrtc import load_nvrtc
from workbench.errors import KernelCompileError
from workbench.views.code_lines import CodeLine, code_lines, kernel_of, link_of
from workbench.views.ptx_lines import ptx_html, ptx_lines, ptx_of

PTX = """.version 9.0
.visible .entry k(
	.param .u64 k_param_0
)
{
	.reg .b32 	%r<4>;
	.loc	1 101 0
	ld.param.u64 	%rd1, [k_param_0];
	.loc	1 105 3
	.loc	1 20 5, function_name $L__info_string0, inlined_at 1 105 3
	mov.u32 	%r1, %tid.x;
	.loc	1 7 9, function_name $L__info_string1, inlined_at 1 20 5
	// begin inline asm
	add.s32 	%r2, %r1, 1;
	// end inline asm
$L__BB0_1:
	.loc	1 107 3
	.loc	1 20 5, function_name $L__info_string0, inlined_at 1 107 3
	.loc	1 7 9, function_name $L__info_string1, inlined_at 1 20 5
	add.s32 	%r3, %r2, 1;
	.loc	1 9 1
	bar.sync 	0;
	ret;
}
	.file	1 "kernel.cu"
"""
CODE = (CodeLine(1, "k(", ("n0.0",)), CodeLine(5, "a();", ("n0.1", "n0.2")), CodeLine(7, "b();", ("n0.2",)))


def test_each_instruction_belongs_to_the_innermost_line_of_the_kernel_itself() -> None:
    found = ptx_lines(PTX, header_lines=100, body_lines=10)
    assert [(line.text, line.cuda) for line in found] == [
        ("ld.param.u64  %rd1, [k_param_0];", 1),
        ("mov.u32  %r1, %tid.x;", 5),
        ("add.s32  %r2, %r1, 1;", 5),
        ("$L__BB0_1:", 5),
        ("add.s32  %r3, %r2, 1;", 7),  # the same place of the header, called from another line now
        ("bar.sync  0;", 0),  # of no line of the kernel
        ("ret;", 0),
    ]
    assert [line.number for line in found][:2] == [8, 11]
    assert all(line.cuda == 0 for line in ptx_lines(PTX, header_lines=500, body_lines=10))
    assert ptx_lines("", header_lines=0, body_lines=1) == ()


def test_instructions_of_a_node_and_of_a_line() -> None:
    found = ptx_lines(PTX, header_lines=100, body_lines=10)
    assert [line.cuda for line in ptx_of(found, CODE, "n0.1")] == [5, 5, 5]
    assert [line.cuda for line in ptx_of(found, CODE, "n0.2")] == [5, 5, 5, 7]
    assert [line.cuda for line in ptx_of(found, CODE, link_of(7))] == [7]
    assert ptx_of(found, CODE, "") == found
    assert ptx_of(found, CODE, "n0.9") == ()


def test_the_panel_says_what_it_leaves_out() -> None:
    found = ptx_lines(PTX, header_lines=100, body_lines=10)
    html = ptx_html(found, CODE, "n0.2", limit=2)
    assert "4 of 7 instructions and labels" in html
    assert "showing 2 of 4 lines" in html
    assert 'data-link="n0.1 n0.2 line:5"' in html
    assert "⋯" not in html
    assert "⋯" in ptx_html(found, (CodeLine(1, "", ("n",)), CodeLine(7, "", ("n",))), "n", limit=9)
    assert "no instruction is of n0.9 alone" in ptx_html(found, CODE, "n0.9", limit=9)


@pytest.mark.parametrize(
    ("program", "nodes", "instruction", "call"),
    [
        ("gqa", (4,), "ex2.approx", "fast_exp2("),  # exp
        ("gqa", (3, 5), "mma_async", "mma<"),  # the two products; the second is merged into its sum over iterations
        ("rms_norm_linear", (0, 1, 2), "cp.async.cg", "_async<"),  # loaders
    ],
)
def test_instructions_of_real_kernels_come_from_the_calls_that_mean_them(
    program: str, nodes: tuple[int, ...], instruction: str, call: str
) -> None:
    try:
        load_nvrtc()
    except KernelCompileError as error:
        pytest.skip(str(error).partition("(")[0])
    graph = wb.programs.known_good(program)[0]
    launch = graph.graph_defined[0]
    kernel = kernel_of(emit_program(graph), launch)
    assert kernel is not None
    body = kernel.body.rstrip()
    text = compile_ptx(kernel.source, flags=("-lineinfo",))
    before = kernel.source.count("\n", 0, kernel.source.rindex(body))
    found = ptx_lines(text, header_lines=before, body_lines=body.count("\n") + 1)
    code = code_lines(kernel.body, launch, "n0")
    known = {line.number: line.text for line in code}
    lines = [known.get(line.cuda, "") for line in found if instruction in line.text]
    assert lines
    assert [text for text in lines if call not in text] == []
    for node in nodes:
        assert any(instruction in line.text for line in ptx_of(found, code, f"n0.{node}")), node
    assert sum(line.cuda == 0 for line in found) < 0.05 * len(found)
