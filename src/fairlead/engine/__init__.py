"""The use cases of producers and workers over any store; what people operate is `fairlead.admin`, above it.

The engine owns the clock, the randomness and the ids, calls `fairlead.core` to decide and a store to keep, and tells
observers what happened.
"""
