"""The worker: claims tasks, runs their handlers under renewed leases, and settles them."""
