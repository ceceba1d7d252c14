"""The observation of one job at its submission, from which its wait is predicted in fits, scores and live use."""
