"""The study of one cluster: its windows, inputs, stored pairs and fits, and comparisons."""
