"""One pool of equal units, served by the compiled schedulers of `flat/schedulers`."""
