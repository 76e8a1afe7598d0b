"""Resampling, regressions and intervals that both kinds of evaluation use."""
