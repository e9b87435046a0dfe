"""The use cases: what producers, workers and operators do, over any store.

The engine owns the clock, the randomness and the ids, calls `fairlead.core` to decide and a store to keep, and tells
observers what happened.
"""
