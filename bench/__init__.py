"""Benchmarks: what fairlead does on this machine, as rates and ratios."""
