"""Who saw what in a vertical run, what can be inferred from it, what defends against that; and noise for clients."""
