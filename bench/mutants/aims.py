"""Which tests watch over which module: the quick ones that are about it."""

from __future__ import annotations

OBSERVE = ("tests/features/test_observe_twin.py", "tests/features/test_observe.py")
POLICIES = "tests/models/provisioning/policies"
LEARNING = "tests/models/provisioning/learning"
RECIPES = f"{POLICIES}/test_recipes.py"
RECIPE = f"{RECIPES}::test_recipe_is_the_one_that_was_measured"
DECLARED = "tests/models/provisioning/test_policies.py::test_declares_a_knob_of_at_most_fifteen_settings"
DIFFERENCES = "tests/models/provisioning/comparison/test_differences.py"
COMPARISON = (
    "tests/models/provisioning/comparison/test_groups.py",
    "tests/models/provisioning/comparison/test_compare.py",
    "tests/models/provisioning/comparison/test_seed_spread.py",
    f"{DIFFERENCES}::test_the_difference_of_a_few_pairs_by_hand",
    f"{DIFFERENCES}::test_the_zero_share_at_an_overlap_by_hand",
    f"{DIFFERENCES}::test_every_draw_of_a_difference_is_that_of_the_twin",
)
PAIRS = "tests/models/provisioning/pairs/test_injected.py"
AHEAD = "tests/models/provisioning/futures/test_chains.py"
TRAIN = "tests/models/provisioning/training/test_train.py"
TRACKING = tuple(
    f"tests/models/tracking/test_{name}.py" for name in ("training_runs", "versions", "damaged_store", "registered")
)
ENVIRONMENT = "tests/models/provisioning/test_environment.py"
LOOP = tuple(f"tests/agent/chains/test_{name}.py" for name in ("loop", "troubles", "goes_on"))
KEEPER = ("tests/agent/chains/test_keeper_sees.py", *LOOP, "tests/agent/chains/test_keeper.py")
SIGHT = ("tests/agent/test_sight.py", "tests/agent/test_sight_twin.py", "tests/agent/test_check.py")
FUTURES = "tests/agent/test_futures.py"
PARSED = ("tests/agent/slurm/test_parsed.py", *SIGHT)
AIMS: dict[str, tuple[str, ...]] = {
    "features/observe.py": OBSERVE,
    "features/start_estimate.py": OBSERVE,
    **{
        f"agent/{name}.py": tuple(
            f"tests/agent/test_{test}.py" for test in ("kinds", "artifact", "hostile_artifact", "trees", "command")
        )
        for name in ("artifact", "kinds", "trees")
    },
    "agent/__main__.py": ("tests/agent/test_command.py",),
    "agent/chains/decide.py": ("tests/agent/chains/test_decide.py", FUTURES, *KEEPER),
    **{f"agent/chains/{name}.py": KEEPER for name in ("keeper", "loop", "journal")},
    "agent/chains/state.py": ("tests/agent/chains/test_state.py", *LOOP, "tests/agent/test_cli.py"),
    "agent/chains/chain.py": ("tests/agent/test_cli_options.py", *LOOP, "tests/agent/test_cli.py"),
    "agent/chains/submission.py": (*LOOP, "tests/agent/test_cli.py"),
    "agent/memory.py": ("tests/agent/test_memory.py", *SIGHT),
    **{f"agent/{name}.py": SIGHT for name in ("sight", "check")},
    "agent/eyes.py": (*SIGHT, FUTURES),
    **{f"agent/slurm/{name}.py": PARSED for name in ("limits", "nodes", "queue", "settings")},
    "agent/slurm/accounting.py": (*PARSED, FUTURES),
    "agent/cli.py": ("tests/agent/test_cli.py",),
    "agent/chains/metrics.py": ("tests/agent/chains/test_metrics.py",),
    "agent/slurm_time.py": ("tests/agent/test_slurm_time.py", "tests/agent/chains/test_status.py", *LOOP),
    "agent/chains/status.py": ("tests/agent/chains/test_status.py", *LOOP),
    "agent/slurm/commands.py": ("tests/agent/slurm/test_commands.py", *SIGHT),
    "models/provisioning/batched_pairs.py": (
        "tests/models/provisioning/test_batched_pairs.py",
        f"{ENVIRONMENT}::test_batch_against_one_pair_at_a_time",
        f"{ENVIRONMENT}::test_refuses_what_cannot_be_stepped",
    ),
    "models/provisioning/scaling.py": ("tests/models/provisioning/test_scaling.py",),
    "models/provisioning/protocol.py": (
        "tests/models/provisioning/test_protocol.py",
        "tests/models/provisioning/test_policies.py::test_artifact_says_what_it_is[reactive]",
        f"{POLICIES}/test_ahead.py",
    ),
    "models/provisioning/learning/exploring_starts.py": (f"{LEARNING}/test_exploring_starts.py",),
    "models/provisioning/learning/networks.py": (f"{LEARNING}/test_networks.py", RECIPE, f"{POLICIES}/test_parts.py"),
    "models/provisioning/learning/regression_rows.py": (f"{LEARNING}/test_regression_rows.py", RECIPE),
    "models/provisioning/learning/trees.py": (
        f"{POLICIES}/test_parts.py",
        f"{DIFFERENCES}::test_untrained_trees_are_their_base_estimate",
    ),
    "models/provisioning/policies/dqn.py": (RECIPE, f"{POLICIES}/test_dqn.py", DECLARED),
    "models/provisioning/policies/policy_gradient.py": (RECIPE, f"{POLICIES}/test_policy_gradient.py", DECLARED),
    "models/provisioning/policies/forest.py": (
        RECIPES,
        f"{POLICIES}/test_regressions.py",
        f"{POLICIES}/test_parts.py",
        DECLARED,
    ),
    "models/provisioning/policies/xgboost.py": (
        RECIPES,
        f"{POLICIES}/test_regressions.py",
        f"{POLICIES}/test_parts.py",
        DECLARED,
    ),
    "models/provisioning/policies/lightgbm.py": (
        RECIPES,
        f"{POLICIES}/test_regressions.py",
        f"{POLICIES}/test_parts.py",
        DECLARED,
    ),
    "models/provisioning/policies/estimates.py": (RECIPES, DECLARED),
    "models/provisioning/policies/reactive.py": (RECIPES, DECLARED),
    "features/bootstrap.py": ("tests/features/test_bootstrap.py",),
    "models/provisioning/comparison/outcomes.py": ("tests/models/provisioning/comparison",),
    **{f"models/provisioning/comparison/{name}.py": COMPARISON for name in ("cells", "compare", "groups", "settings")},
    **{
        f"models/provisioning/comparison/{name}.py": (DIFFERENCES, *COMPARISON[:2]) for name in ("differences", "rules")
    },
    "models/provisioning/pairs/recorded.py": ("tests/models/provisioning/pairs/test_recorded.py",),
    "models/provisioning/pairs/recorded_waits.py": ("tests/models/provisioning/pairs/test_recorded_waits.py",),
    "models/provisioning/service/timing.py": (
        "tests/models/provisioning/service/test_timing.py",
        "tests/models/provisioning/service/test_play.py::test_a_player_that_hands_over_ends_the_older_link",
        f"{AHEAD}::test_links_that_run_run_to_their_limits_in_futures",
        f"{AHEAD}::test_a_chains_own_job_runs_to_the_links_limit_if_it_arrives_again",
    ),
    "models/provisioning/pairs/injected.py": (
        f"{PAIRS}::test_decisions_are_ten_minutes_apart_and_the_last_is_the_exact_end",
        f"{PAIRS}::test_a_limit_shorter_than_the_time_between_decisions_is_refused",
        f"{PAIRS}::test_more_jobs_that_wait_than_there_is_room_for_get_more_room",
        f"{PAIRS}::test_what_fails_in_a_thread_is_told",
        f"{PAIRS}::test_a_file_of_pairs_runs_nothing_when_it_is_read",
        f"{PAIRS}::test_a_pair_that_cannot_run_is_refused",
        f"{PAIRS}::test_decisions_run_from_the_start_of_p_to_its_exact_end[fifo]",
        f"{PAIRS}::test_predecessor_and_successor_start_as_if_written_into_the_trace[fifo]",
        f"{PAIRS}::test_observation_is_what_a_snapshot_taken_by_hand_shows[fifo]",
        "tests/models/study/test_pair_tables.py",
    ),
    "models/provisioning/environment.py": (
        f"{ENVIRONMENT}::test_one_submits_naught_waits_and_an_hour_of_overlap_counts_as_one_of_interruption",
        f"{ENVIRONMENT}::test_waiting_to_the_end_is_reactive",
        f"{ENVIRONMENT}::test_the_reward_of_submitting_is_the_gap_of_that_row",
        f"{ENVIRONMENT}::test_refuses_what_cannot_be_stepped",
        f"{ENVIRONMENT}::test_a_pair_that_is_not_in_the_table_and_an_unknown_render_mode_are_refused",
        f"{ENVIRONMENT}::test_renders_what_is_observed_in_one_line_where_asked",
        f"{ENVIRONMENT}::test_the_same_seed_gives_the_same_trajectory",
        f"{ENVIRONMENT}::test_passes_gymnasiums_checker",
        "tests/models/provisioning/test_scaling.py",
    ),
    "models/study/windows.py": ("tests/models/study/test_windows.py",),
    "models/study/support.py": ("tests/models/study/test_support.py",),
    "models/study/world_error.py": ("tests/models/study/test_world_error.py",),
    "models/study/chains.py": ("tests/models/study/test_chains.py",),
    "models/study/comparisons.py": ("tests/models/study/test_comparisons.py",),
    "models/study/pair_tables.py": (
        "tests/models/study/test_pair_tables.py",
        "tests/models/provisioning/pairs/test_recorded_waits.py::test_a_study_takes_the_observations_of_the_calibrated_world",
    ),
    "models/study/fits.py": (
        "tests/models/study/test_fits.py",
        f"{TRAIN}::test_an_interrupted_training_keeps_what_was_fitted",
        f"{TRAIN}::test_a_kill_between_a_fit_and_its_stamp_passes_nothing_off_as_another",
    ),
    "models/provisioning/training/train.py": (TRAIN,),
    "models/provisioning/training/processes.py": ("tests/models/provisioning/training/test_processes.py",),
    **{f"models/tracking/{name}.py": TRACKING for name in ("moved", "registered", "runs", "store", "training_runs")},
    "models/tracking/versions.py": TRACKING[1:],
    "models/study/as_of.py": ("tests/models/study/test_as_of.py",),
    "models/provisioning/comparison/masked.py": ("tests/models/provisioning/comparison/test_masked.py",),
    "models/study/extent.py": ("tests/models/study/test_extent.py",),
    "models/release/policies/drift.py": ("tests/models/release/policies/test_drift.py",),
    "models/study/slurm/pairs.py": ("tests/models/study/slurm/test_pairs.py",),
    "models/release/policies/gate.py": ("tests/models/release/policies/test_gate.py",),
    "models/release/block_interval.py": ("tests/models/release/policies/test_gate.py",),
    "models/release/policies/candidate.py": ("tests/models/release/policies/test_release.py",),
}
