"""API keys, and the sessions of browsers begun with them."""
