"""Formulas as MathML: every construct that the search writes, and nothing lost of what is not known."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

import workbench as wb
from workbench.search.events import Extended
from workbench.search.prefix.engine import search
from workbench.views.formula import mathml


@pytest.mark.parametrize(
    ("latex", "text", "tag"),
    [
        (r"X \cdot G", "X·G", "mi"),
        (r"\frac{1}{4096}", "14096", "mfrac"),
        (r"\sqrt{X}", "X", "msqrt"),
        (r"\Sigma_{b_{\mathrm{tile}}}\!\left[X\right]", "Σbtile[X]", "msub"),
        (r"\boxed{X}", "X", "mrow"),
        (r"\operatorname{rms norm}\!\left(X, Y\right)", "rms norm(X,Y)", "mi"),
        (r"-\tfrac{1}{2} + X_{2}", "-12+X2", "mfrac"),
        (r"\left[X \,\|\, Y\right]", "[X‖Y]", "mo"),
        (r"\mathrm{long\_name}", "long_name", "mi"),
        (r"\max_{b}\!\left[X\right] < 3", "maxb[X]<3", "mo"),
        (r"\unknown{X}", r"\unknownX", "mi"),
    ],
)
def test_constructs(latex: str, text: str, tag: str) -> None:
    root = ElementTree.fromstring(mathml(latex))
    assert "".join(root.itertext()) == text
    assert root.find(f".//{tag}") is not None


def test_the_matched_part_is_marked() -> None:
    root = ElementTree.fromstring(mathml(r"\frac{\boxed{X \cdot G}}{Y}"))
    marked = [element for element in root.iter("mrow") if element.get("class") == "wb-match"]
    assert ["".join(element.itertext()) for element in marked] == ["X·G"]
    assert mathml("") == ""


def test_every_formula_of_a_search_is_well_formed() -> None:
    program = wb.programs.get("rms_norm_linear", batch=4, hidden=24, out=10)
    formulas = 0
    for event in search(program, space=wb.Space(max_block_ops=3)):
        if isinstance(event, Extended):
            for latex in (event.latex(), event.goal_latex()):
                ElementTree.fromstring(mathml(latex))
                formulas += 1
    assert formulas > 20


@pytest.mark.parametrize("latex", ["{", "}", r"\frac", r"\frac{1}", "_", "^", r"\left", r"\sqrt{", r"\mathrm{", "a_"])
def test_broken_formulas_still_give_an_element(latex: str) -> None:
    ElementTree.fromstring(mathml(latex))
