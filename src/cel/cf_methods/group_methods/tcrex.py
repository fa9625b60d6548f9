"""T-CREx: tree-based counterfactual rules (in progress; taken)."""
