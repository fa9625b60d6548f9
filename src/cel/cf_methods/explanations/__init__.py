"""The language of rules: predicates, edits, units in words, and the base of its methods."""
