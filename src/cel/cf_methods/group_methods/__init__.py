"""Group-wise methods."""
