"""One cluster's study: its windows, what is read for it, the pairs and fits kept, what is compared and published."""
