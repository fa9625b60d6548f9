"""Optimal counterfactuals of ReLU networks, by bounds and branching on activations."""

from __future__ import annotations

from cel.cf_methods.local_methods.exact_relu.exact_relu import ExactReLU

__all__ = ["ExactReLU"]
