"""Laws of the ledger of answers: what is spent is refused, repetitions are free, totals hold for all queriers."""

import math

import numpy as np
import pytest

from fedrank.core.errors import ConfigError, DataError
from fedrank.texts.sketch.account import QueryBudget, answer_rho, answers_within, compose, plan

ALL = np.arange(3)


class Source:
    """Answers that tell how often they were drawn."""

    def __init__(self):
        self.draws = 0

    def __call__(self, which):
        self.draws += 1
        return np.full((which.size, 4), self.draws) * 10 + which[:, None]


def rows(number):
    return np.array([number, 1, 2, 3], np.int32)


def test_as_many_different_answers_as_the_limit_holds_and_then_a_refusal():
    budget, draw = QueryBudget(0.5, 2.0, 3), Source()
    for number in range(4):
        assert np.array_equal(budget.ask(0, rows(number), ALL, draw)[:, 0], 10 * (number + 1) + ALL)
    assert budget.left().tolist() == [0, 0, 0] and budget.spent().tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(ConfigError, match="budget of sketch 0 is spent"):
        budget.ask(0, rows(9), ALL, draw)
    assert draw.draws == 4


def test_a_repeated_question_gets_its_first_answer_for_nothing_even_when_all_is_spent():
    budget, draw = QueryBudget(1.0, 1.0, 3), Source()
    first = budget.ask(0, rows(7), ALL, draw)
    for _ in range(3):
        assert np.array_equal(budget.ask(0, rows(7), ALL[::-1], draw), first[::-1])
    assert draw.draws == 1 and budget.spent().tolist() == [1.0, 1.0, 1.0]


def test_a_question_is_answered_whole_or_not_at_all():
    budget, draw = QueryBudget(1.0, 1.0, 3), Source()
    budget.ask(0, rows(1), ALL[:1], draw)
    with pytest.raises(ConfigError, match="1 of the 3"):
        budget.ask(0, rows(2), ALL, draw)
    assert draw.draws == 1 and budget.answers.tolist() == [1, 0, 0]
    # What is known is repeated and only the rest is drawn.
    assert budget.ask(0, rows(1), ALL, draw)[:, 0].tolist() == [10, 21, 22]
    assert budget.answers.tolist() == [1, 1, 1]


def test_queriers_share_a_budget_and_each_has_his_own_account():
    budget, draw = QueryBudget(0.5, 1.0, 3, queriers=3), Source()
    budget.ask(0, rows(1), ALL, draw)
    budget.ask(1, rows(2), ALL, draw)
    with pytest.raises(ConfigError, match="spent"):
        budget.ask(2, rows(3), ALL, draw)
    budget.ask(2, rows(1), ALL, draw)  # what another has been told costs the coalition nothing
    budget.ask(2, rows(1), ALL, draw)
    assert draw.draws == 2
    assert budget.spent()[0] == 1.0 and [budget.spent(querier)[0] for querier in range(3)] == [0.5, 0.5, 0.5]
    budget.ask(2, rows(2), ALL, draw)
    assert budget.spent(2)[0] == 1.0 and budget.spent(2, basic=True)[0] == 1.0


def test_the_thousands_of_answers_of_the_paper_add_up_to_what_its_epsilon_leaves_out():
    # 200 queries of 3.5 terms, 2 fields, 3 silos; the simple conversion ρ + 2 √(ρ ln(1/δ)) is a little above the tight.
    rho = 4200 * 0.5**2 / 2
    simple = rho + 2 * math.sqrt(rho * math.log(1e6))
    assert 4200 * 0.5 == 2100 and round(simple) == 695
    assert 0.99 * simple < compose(0.5, 4200, delta=1e-6) < simple
    assert compose(0.5, 4, delta=1e-6) == 2.0 and compose(0.5, 0) == 0.0


def test_a_plan_lasts_for_its_questions_and_no_larger_epsilon_does():
    for limit, questions in [(8.0, 2100), (1.0, 1), (2.0, 30)]:
        for mechanism in ["laplace", "gaussian"]:
            epsilon = plan(limit, questions, mechanism)
            assert compose(epsilon, questions, mechanism) <= limit
            assert compose(epsilon * (1 + 1e-7), questions, mechanism) > limit
            assert answers_within(limit, epsilon, mechanism) == questions
            assert answers_within(limit, epsilon * (1 + 1e-7), mechanism) < questions


def test_many_small_answers_cost_less_than_their_sum_and_more_answers_never_less():
    totals = [compose(0.01, n) for n in (1, 10, 1000, 100_000)]
    assert totals == sorted(totals) and totals[0] == 0.01 and totals[-1] < 0.1 * 1000
    assert answer_rho(0.5) == 0.125


def test_arguments_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="room for none"):
        QueryBudget(0.5, 0.4, 3)
    with pytest.raises(ConfigError, match="at least 1"):
        QueryBudget(0.5, 1.0, 0)
    with pytest.raises(ConfigError, match="questions"):
        plan(1.0, 0)
    with pytest.raises(ConfigError, match="mechanism"):
        answers_within(1.0, 0.5, "cauchy")
    budget = QueryBudget(0.5, 1.0, 3)
    for querier, sketches in ((1, ALL), (0, np.array([3])), (0, np.array([-1])), (0, np.array([1, 1]))):
        with pytest.raises(DataError):
            budget.ask(querier, rows(1), sketches, Source())
