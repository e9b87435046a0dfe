"""What an engine runs on: clocks, ids, batches, and turns of the event loop."""
