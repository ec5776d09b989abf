"""What units of a search share: read of the program, made once a process."""

from __future__ import annotations

import pickle

from tests.unit.search.searched import PRODUCT, graph_of
from workbench.search.engine import PlanGroup
from workbench.search.problem import problem_of
from workbench.search.shared import Shared
from workbench.search.space import Space
from workbench.ugraph.value import exp
from workbench.ugraph.value import sum as sum_of


def test_a_program_of_sums_needs_no_library() -> None:
    assert not Shared(graph_of(lambda x: sum_of(exp(x)), X=(8, 16)), Space(), 0).has_products
    assert Shared(PRODUCT, Space(), 0).has_products


def test_another_process_reads_the_program_once() -> None:
    units = [PlanGroup(Shared(PRODUCT, Space(), 0), number, (), screens=True, depths={}) for number in range(2)]
    one, two = (pickle.loads(pickle.dumps(unit)) for unit in units)
    assert one.shared is two.shared
    assert one.shared.problem.extents == problem_of(PRODUCT).extents
