"""The rules: pure values and functions.

Nothing here does I/O, reads a clock, draws a random number or logs: time, randomness and ids are arguments, so every
rule can be tested by calling it. Stores keep what this package decides; they never decide themselves.
"""
