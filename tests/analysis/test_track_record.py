"""How often the advice was right: counted by hand, and made from the committed results."""

from __future__ import annotations

import pytest
from benchmarks.track_record import measured

from graphnorm.analysis import Facts, advise, gather_facts
from graphnorm.analysis.track_record import Case, leave_one_out, read_cases, track_record
from graphnorm.data import load
from graphnorm.errors import GraphnormError


def case(dataset: str, first: str, behind: tuple[str, ...] = (), **scores: float) -> Case:
    return Case(dataset, first, scores, behind)


def test_the_constant_answer_does_not_know_the_dataset_that_is_left_out() -> None:
    cases = [
        case("A", "graph", ("batch",), graph=90.0, batch=70.0),
        case("B", "graph", graph=60.0, batch=61.0),
        case("C", "graph", graph=60.0, batch=62.0),
    ]
    found = leave_one_out(cases)
    assert found.constant == ("batch", "graph", "graph")
    assert (found.best, found.not_behind, found.constant_best, found.constant_not_behind) == (1, 3, 0, 2)
    assert found.is_better
    assert str(found).startswith("How often this advice was right: On 3 benchmarks")
    always = [case(name, "batch", graph=80.0, batch=70.0) for name in "ABC"]
    worse = leave_one_out(always)
    assert (worse.best, worse.constant_best, worse.is_better) == (0, 3, False)
    assert str(worse).startswith("This advice is no better than a constant answer.")


def test_the_output_says_so_first() -> None:
    advice = advise(Facts())
    assert advice.record == track_record()
    first, *others = str(advice).splitlines()
    assert first.startswith("This advice is no better") is not track_record().is_better
    assert advice.verdict in others


def test_the_record_is_that_of_the_results() -> None:
    cases = read_cases()
    assert len(cases) == 8
    now = {name: (found["scores"], tuple(found["behind"])) for name, found in measured().items()}
    assert {one.dataset: (pytest.approx(one.scores, abs=0.011), one.behind) for one in cases} == now


@pytest.mark.parametrize("dataset", ["MUTAG", "PTC"])
def test_the_advice_on_record_is_that_of_today(dataset: str) -> None:
    try:
        graphs = load(dataset)
    except GraphnormError:
        pytest.skip(f"{dataset} is not on this machine")
    (one,) = [case for case in read_cases() if case.dataset == dataset]
    assert advise(gather_facts(graphs)).first == one.first
