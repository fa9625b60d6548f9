"""What gradient methods share: the nearest point beyond the boundary, and how it is searched."""
