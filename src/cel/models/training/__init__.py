"""The one training engine: schedules, jobs, stacks of models, the loop."""
