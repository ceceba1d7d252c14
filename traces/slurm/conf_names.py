"""The names in slurm.conf(5), versions 20.11 to 26.05, that `traces.slurm.conf` does not read.

Any name that is in neither module is an error in the file. Names in the sets `..._THAT_MATTER` affect scheduling and
are not modelled: a file that sets one to a non-default value is read, and the name is reported. The other names do not
affect scheduling.
"""

from __future__ import annotations

# Values that leave a name that matters at its default.
SETS_NOTHING = frozenset({"", "(null)", "0", "all", "n/a", "no", "none", "unlimited"})

# Prefixes of top-level parameters that affect scheduling: an unknown name with one of them is an error.
SCHEDULING_PREFIXES = ("priority", "preempt", "sched", "select", "fairshare", "bf_", "node", "partition")

PARAMETERS_THAT_MATTER = frozenset({
    "burstbuffertype", "completewait", "enforcepartlimits", "fairsharedampeningfactor", "federationparameters",
    "defcpupergpu", "licenses", "prioritysitefactorplugin", "prioritysitefactorparameters", "priorityparameters",
    "priorityusageresetperiod", "resumeprogram", "schedulertimeslice", "suspendprogram", "suspendtime",
    "topologyparam", "topologyplugin", "dependencyparameters", "resvoverrun",
})  # fmt: skip

# Known parameters with one of the SCHEDULING_PREFIXES that do not change when jobs start.
PARAMETERS_WITHOUT_EFFECT = frozenset({
    "nodefeaturesplugins", "schedulerauth", "schedulerport", "schedulerrootfilter", "schedulertype",
})  # fmt: skip

OPTIONS_THAT_MATTER = frozenset({  # of SchedulerParameters
    "allow_zero_lic", "assoc_limit_stop", "bf_allow_magnetic_slot", "bf_busy_nodes", "bf_hetjob_immediate",
    "bf_hetjob_prio", "bf_ignore_newly_avail_nodes", "bf_licenses", "bf_max_job_user_part", "bf_one_resv_per_job",
    "bf_running_job_reserve", "bf_topopt_enable", "bf_topopt_iterations", "bf_window_linear", "delay_boot",
    "extra_constraints", "ignore_prefer_validation", "enable_user_top", "max_switch_wait", "pack_serial_at_end",
    "preempt_min_exempt_priority", "preempt_reclaim_licenses", "preempt_suspend_grace_time", "reduce_completing_frag",
    "time_min_as_soft_limit", "whole_hetjob", "whole_pack",
})  # fmt: skip
OPTIONS_WITHOUT_EFFECT = frozenset({  # on starts in the simulator, where scheduling takes no time
    "bb_array_stage_cnt", "bf_continue", "bf_max_time", "bf_yield_interval", "bf_yield_sleep", "bf_yield_rpc_cnt",
    "build_queue_timeout", "correspond_after_task_cnt", "defer_batch", "disable_hetjob_steps", "disable_job_shrink",
    "enable_hetjob_steps", "enable_hetero_steps", "enable_job_state_cache", "enable_stepmgr",
    "ignore_constraint_validation",
    "ignore_numa", "max_array_tasks", "max_depend_depth", "max_rpc_cnt", "max_rpc_count", "max_sched_time",
    "max_script_size", "max_submit_line_size", "no_backup_scheduling", "no_env_cache", "nohold_on_prolog_fail",
    "permit_job_expansion", "requeue_on_resume_failure", "requeue_setup_env_fail", "salloc_wait_nodes",
    "sbatch_wait_nodes", "spec_cores_first", "step_retry_count", "step_retry_time", "inventory_interval",
    "kill_invalid_depend", "bf_licenses_initial", "bf_node_space_size", "preempt_send_user_signal",
})  # fmt: skip

NODE_FIELDS_WITHOUT_EFFECT = frozenset({
    "bcastaddr", "boards", "corespeccount", "cpubind", "cpuspeclist", "gpuspeccores", "memspeclimit", "nodeaddr",
    "nodehostname", "port", "reason", "restrictedcorespergpu", "tmpdisk", "topology", "tresweights", "parameters",
    "certtype", "extra", "instanceid", "instancetype",
})  # fmt: skip
NODE_FIELDS_THAT_MATTER = frozenset({"suspendtime"})

PARTITION_FIELDS_THAT_MATTER = frozenset({
    "allowaccounts", "allowqos", "denyaccounts", "denyqos", "defcpupergpu", "gracetime", "minnodes",
    "alternate", "allocnodes", "allowgroups", "denygroups", "exclusiveuser", "exclusivetopo", "maxcpuspernode",
    "maxcpuspersocket", "maxmempercpu", "maxmempernode", "powerdownonidle", "reqresv", "resumetimeout", "rootonly",
    "selecttypeparameters", "suspendtime", "suspendtimeout", "topology",
})  # fmt: skip
PARTITION_FIELDS_WITHOUT_EFFECT = frozenset({"cpubind", "disablerootjobs", "hidden", "resumetimeout", "jobdefaults"})
