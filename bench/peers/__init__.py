"""The same work on fairlead and on its peers, in one run, on one machine."""
