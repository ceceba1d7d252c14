"""Make tables of pairs of predecessor and successor, one module for each kind of pair and world."""
