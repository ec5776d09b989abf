"""Which line is about which node, on a text written for it."""

from __future__ import annotations

import workbench as wb
from workbench.views.code_lines import code_html, code_lines

TEXT = """// t1 = x @ w: summed over the iterations as t2
k(const f16* X, const f16* W, f16* O) {
  const int bx = blockIdx.x;
  load(x_tile, X + bx);
  mma(t2_sum, x_tile, w_tile);
  t2_sum_part = t2;
  other();
  store(O, t2);
}
"""


def test_lines_name_their_nodes() -> None:
    kernel = wb.KernelBuilder("k")
    x, w = kernel.input("X", (16, 64)), kernel.input("W", (64, 32))
    block = kernel.block(x, w, grid=(2,), loop=2)
    x_tile, w_tile = block.load(x, fmap=1, name="x"), block.load(w, imap=(1,), fmap=0, name="w")
    total = block.accumulate(x_tile @ w_tile)
    block.save(total, omap=(1,))
    kernel.output(*block.finish(names=["O"]))
    graph = kernel.build()
    launch = graph.graph_defined[0]
    names = [node.results[0].name if node.results else "" for node in launch.block.nodes]
    x_name, w_name, product, total_name, _ = names
    text = TEXT.replace("t1", product).replace("t2", total_name).replace("x_tile", f"{x_name}_tile")
    found = code_lines(text.replace("w_tile", f"{w_name}_tile"), launch, "n0")
    links = [set(line.links) for line in found]
    assert links[1] == {"n0.0", "n0.1", "n0.4"}  # the operands that are read, the output that is written
    assert links[2] == set()  # blockIdx.x is no tile x
    assert links[3] == {"n0.0"}
    # no statement names the product: it was merged into the sum, whose lines are its own
    assert links[4] == {"n0.0", "n0.1", "n0.2", "n0.3"}
    assert links[5] == {"n0.2", "n0.3"}
    assert links[6] == set()
    assert links[7] == {"n0.2", "n0.3", "n0.4"}
    assert [line.number for line in found] == list(range(1, 10))
    html = code_html(found, compiled={4})
    assert html.count('data-link="n0.0 line:4"') == 1
    assert "line:5" not in html
