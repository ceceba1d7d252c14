"""The algorithms of the published schedulers: auctions, knapsacks, assignments. They know no clock and no cluster."""
