"""What the published schedulers compute: auctions, knapsacks, assignments. No clock, no cluster."""
