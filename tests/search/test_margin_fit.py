"""Guesses of margins: exact for linear ones, and of no row but one's own."""

import torch

from cel.search.margin_fit import MarginFit


def test_ranks_of_a_linear_margin_are_right_and_rows_do_not_mix():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(2, 40, 3, generator=generator)
    slopes = torch.tensor([[1.0, -2.0, 0.5], [-1.0, 0.0, 3.0]])
    margins = (points * slopes[:, None]).sum(-1) - 1
    rows = torch.arange(2)
    fit = MarginFit(2, 3, points)
    fit.learn(points[:, :15], margins[:, :15], rows[:2])
    fit.learn(points[:1, 15:20], margins[:1, 15:20], rows[:1])
    guess = fit.guess(points, rows)
    assert (guess - margins).abs().amax() < 0.05
    assert torch.equal(guess[:, 20:].argmax(1), margins[:, 20:].argmax(1))
    alone = MarginFit(2, 3, points)
    alone.learn(points[1:, :15], margins[1:, :15], rows[1:])
    assert torch.equal(alone.guess(points[1:], rows[1:]), guess[1:])
