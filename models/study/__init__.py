"""One cluster's study: its scenario and windows, what is read for it, what is fitted, kept, compared and published."""
