"""The advisor: search the changes that an administrator may make, judge the best on weeks that the search never saw.

It ends in lines for slurm.conf and commands of sacctmgr, and applies nothing. The replays are those of
`models.what_if.recorded`.
"""
