"""The observation of one job at its submission: what may be known of its wait then, for fits, scores and live use."""
