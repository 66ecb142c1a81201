"""What the search tries next: nothing here is run."""

from __future__ import annotations

from utvm_deploy.graph.attributes import Reshape
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.records import KernelIdentity, Measurement
from utvm_deploy.records.candidate import GENERIC, Candidate
from utvm_deploy.tuning.measuring.workload import Work
from utvm_deploy.tuning.searching.search import FEWEST_PROPOSED, KernelState, Search, difference


def state(name: str, layers: int = 1, pixels: int = 8, families: int = 1) -> KernelState:
    """A kernel with ``pixels`` times two candidates, and one of each further family."""
    operator = Operator("CONV_2D", (0,), (1,), Reshape(), ())
    graph = Graph(name, (), (operator,), (), (), "")
    candidates = [
        Candidate.of("dsp", pixels=p, step=s) for p in range(3, 3 + pixels) for s in (8, 16)
    ]
    candidates += [Candidate(f"other{n}") for n in range(families - 1)]
    kernel = KernelIdentity(name, "int8", "CONV_2D", ())
    return KernelState(Work(kernel, graph, operator, tuple(candidates), layers))


def ticks(candidate: Candidate) -> Measurement:
    """Best at pixels 6, step 16."""
    pixels, step = candidate.number("pixels") or 0, candidate.number("step") or 0
    count = 1000 + 50 * abs(pixels - 6) + 5 * (16 - step)
    return Measurement(count, float(count))


def run(search: Search, trials: int, batch: int = 4) -> list[tuple[str, Candidate]]:
    tried = []
    while len(tried) < trials:
        picked = search.next_batch(min(batch, trials - len(tried)))
        if not picked:
            break
        for one, candidate in picked:
            one.add(candidate, ticks(candidate))
            tried.append((one.work.kernel.name, candidate))
    return tried


def test_a_small_space_is_tried_whole_and_once() -> None:
    one = state("conv", families=3)
    tried = [candidate for _, candidate in run(Search([one], 0), 1000)]
    assert sorted(c.label for c in tried) == sorted(c.label for c in one.work.candidates)
    # The default first, then what other families would choose by themselves.
    assert tried[0] == one.work.default
    assert {c.family for c in tried[:3]} == {"dsp", "other0", "other1"}


def test_equal_seeds_try_the_same() -> None:
    first, second, third = (run(Search([state("a", pixels=40)], seed), 30) for seed in (1, 1, 2))
    assert first == second != third


def test_a_large_space_is_searched_near_the_best() -> None:
    found = 0
    for seed in range(10):
        one = state("conv", pixels=60)
        run(Search([one], seed), 40)
        assert one.best is not None
        found += one.best[1] <= 1050
    assert found >= 8, "the optimum's neighbourhood is missed too often"


def test_trials_go_where_the_time_is() -> None:
    often, seldom = state("often", 30, pixels=40), state("seldom", 1, pixels=40)
    tried = [name for name, _ in run(Search([often, seldom], 0), 24)]
    assert set(tried) == {"often", "seldom"}
    assert tried.count("often") > 2 * tried.count("seldom")


def test_hope_fades_with_trials_in_vain() -> None:
    one = state("conv")
    one.add(one.work.default, Measurement(100, 100.0))
    before = one.hope(1)
    one.add(one.untried()[0], Measurement(200, 200.0))
    one.add(one.untried()[0], Measurement(error="hung"))
    assert one.hope(1) < before and one.trials_in_vain == 2
    one.add(one.untried()[0], Measurement(50, 50.0))
    assert one.trials_in_vain == 0 and one.gain == 2


def test_hints_come_early() -> None:
    one = state("conv", pixels=60)
    hint = Candidate.of("dsp", pixels=33, step=8)
    one.hints = [hint]
    assert [candidate for _, candidate in run(Search([one], 0), 2)][1] == hint


def test_what_is_on_its_way_is_not_picked_again() -> None:
    one = state("conv", pixels=2)
    search = Search([one], 0)
    assert len(search.next_batch(3)) == 3
    assert len(search.next_batch(3)) == 1
    assert search.next_batch(3) == []


def test_many_in_a_row_for_slow_lines() -> None:
    search = Search([state("a"), state("b")], 0)
    names = [one.work.kernel.name for one, _ in search.next_batch(8, in_a_row=4)]
    assert names == ["a"] * 4 + ["b"] * 4


def test_difference() -> None:
    one = Candidate.of("dsp", pixels=3, step=8)
    assert difference(one, one) == 0
    assert difference(one, Candidate.of("dsp", pixels=3, step=16)) == 1
    assert difference(one, Candidate.of("dsp", pixels=6, tile="3x2")) == 3
    assert difference(one, Candidate("generic")) > 10


class Proposals:
    """A search that always finds one more; each takes the same time."""

    def __init__(self, cost: int) -> None:
        self.cost = cost
        self.asked = 0

    def propose(self) -> list[Candidate]:
        self.asked += 1
        return [Candidate.of(GENERIC, sketch=1, decisions=str(self.asked))]

    def learn(self, candidate: Candidate, measurement: Measurement) -> None:
        pass


def proposals_tried(cost: int) -> int:
    """Of 100 trials, next to a family whose best candidate takes 1000."""
    one = state("conv", pixels=20)
    one.free = Proposals(cost)
    search = Search([one], 0)
    for _ in range(100):
        for _, candidate in search.next_batch(1):
            taken = Measurement(cost, float(cost))
            one.add(candidate, taken if candidate.family == GENERIC else ticks(candidate))
    return sum(candidate.family == GENERIC for candidate in one.measured)


def test_proposals_end_where_another_family_is_much_faster() -> None:
    assert proposals_tried(5000) == FEWEST_PROPOSED
    assert proposals_tried(1200) > 3 * FEWEST_PROPOSED
